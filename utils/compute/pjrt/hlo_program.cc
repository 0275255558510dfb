#include "utils/compute/pjrt/hlo_program.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

const bool registered = RegisterOp({
    .name = op::HloModule,
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      std::vector<TensorType> types;  // what EncodeTypes has encoded
      const std::vector<int64_t>& encoded = c.attrs.GetInts("types");
      for (size_t i = 0; i < encoded.size();) {
        const auto dtype = static_cast<DType>(encoded[i]);
        const int64_t rank = encoded[i + 1];
        types.push_back({dtype, Shape(absl::MakeConstSpan(encoded).subspan(i + 2, rank))});
        i += 2 + rank;
      }
      return types;
    },
    .has_side_effect = true,
});

// One check in a line: "<code> <message>".
std::string LinesOf(const std::vector<HloCheck>& checks) {
  std::string lines;
  for (const HloCheck& check : checks) absl::StrAppend(&lines, static_cast<int>(check.code), " ", check.message, "\n");
  return lines;
}

// Of each value the type, the rank and the sizes of the dimensions.
std::vector<int64_t> EncodeTypes(const std::vector<Value>& values) {
  std::vector<int64_t> encoded;
  for (const Value& v : values) {
    encoded.push_back(static_cast<int64_t>(v.dtype()));
    encoded.push_back(v.shape().rank());
    encoded.insert(encoded.end(), v.shape().dims().begin(), v.shape().dims().end());
  }
  return encoded;
}

// The arguments of the module; the error if an input is not fed.
absl::StatusOr<std::vector<Value>> ArgumentsOf(const RewrittenGraph& program) {
  std::vector<Value> arguments = program.roots.feeds;
  for (const auto& node : program.graph->nodes()) {
    const Value v = node->num_outputs() > 0 ? node->output(0) : Value();
    if (node->Is(op::Variable)) arguments.push_back(v);
    if (node->Is(op::Input) && std::find(arguments.begin(), arguments.end(), v) == arguments.end()) {
      return absl::InvalidArgumentError(absl::StrCat("input ", node->name(), " is needed but not among the feeds"));
    }
  }
  return arguments;
}

}  // namespace

HloOptions HloOptionsFor(absl::string_view platform) {
  const bool is_tpu = platform == "tpu";
  return {.has_64_bits = !is_tpu, .has_narrow_products = is_tpu, .fuses_into_products = is_tpu};
}

absl::StatusOr<RewrittenGraph> EmitProgram(const RewrittenGraph& program, const HloOptions& options) {
  absl::StatusOr<std::vector<Value>> arguments = ArgumentsOf(program);
  if (!arguments.ok()) return arguments.status();
  HloBuilder hlo(*arguments, options);
  std::string lines;
  for (const auto& node : program.graph->nodes()) {
    if (node->op().is_view || node->Is(op::Input) || node->Is(op::Variable) || node->Is(op::Constant)) continue;
    const HloEmitter* const emitter = FindHloEmitter(*node);
    if (emitter == nullptr) {
      return absl::UnimplementedError(absl::StrCat("op ", node->op().name.text(), " is not written in StableHLO for ",
                                                   DTypeName(KeyType(*node)), ", which ", kPjrtKind, " devices need"));
    }
    emitter->emit(*node, hlo);
    absl::StrAppend(&lines, KernelLine(*node, [](const Value& v) { return v.type().ToString(); }));
  }

  RewrittenGraph result{std::make_unique<Graph>(), {}};
  std::vector<Value> inputs;
  for (const Value& v : *arguments) {
    const Node& source = *v.node();
    inputs.push_back(source.Is(op::Variable) ? result.graph->Variable(program.graph->variable(source))
                                             : result.graph->Input(source.name(), v.type()));
  }
  const std::vector<int> updated = hlo.updated();
  const std::string text = hlo.Module(program.roots.fetches);
  Node* const module = result.graph->AddNode(op::HloModule, inputs,
                                             Attrs{{"text", text},
                                                   {kMergedNodes, lines},
                                                   {"updated", std::vector<int64_t>(updated.begin(), updated.end())},
                                                   {"checks", LinesOf(hlo.checks())},
                                                   {"has_error", hlo.has_error()},
                                                   {"sums_over_devices", hlo.sums_over_devices()},
                                                   {"types", EncodeTypes(program.roots.fetches)}});
  if (module == nullptr) return result.graph->status();
  result.roots.feeds.assign(inputs.begin(), inputs.begin() + program.roots.feeds.size());
  for (int i = 0; i < module->num_outputs(); ++i) result.roots.fetches.push_back(module->output(i));
  result.roots.targets = {module};
  return result;
}

std::vector<HloCheck> HloChecksOf(const Node& node) {
  std::vector<HloCheck> checks;
  for (const absl::string_view line :
       absl::StrSplit(node.attrs().Get<std::string>("checks"), '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int code = 0;
    OFFICIAL_CHECK(absl::SimpleAtoi(parts.first, &code)) << line;
    checks.push_back({static_cast<absl::StatusCode>(code), std::string(parts.second)});
  }
  return checks;
}

}  // namespace official::compute
