// Merges chains of elementwise nodes: a node takes in the producers of its inputs whose results nobody else reads.

#include <algorithm>
#include <utility>

#include "utils/compute/graph/may_move.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/elementwise/fused_program.h"
#include "utils/compute/ops/elementwise/op_table.h"

namespace official::compute {
namespace {

absl::StatusOr<std::vector<TensorType>> InferFused(const InferContext& c) {
  const Shape shape(c.attrs.GetInts("shape"));
  for (const Value& input : c.inputs) {
    const absl::StatusOr<Shape> both = BroadcastShape(input.shape(), shape);
    if (!both.ok() || *both != shape) return c.Error("an input does not broadcast to the output");
  }
  return std::vector<TensorType>{{c.attrs.Get<DType>("dtype"), shape}};
}

const bool registered_op = RegisterOp({.name = op::FusedElementwise, .infer = InferFused});

// A program under construction and its inputs in the new graph.
struct Fusion {
  FusedProgram program;
  std::vector<Value> inputs;

  FusedProgram::Operand AddInput(Value v) {
    const auto it = std::find(inputs.begin(), inputs.end(), v);
    const int i = static_cast<int>(it - inputs.begin());
    if (it == inputs.end()) inputs.push_back(v);
    return ~i;
  }
  FusedProgram::Operand Add(FusedProgram::Instruction instruction) {
    program.instructions.push_back(std::move(instruction));
    return static_cast<int>(program.instructions.size()) - 1;
  }
  // Adds the instructions of `other` on these operands in the place of its inputs; what its result is here.
  FusedProgram::Operand Inline(const FusedProgram& other, const std::vector<FusedProgram::Operand>& operands) {
    std::vector<FusedProgram::Operand> results;
    const auto here = [&](FusedProgram::Operand o) { return FusedProgram::IsInput(o) ? operands[~o] : results[o]; };
    for (FusedProgram::Instruction instruction : other.instructions) {
      for (FusedProgram::Operand& o : instruction.operands) o = here(o);
      results.push_back(Add(std::move(instruction)));
    }
    return here(other.result);
  }
  // Room is left for so many more inputs and for the consumer's own instruction.
  bool Fits(int more_inputs) const {
    return static_cast<int>(inputs.size()) + more_inputs <= FusedProgram::kMaxInputs &&
           static_cast<int>(program.instructions.size()) + 1 <= FusedProgram::kMaxInstructions;
  }
};

// The producer, in the new graph, of input i of `node` if it can become a part of it.
const Node* MergeableProducer(const Node& node, int i, const RewriteContext& context) {
  const Value v = node.input(i);
  const Value mapped = context.Mapped(v);
  if (v.shape() != node.output_types()[0].shape) return nullptr;
  if (!IsStorageType(v.dtype()) && v.dtype() != DType::kBool) return nullptr;
  const int uses_here = static_cast<int>(std::count(node.inputs().begin(), node.inputs().end(), v));
  if (context.UseCount(v) != uses_here) return nullptr;
  const Node& producer = *mapped.node();
  if (!ProgramOf(producer) || ComputeType(producer) != DType::kFloat32 || !MayMoveToEnd(producer)) return nullptr;
  // Only comparisons and the like leave exact ones and zeros.
  if (producer.Is(op::Cast) && v.dtype() == DType::kBool) return nullptr;
  return &producer;
}

std::optional<std::vector<Value>> FuseElementwise(const Node& node, RewriteContext& context) {
  const std::optional<FusedProgram> program = ProgramOf(node);
  if (!program || ComputeType(node) != DType::kFloat32) return std::nullopt;
  // Conversions to integers or bool have no instruction of their own.
  const TensorType& type = node.output_types()[0];
  if (node.Is(op::Cast) && !IsFloating(type.dtype)) return std::nullopt;

  Fusion fusion;
  std::vector<FusedProgram::Operand> operands;
  bool merged = false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const auto first = std::find(node.inputs().begin(), node.inputs().begin() + i, node.input(i));
    if (first != node.inputs().begin() + i) {
      operands.push_back(operands[first - node.inputs().begin()]);
      continue;
    }
    if (const Node* producer = MergeableProducer(node, i, context)) {
      Fusion attempt = fusion;
      std::vector<FusedProgram::Operand> inputs;
      for (const Value& v : producer->inputs()) inputs.push_back(attempt.AddInput(v));
      FusedProgram::Operand result = attempt.Inline(*ProgramOf(*producer), inputs);
      // What would have been stored between the two.
      if (node.input(i).dtype() == DType::kBFloat16) result = attempt.Add({"RoundToBFloat16", {result}});
      if (node.input(i).dtype() == DType::kFloat16) result = attempt.Add({"RoundToHalf", {result}});
      if (attempt.Fits(node.num_inputs() - i - 1)) {
        fusion = std::move(attempt);
        operands.push_back(result);
        merged = true;
        continue;
      }
    }
    operands.push_back(fusion.AddInput(context.Mapped(node.input(i))));
  }
  if (!merged || !context.DeviceHasKernel(op::FusedElementwise, fusion.inputs[0].dtype())) return std::nullopt;
  fusion.program.result = fusion.Inline(*program, operands);
  const absl::Span<const int64_t> dims = type.shape.dims();
  return std::vector<Value>{
      OutputOf(context.graph().AddNode(op::FusedElementwise, fusion.inputs,
                                       Attrs{{"program", fusion.program.ToString()},
                                             {"dtype", type.dtype},
                                             {"shape", std::vector<int64_t>(dims.begin(), dims.end())}},
                                       node.name()),
               0)};
}

const bool registered_fusion = RegisterFusion({.name = "Elementwise", .phase = 2, .rule = FuseElementwise});

}  // namespace
}  // namespace official::compute
