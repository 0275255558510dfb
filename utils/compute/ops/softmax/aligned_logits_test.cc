#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/program/lowering.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

// True if logits are padded on devices of this kind.
bool Pads(const std::string& kind) {
  return KernelRegistry::Global().Find(op::CastAndPadRows, kind, DType::kFloat32) != nullptr;
}

Value CastAndPadRows(Value x, DType dtype, int64_t rows) {
  return Apply(op::CastAndPadRows, {x}, Attrs{{"dtype", dtype}, {"rows", rows}});
}

TEST_CASE("CastAndPadRows has the bits of Cast and zeros behind them") {
  const DType dtype = GENERATE(DType::kBFloat16, DType::kFloat16);
  const Shape shape = GENERATE(Shape{5, 3}, Shape{5, 8}, Shape{129, 24}, Shape{3, 2, 5}, Shape{7}, Shape{0, 4});
  const int64_t rows = shape.dim(0) + GENERATE(0, 1, 8, 123);
  const Tensor x = testing::RandomTensor(shape, 1, -9, 9);
  for (const std::string& kind : testing::KindsUnderTest()) {
    if (!Pads(kind)) continue;
    CAPTURE(kind, DTypeName(dtype), shape.ToString(), rows);
    const std::vector<Tensor> results = testing::RunOn(kind, {x}, [&](absl::Span<const Value> in) {
      return std::vector<Value>{CastAndPadRows(in[0], dtype, rows), Cast(in[0], dtype)};
    });
    const Tensor &padded = results[0], &cast = results[1];
    REQUIRE(padded.shape().dim(0) == rows);
    CHECK(std::memcmp(padded.raw_data(), cast.raw_data(), cast.num_bytes()) == 0);
    const auto* const bytes = static_cast<const char*>(padded.raw_data());
    CHECK(std::all_of(bytes + cast.num_bytes(), bytes + padded.num_bytes(), [](char byte) { return byte == 0; }));
  }
}

TEST_CASE("CastAndPadRows refuses what it cannot make") {
  const auto error = [](const TensorType& type, DType dtype, int64_t rows) {
    const auto build = [&](absl::Span<const Value> in) {
      return std::vector<Value>{CastAndPadRows(in[0], dtype, rows)};
    };
    return std::string(testing::BuildStatus({type}, build).message());
  };
  CHECK_THAT(error({DType::kFloat32, {4, 2}}, DType::kBFloat16, 3), Catch::Contains("cannot put its rows into 3"));
  CHECK_THAT(error({DType::kFloat32, {4, 2}}, DType::kFloat32, 8), Catch::Contains("makes bfloat16 or half"));
  CHECK_THAT(error({DType::kBFloat16, {4, 2}}, DType::kBFloat16, 8), Catch::Contains("float32 input"));
}

// A model with a tied embedding: rows of a table are gathered by the ids, and multiplied by all of them.
struct Model {
  DType dtype = DType::kBFloat16;
  int64_t classes = 13;
  bool fetches_logits = false;
};
constexpr int64_t kTokens = 6, kSize = 16;

struct Step {
  Graph graph;
  GraphRoots roots;  // the fetches: losses, the gradients of table and bias, and the logits if they are asked for
};

std::unique_ptr<Step> StepOf(const Model& model) {
  auto step = std::make_unique<Step>();
  Graph& graph = step->graph;
  const Value variable = graph.Variable({"table", {DType::kFloat32, {model.classes, kSize}}, Initializer::Normal(0.3)});
  const Value bias = graph.Variable({"bias", {DType::kFloat32, {kSize}}, Initializer::Ones()});
  const Value ids = graph.Input("ids", {DType::kInt32, {kTokens}});
  const Value labels = graph.Input("labels", {DType::kInt32, {kTokens}});
  const auto narrow = [&](Value v) { return model.dtype == DType::kFloat32 ? v : Cast(v, model.dtype); };
  const Value table = narrow(variable);
  const Value x = Tanh(BiasAdd(Gather(table, ids), narrow(bias)));
  const Value logits = MatMul(x, table, {.transpose_b = true});
  const Value losses = PaddedCrossEntropy(logits, labels, 0.1);
  const std::vector<Value> gradients = Gradients(Mean(losses), {variable, bias});
  step->roots = {{ids, labels}, {losses, gradients[0], gradients[1]}, {}};
  if (model.fetches_logits) step->roots.fetches.push_back(logits);
  return step;
}

