// Groups nodes that run one program on many tensors, such as the conversion of all variables to bfloat16 or the weight
// decay of all gradients: one launch instead of hundreds. A group of nodes that read only variables and constants
// stands where the first of them stood; one whose results are only read together, by updates, checks of all gradients
// or their norm, in front of these.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/elementwise/fused_program.h"
#include "utils/compute/ops/elementwise/op_table.h"

namespace official::compute {
namespace {

using grouped_elementwise::kMaxMemberInputs;

absl::StatusOr<std::vector<TensorType>> InferGrouped(const InferContext& c) {
  const int64_t members = c.attrs.GetInt("members");
  std::vector<TensorType> outputs;
  for (int64_t m = 0; m < members; ++m) outputs.push_back({c.attrs.Get<DType>("dtype"), c.shape(static_cast<int>(m))});
  return outputs;
}

const bool registered_op = RegisterOp({.name = op::GroupedElementwise, .infer = InferGrouped});

// A node that can be a member of a group.
struct Member {
  const Node* node;
  std::string key;             // equal for the members of a group
  std::vector<int64_t> slots;  // its inputs in the order of the group's: those of each member first
  int num_own = 0;             // the number of the latter
};

bool IsSource(Value v) { return v.node()->Is(op::Variable) || v.node()->Is(op::Constant); }

std::optional<Member> AsMember(const Node& node) {
  const std::optional<FusedProgram> program = ProgramOf(node);
  if (!program || ComputeType(node) != DType::kFloat32) return std::nullopt;
  const TensorType& type = node.output_types()[0];
  // A result that is not floating is a conversion's, which has no instruction.
  if (!IsFloating(type.dtype) || type.shape.num_elements() >= int64_t{1} << 31) return std::nullopt;
  Member member{&node, absl::StrCat(program->ToString(), " ", DTypeName(type.dtype)), {}};
  std::vector<int64_t> shared;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Value v = node.input(i);
    const bool own = v.shape() == type.shape;
    if (!IsStorageType(v.dtype()) || (!own && v.shape().num_elements() != 1)) return std::nullopt;
    (own ? member.slots : shared).push_back(i);
    absl::StrAppend(&member.key, " ", DTypeName(v.dtype()));
    if (!own) absl::StrAppend(&member.key, v.node()->id(), ":", v.index());
  }
  member.num_own = static_cast<int>(member.slots.size());
  if (member.num_own == 0 || member.num_own > kMaxMemberInputs) return std::nullopt;
  // Results may take the memory of the first inputs, but not that of variables.
  std::stable_partition(member.slots.begin(), member.slots.end(), [&](int64_t i) { return !IsSource(node.input(i)); });
  for (const int64_t i : member.slots) absl::StrAppend(&member.key, " x", i);
  member.slots.insert(member.slots.end(), shared.begin(), shared.end());
  return member;
}

// Adds the node of a group, or copies a single member; `mapped` gives the new value of an old input.
template <typename Mapped>
void AddGroup(const std::vector<Member>& members, RewriteContext& context, Mapped mapped) {
  const Member& first = members[0];
  if (members.size() == 1) {
    std::vector<Value> inputs;
    for (const Value& v : first.node->inputs()) inputs.push_back(mapped(v));
    const Node& node = *first.node;
    context.Map(node.output(0),
                OutputOf(context.graph().AddNode(node.op().name, inputs, node.attrs(), node.name()), 0));
    return;
  }
  std::vector<Value> inputs;
  for (int s = 0; s < first.num_own; ++s) {
    for (const Member& member : members)
      inputs.push_back(mapped(member.node->input(static_cast<int>(member.slots[s]))));
  }
  for (size_t s = first.num_own; s < first.slots.size(); ++s) {
    inputs.push_back(mapped(first.node->input(static_cast<int>(first.slots[s]))));
  }
  Node* const group = context.graph().AddNode(op::GroupedElementwise, inputs,
                                              Attrs{{"program", ProgramOf(*first.node)->ToString()},
                                                    {"dtype", first.node->output_types()[0].dtype},
                                                    {"members", static_cast<int64_t>(members.size())},
                                                    {"slots", first.slots}});
  OFFICIAL_CHECK(group != nullptr) << context.graph().status().ToString();
  for (size_t m = 0; m < members.size(); ++m)
    context.Map(members[m].node->output(0), group->output(static_cast<int>(m)));
}

// True if `reader` reads the result of another node that could be in one group with `member`.
bool ReadsAnother(const Node& reader, const Member& member) {
  return std::any_of(reader.inputs().begin(), reader.inputs().end(), [&](Value v) {
    if (v.node() == member.node || v.node()->num_outputs() != 1) return false;
    const std::optional<Member> other = AsMember(*v.node());
    return other && other->key == member.key;
  });
}

// True if the member can be computed in front of the first node that reads its result: its readers take any number of
// tensors, or several of its group, and nothing is written in between.
bool CanWait(const Member& member, RewriteContext& context) {
  const Node& node = *member.node;
  const std::vector<const Node*>& readers = context.Readers(node.output(0));
  if (readers.empty() || static_cast<int>(readers.size()) != context.UseCount(node.output(0))) return false;
  for (const Node* reader : readers) {
    const OpDef& op = reader->op();
    if (!op.is_update && !op.precedes_updates && !op.runs_early && !ReadsAnother(*reader, member)) return false;
  }
  const auto& nodes = node.graph().nodes();
  return std::none_of(nodes.begin() + node.id(), nodes.begin() + readers[0]->id(),
                      [](const auto& other) { return other->op().has_side_effect; });
}

bool ReadsOnlySources(const Node& node) { return std::all_of(node.inputs().begin(), node.inputs().end(), IsSource); }

// All live members of the first member's group that can be computed where it is.
std::vector<Member> SourceGroupOf(const Member& first, RewriteContext& context) {
  std::vector<Member> members;
  for (const auto& node : first.node->graph().nodes()) {
    if (node->op().has_side_effect) break;
    if (node->id() < first.node->id() || node->num_outputs() != 1 || context.UseCount(node->output(0)) == 0) continue;
    if (!ReadsOnlySources(*node)) continue;
    if (std::optional<Member> member = AsMember(*node); member && member->key == first.key) members.push_back(*member);
  }
  return members;
}

std::optional<std::vector<Value>> GroupElementwise(const Node& node, RewriteContext& context) {
  // What was put off until here.
  std::map<std::string, std::vector<Member>> groups;
  for (const Value& v : node.inputs()) {
    if (v.node()->num_outputs() != 1 || context.Mapped(v)) continue;
    Member member = *AsMember(*v.node());
    std::vector<Member>& group = groups[member.key];
    if (std::none_of(group.begin(), group.end(), [&](const Member& other) { return other.node == member.node; })) {
      group.push_back(std::move(member));
    }
  }
  for (const auto& [key, members] : groups) AddGroup(members, context, [&](Value v) { return context.Mapped(v); });

  if (node.num_outputs() != 1 || !context.DeviceHasKernel(op::GroupedElementwise, DType::kFloat32)) return std::nullopt;
  const std::optional<Member> member = AsMember(node);
  if (!member) return std::nullopt;
  if (ReadsOnlySources(node)) {
    const std::vector<Member> members = SourceGroupOf(*member, context);
    if (members.size() < 2) return std::nullopt;
    AddGroup(members, context, [&](Value v) { return context.MappedSource(v); });
    return std::vector<Value>{context.Mapped(node.output(0))};
  }
  return CanWait(*member, context) ? std::optional(std::vector<Value>{Value()}) : std::nullopt;
}

const bool registered_fusion = RegisterFusion({.name = "GroupedElementwise", .phase = 3, .rule = GroupElementwise});

}  // namespace
}  // namespace official::compute
