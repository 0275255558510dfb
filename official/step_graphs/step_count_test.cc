#include "official/step_graphs/step_count.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_join.h"
#include "official/step_graphs/step_graphs.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/program/lowering.h"

namespace official::step_graphs {
namespace {

using compute::DType;

train::BuiltModel StepOf(const std::string& name, DType dtype) {
  for (const TrainedModel& model : CountedModels()) {
    if (model.name != name) continue;
    return train::BuildModel(model.model, train::Mode::kTrain, dtype, model.types(train::Mode::kTrain, model.batch),
                             {.loss_scale = DefaultLossScale(dtype)})
        .value();
  }
  FAIL("there is no model " << name);
  return {};
}

StepCount CountOf(const std::string& name, DType dtype) { return CountStep(StepOf(name, dtype), kH200).value(); }

TEST_CASE("A step on a GPU has few nodes") {
  const auto [name, most, most_narrow] =
      GENERATE(std::tuple{"mnist", 18, 27}, std::tuple{"resnet-32 v1", 210, 210}, std::tuple{"resnet-50 v1", 320, 320},
               std::tuple{"transformer base", 610, 610}, std::tuple{"ncf ml-20m", 10, 10});
  CAPTURE(name);
  CHECK(CountOf(name, DType::kFloat32).nodes <= most);
  CHECK(CountOf(name, DType::kBFloat16).nodes <= most_narrow);
}

// The nodes of a step on a GPU that have a value of this shape among inputs and results, as "op ops ...", sorted.
std::string OpsWith(const compute::Graph& step, const compute::Shape& shape) {
  std::multiset<std::string> ops;
  for (const auto& node : step.nodes()) {
    if (!compute::NeedsKernel(*node)) continue;
    const auto inputs = node->inputs();
    const auto types = node->output_types();
    if (std::any_of(inputs.begin(), inputs.end(), [&](const compute::Value& v) { return v.shape() == shape; }) ||
        std::any_of(types.begin(), types.end(), [&](const compute::TensorType& type) { return type.shape == shape; })) {
      ops.emplace(node->op().name.text());
    }
  }
  return absl::StrJoin(ops, " ");
}

TEST_CASE("The logits of a Transformer have rows of whole tiles in 16 bits on a GPU") {
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16, DType::kFloat16);
  const train::BuiltModel built = StepOf("transformer base", dtype);
  const compute::PlannedLayouts lowered = compute::Lower(*built.graph, built.roots, compute::kCudaKind).value();
  const compute::Graph& step = *lowered.graph.graph;
  const compute::Shape logits = {4096, 33708}, padded_logits = {4096, 33792}, padded_table = {33792, 512};
  const std::string readers = "MatMul MatMul MatMul SparseSoftmaxCrossEntropy SparseSoftmaxCrossEntropyGrad";
  CAPTURE(dtype);
  const bool pads = dtype != DType::kFloat32;  // rows of float32 start at multiples of 16 bytes as they are
  CHECK(OpsWith(step, pads ? padded_logits : logits) == readers);
  CHECK(OpsWith(step, pads ? logits : padded_logits).empty());
  // The logits, the gradient of what they are made of, and that of the table.
  CHECK(OpsWith(step, padded_table) == (pads ? "CastAndPadRows MatMul MatMul MatMul" : ""));
}

TEST_CASE("The operations of mnist are those of its layers") {
  // Multiplications for an image: two convolutions of 5 x 5, two dense layers. The backward pass has them twice, but
  // for the gradient of the images.
  constexpr double kFirst = 28 * 28 * 32 * 25.0;
  constexpr double kOthers = 14 * 14 * 64 * 32 * 25.0 + 7 * 7 * 64 * 1024.0 + 1024 * 10.0;
  CHECK(CountOf("mnist", DType::kFloat32).flops == Approx(2 * 100 * (2 * kFirst + 3 * kOthers)));
}

TEST_CASE("A step moves at least what the roofline counts, in no less time") {
  const std::string name = GENERATE("mnist", "resnet-32 v1", "resnet-50 v1", "transformer base", "ncf ml-20m");
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  CAPTURE(name, dtype);
  const StepCount count = CountOf(name, dtype);
  CHECK(count.roofline_bytes > 0);
  CHECK(count.roofline_bytes <= count.bytes);
  CHECK(count.roofline_seconds <= count.node_seconds);
}

}  // namespace
}  // namespace official::step_graphs