// Runs the step once on new variables.
std::vector<Tensor> Run(const std::string& kind, const Model& model, bool fuse) {
  const std::unique_ptr<Step> step = StepOf(model);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore store(*device);
  REQUIRE(store.Create(step->graph, 1).ok());
  const auto program = Program::Compile(step->graph, step->roots, *device, store, {.fuse = fuse}).value();
  if (fuse) testing::RecordKernels(*program, kind);
  const Tensor ids = Tensor::Of<int32_t>({kTokens}, {4, 0, 12, 4, 1, 7});
  const Tensor labels = Tensor::Of<int32_t>({kTokens}, {1, 0, 12, 3, 3, 11});
  REQUIRE(testing::RunAndWait(*program, {ids, labels}, *device).ok());
  std::vector<Tensor> results;
  for (size_t i = 0; i < step->roots.fetches.size(); ++i) results.push_back(program->Fetch(i).value().Clone());
  return results;
}

TEST_CASE("A step with padded logits computes what it computes without") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Model model{.dtype = GENERATE(from_range(StorageTypes())), .classes = GENERATE(13, 100)};
  CAPTURE(kind, DTypeName(model.dtype), model.classes);
  const std::vector<Tensor> padded = Run(kind, model, /*fuse=*/true), plain = Run(kind, model, /*fuse=*/false);
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    REQUIRE(padded[i].type() == plain[i].type());
    const Doubles a = testing::ToDoubles(padded[i]), b = testing::ToDoubles(plain[i]);
    const double tolerance = model.dtype == DType::kFloat32 ? 1e-6 : 5e-3;
    for (size_t k = 0; k < a.size(); ++k) CHECK(std::abs(a[k] - b[k]) <= tolerance);
  }
}

// The shapes of the results of the nodes of an op, in order.
std::vector<std::string> ShapesOf(const Graph& graph, OpName op) {
  std::vector<std::string> shapes;
  for (const auto& node : graph.nodes()) {
    if (node->Is(op)) shapes.push_back(node->output_types()[0].shape.ToString());
  }
  return shapes;
}

using Shapes = std::vector<std::string>;

TEST_CASE("On devices that want aligned rows, logits and their gradient have more columns than classes") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(DType::kBFloat16, DType::kFloat16);
  const std::unique_ptr<Step> step = StepOf({.dtype = dtype, .classes = 300});
  const PlannedLayouts lowered = Lower(step->graph, step->roots, kind).value();
  const Graph& graph = *lowered.graph.graph;
  CAPTURE(kind, DTypeName(dtype));
  CHECK(ShapesOf(graph, op::Slice).empty());
  if (!Pads(kind)) {
    CHECK(ShapesOf(graph, op::CastAndPadRows).empty());
    CHECK(ShapesOf(graph, op::MatMul) == Shapes{"[6,300]", "[6,16]", "[300,16]"});
    return;
  }
  CHECK(ShapesOf(graph, op::CastAndPadRows) == Shapes{"[384,16]"});
  CHECK(ShapesOf(graph, op::FirstRows) == Shapes{"[300,16]", "[300,16]"});  // for ids; of the table's gradient
  CHECK(ShapesOf(graph, op::MatMul) == Shapes{"[6,384]", "[6,16]", "[384,16]"});
  CHECK(ShapesOf(graph, op::SparseSoftmaxCrossEntropyGrad) == Shapes{"[6,384]"});
  for (const auto& node : graph.nodes()) {
    if (node->Is(op::SparseSoftmaxCrossEntropy) || node->Is(op::SparseSoftmaxCrossEntropyGrad)) {
      CHECK(node->attrs().GetInt("classes") == 300);
    }
  }
}

TEST_CASE("Logits are not padded if their rows are aligned, or if more than cross entropy reads them") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Model model =
      GENERATE(Model{.dtype = DType::kFloat32}, Model{.classes = 16}, Model{.classes = 13, .fetches_logits = true});
  const std::unique_ptr<Step> step = StepOf(model);
  const PlannedLayouts lowered = Lower(step->graph, step->roots, kind).value();
  CHECK(ShapesOf(*lowered.graph.graph, op::CastAndPadRows).empty());
  CHECK(ShapesOf(*lowered.graph.graph, op::FirstRows).empty());
  CHECK(Run(kind, model, /*fuse=*/true)[0].shape() == Shape{kTokens});
}

// Only a table with more rows than classes could be read there.
TEST_CASE("An id behind the classes is an error, also where the table has more rows") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::unique_ptr<Step> step = StepOf({});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore store(*device);
  REQUIRE(store.Create(step->graph, 1).ok());
  const auto program = Program::Compile(step->graph, step->roots, *device, store).value();
  const Tensor labels(DType::kInt32, {kTokens});
  const absl::Status status =
      testing::RunAndWait(*program, {Tensor::Of<int32_t>({kTokens}, {0, 1, 13, 2, 3, 4}), labels}, *device);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("index 13") && Catch::Contains("outside [0, 13)"));
}

}  // namespace
}  // namespace official::compute
