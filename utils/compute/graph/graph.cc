#include "utils/compute/graph/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> TypeFromAttrs(const InferContext& c) {
  return std::vector<TensorType>{{c.attrs.Get<DType>("dtype"), Shape(c.attrs.GetInts("shape"))}};
}

const bool registered_input = RegisterOp({.name = op::Input, .infer = TypeFromAttrs, .is_source = true});
const bool registered_variable = RegisterOp({.name = op::Variable, .infer = TypeFromAttrs, .is_source = true});
const bool registered_constant = RegisterOp({
    .name = op::Constant,
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      return std::vector<TensorType>{c.attrs.Get<Tensor>("value").type()};
    },
    .is_source = true,
});

// True if a tensor of this type can be: no size is below 0, and int64 holds its bytes.
bool CanExist(const TensorType& type) {
  int64_t bytes = SizeOf(type.dtype);
  for (const int64_t size : type.shape.dims()) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return false;
  }
  return true;
}

Attrs TypeAttrs(const TensorType& type) {
  const absl::Span<const int64_t> dims = type.shape.dims();
  return Attrs{{"dtype", type.dtype}, {"shape", std::vector<int64_t>(dims.begin(), dims.end())}};
}

}  // namespace

Graph* Value::graph() const { return node_ == nullptr ? nullptr : &node_->graph(); }

const TensorType& Value::type() const {
  static const TensorType* const kInvalid = new TensorType;
  return node_ == nullptr ? *kInvalid : node_->output_types()[index_];
}

bool Node::Is(OpName op) const { return op_->name == op; }

Value Graph::Input(absl::string_view name, TensorType type) {
  return OutputOf(AddNode(op::Input, {}, TypeAttrs(type), name), 0);
}

Value Graph::Variable(VariableSpec spec) {
  if (const auto it = variable_values_.find(spec.name); it != variable_values_.end()) {
    if (it->second.type() != spec.type) {
      Fail(absl::InvalidArgumentError(absl::StrCat("variable ", spec.name, " is ", it->second.type().ToString(),
                                                   " and is declared again as ", spec.type.ToString())));
      return Value();
    }
    return it->second;
  }
  if (name_counts_.contains(spec.name)) {
    Fail(absl::InvalidArgumentError(absl::StrCat("variable ", spec.name, " (", spec.type.ToString(),
                                                 ") has the name of an input or another node; rename the variable")));
    return Value();
  }
  const Value value = OutputOf(AddNode(op::Variable, {}, TypeAttrs(spec.type), spec.name), 0);
  if (!value) return value;
  variable_values_[spec.name] = value;
  variable_index_[spec.name] = static_cast<int>(variables_.size());
  variables_.push_back(std::move(spec));
  return value;
}

Value Graph::Constant(Tensor value) {
  return OutputOf(AddNode(op::Constant, {}, Attrs{{"value", std::move(value)}}), 0);
}

const VariableSpec& Graph::variable(const Node& node) const {
  const auto it = variable_index_.find(node.name());
  OFFICIAL_CHECK(it != variable_index_.end()) << node.name() << " is no variable";
  return variables_[it->second];
}

void Graph::Fail(absl::Status status) { status_.Update(status); }

Node* Graph::AddNode(OpName op, absl::Span<const Value> inputs, Attrs attrs, absl::string_view name) {
  const OpDef* def = FindOp(op.text());
  if (def == nullptr) {
    Fail(absl::InternalError(absl::StrCat("op ", op.text(), " is not registered: its library is not linked in")));
    return nullptr;
  }
  for (const Value& input : inputs) {
    if (!input) {
      Fail(absl::InvalidArgumentError(absl::StrCat(op.text(), ": an input is missing or failed")));
      return nullptr;
    }
    OFFICIAL_CHECK(input.graph() == this) << op << ": input " << input.node()->name() << " is of another graph";
  }
  absl::StatusOr<std::vector<TensorType>> types = def->infer(InferContext{op, inputs, attrs});
  if (!types.ok()) {
    Fail(types.status());
    return nullptr;
  }
  for (const TensorType& type : *types) {
    if (CanExist(type)) continue;
    Fail(absl::InvalidArgumentError(absl::StrCat(op.text(), name.empty() ? "" : " ", name, ": the result would be ",
                                                 type.ToString(),
                                                 "; sizes must be at least 0, and int64 must hold the bytes")));
    return nullptr;
  }
  auto node = std::make_unique<Node>();
  node->id_ = static_cast<int>(nodes_.size());
  node->op_ = def;
  node->graph_ = this;
  node->name_ = UniqueName(name.empty() ? op.text() : name);
  node->inputs_.assign(inputs.begin(), inputs.end());
  node->output_types_ = *std::move(types);
  node->attrs_ = std::move(attrs);
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

std::string Graph::UniqueName(absl::string_view base) {
  for (;;) {
    const int count = name_counts_[std::string(base)]++;
    if (count == 0) return std::string(base);
    std::string name = absl::StrCat(base, "_", count);
    if (name_counts_.try_emplace(name, 1).second) return name;
  }
}

Node* ApplyNode(OpName op, absl::Span<const Value> inputs, Attrs attrs) {
  Graph* graph = nullptr;
  for (const Value& input : inputs) {
    if (!input) return nullptr;  // the op that made it has left its error in its graph
    graph = input.graph();
  }
  OFFICIAL_CHECK(graph != nullptr) << op << " without inputs needs Graph::AddNode";
  return graph->AddNode(op, inputs, std::move(attrs));
}

Value Apply(OpName op, absl::Span<const Value> inputs, Attrs attrs) {
  return OutputOf(ApplyNode(op, inputs, std::move(attrs)), 0);
}

}  // namespace official::compute
