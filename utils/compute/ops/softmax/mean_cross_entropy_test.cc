#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "utils/compute/ops/check_numerics/check_numerics.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;

Tensor Scaled(int64_t rows, double factor) {
  Tensor gradients(TensorType{DType::kFloat32, {rows}});
  for (int64_t r = 0; r < rows; ++r) gradients.data<float>()[r] = static_cast<float>(factor * (1 + r % 3));
  return gradients;
}

OpCase Case(int64_t rows, int64_t classes, float target, float other) {
  const Tensor gradients = Scaled(rows, 0.25);
  return {
      .op = op::MeanCrossEntropy,
      .inputs = {testing::RandomTensor({rows, classes}, 4, -3, 3),
                 testing::RandomInts({rows}, 5, static_cast<int>(classes))},
      .build =
          [=](absl::Span<const Value> in) {
            Graph& graph = *in[0].graph();
            const Node* const node =
                graph.AddNode(op::MeanCrossEntropy, {in[0], in[1], graph.Constant(gradients)},
                              Attrs{{"target", target}, {"other_target", other}, {"checked", true}});
            std::vector<Value> outputs;
            for (int i = 0; node != nullptr && i < node->num_outputs(); ++i) outputs.push_back(node->output(i));
            return outputs;
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            Doubles loss(1), correct(1), gradient(rows * classes), bias_gradient(classes);
            for (int64_t r = 0; r < rows; ++r) {
              const double* const x = in[0].data() + r * classes;
              double sum = 0;
              for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c]);
              correct[0] += std::max_element(x, x + classes) - x == in[1][r];
              for (int64_t c = 0; c < classes; ++c) {
                const double wanted = c == in[1][r] ? target : other;
                loss[0] -= wanted * (x[c] - std::log(sum)) / static_cast<double>(rows);
                const double dx = (std::exp(x[c]) / sum - wanted) * gradients.data<float>()[r];
                gradient[r * classes + c] = dx;
                bias_gradient[c] += dx;
              }
            }
            return std::vector<Doubles>{loss, correct, gradient, bias_gradient};
          },
  };
}

// Only devices on which a launch is dear have the kernel: on others, what the node replaces is tested below.
bool HasKernel(const std::string& kind) {
  return KernelRegistry::Global().Find(op::MeanCrossEntropy, kind, DType::kFloat32) != nullptr;
}
void CheckWhereItRuns(const OpCase& test) {
  const std::vector<std::string> kinds = DeviceKinds();
  if (std::any_of(kinds.begin(), kinds.end(), HasKernel)) testing::CheckForward(test);
}

TEST_CASE("MeanCrossEntropy") { CheckWhereItRuns(Case(GENERATE(1, 7, 33, 100), GENERATE(1, 2, 10, 33, 300), 1, 0)); }

TEST_CASE("MeanCrossEntropy with label smoothing") { CheckWhereItRuns(Case(40, 10, 0.9f + 0.01f, 0.01f)); }

// A step of a model whose last layer has a bias: the mean loss, checked or not, the number of rows that are classified
// correctly, and the gradients of logits and bias.
std::vector<Value> BuildStep(absl::Span<const Value> in, DType label_type) {
  const Value narrow = BiasAdd(in[0], in[1]), logits = Cast(narrow, DType::kFloat32);
  const Value labels = in[2];
  const Value classes = ArgMax(logits);
  const Value loss = Mean(SparseSoftmaxCrossEntropy(logits, labels));
  const Value found = label_type == DType::kInt64 ? classes : Cast(classes, label_type);
  const Value correct = Sum(Cast(Equal(found, labels), DType::kFloat32));
  const Value checked = CheckNumerics(loss);
  const std::vector<Value> gradients = Gradients(checked, {in[0], in[1]});
  return {checked, loss, correct, gradients[0], gradients[1]};
}

Tensor LabelsOf(DType type, int64_t rows, int classes) { return testing::RandomInts({rows}, 5, classes).CastTo(type); }

TEST_CASE("A step's losses, their gradient and its accuracy become one node") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(from_range(StorageTypes())), label_type = GENERATE(DType::kInt32, DType::kInt64);
  CAPTURE(kind, DTypeName(dtype), DTypeName(label_type));
  Tensor x = testing::RandomTensor({50, 10}, 1, -3, 3).CastTo(DType::kBFloat16);  // some equal ones
  const std::vector<Tensor> inputs = {x.CastTo(DType::kFloat32).CastTo(dtype),
                                      testing::RandomTensor({10}, 2).CastTo(dtype), LabelsOf(label_type, 50, 10)};
  const auto build = [&](absl::Span<const Value> in) { return BuildStep(in, label_type); };
  const std::vector<Tensor> fused = testing::RunOn(kind, inputs, build);
  const std::vector<Tensor> plain = testing::RunOn(kind, inputs, build, {.fuse = false});
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    REQUIRE(fused[i].type() == plain[i].type());
    const Doubles a = testing::ToDoubles(fused[i]), b = testing::ToDoubles(plain[i]);
    const double tolerance = i == 2 ? 0 : i < 3 || dtype == DType::kFloat32 ? 1e-6 : 1e-3;
    for (size_t k = 0; k < a.size(); ++k) CHECK(std::abs(a[k] - b[k]) <= tolerance);
  }

  // What is left of the nodes.
  Graph graph;
  GraphRoots roots;
  for (const Tensor& input : inputs) roots.feeds.push_back(graph.Input("x", input.type()));
  roots.fetches = build(roots.feeds);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  const std::string kernels = Program::Compile(graph, roots, *device, variables).value()->DebugString();
  INFO(kernels);
  const bool fuses = KernelRegistry::Global().Find(op::MeanCrossEntropy, kind, dtype) != nullptr;
  CHECK((kernels.find("MeanCrossEntropy(") != std::string::npos) == fuses);
  if (fuses) CHECK(std::count(kernels.begin(), kernels.end(), '\n') == 2);  // it and BiasAdd
}

// The gradient of logits that are a variable, which an update makes zero behind the loss: of the zeros, and of the
// logarithms of the sums that the loss has seen.
Doubles GradientBehindUpdate(const std::string& kind, bool fuse) {
  Graph graph;
  const Value logits = graph.Variable({"logits", {DType::kFloat32, {3, 4}}, Initializer::Normal(1)});
  const Value labels = graph.Input("labels", {DType::kInt32, {3}});
  const Value loss = Mean(SparseSoftmaxCrossEntropy(logits, labels));
  const std::vector<Node*> update = GradientDescent(graph.Constant(Tensor::Scalar(1.0f)), {{logits, logits}});
  const Value gradient = Gradients(loss, {logits})[0];
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, /*seed=*/1).ok());
  const auto program =
      Program::Compile(graph, {{labels}, {loss, gradient}, update}, *device, variables, {.fuse = fuse}).value();
  REQUIRE(testing::RunAndWait(*program, {Tensor::Of<int32_t>({3}, {0, 3, 1})}, *device).ok());
  return testing::ToDoubles(program->Fetch(1).value());
}

TEST_CASE("The gradient of logits is not moved before an update of them") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Doubles fused = GradientBehindUpdate(kind, true), plain = GradientBehindUpdate(kind, false);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(fused[i] == Approx(plain[i]).margin(1e-6));
}

absl::Status StatusOfStep(const std::string& kind, const Tensor& logits, const Tensor& labels) {
  Graph graph;
  const std::vector<Value> feeds = {graph.Input("x", logits.type()), graph.Input("b", {DType::kFloat32, {4}}),
                                    graph.Input("l", labels.type())};
  const std::vector<Value> fetches = BuildStep(feeds, labels.dtype());
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {feeds, fetches, {}}, *device, variables).value();
  return testing::RunAndWait(*program, {logits, Tensor(TensorType{DType::kFloat32, {4}}), labels}, *device);
}

TEST_CASE("A loss that is not finite and a label outside the classes end a step") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Tensor logits = testing::RandomTensor({3, 4}, 1);
  const Tensor labels = Tensor::Of<int32_t>({3}, {0, 3, 1});
  CHECK(StatusOfStep(kind, logits, labels).ok());
  const absl::Status label = StatusOfStep(kind, logits, Tensor::Of<int32_t>({3}, {0, 4, 1}));
  CHECK(absl::IsInvalidArgument(label));
  CHECK_THAT(std::string(label.message()), Catch::Contains("label 4") && Catch::Contains("is outside [0, 4)"));
  logits.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  const absl::Status nan = StatusOfStep(kind, logits, labels);
  CHECK(absl::IsOutOfRange(nan));
  CHECK_THAT(std::string(nan.message()), Catch::Contains("is nan"));
}

TEST_CASE("A row is correct if the first of its largest logits is at the label") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits = Tensor::Of<float>({5, 3}, {1, 2, 2, 1, 2, 2, nan, 1, 2, 0, nan, 3, nan, 1, 2});
  const Tensor labels = Tensor::Of<int32_t>({5}, {1, 2, 0, 2, 2});
  const auto correct = [&](bool fuse) {
    return testing::RunOn(kind, {logits, labels},
                          [](absl::Span<const Value> in) {
                            const Value loss = Mean(SparseSoftmaxCrossEntropy(in[0], in[1]));
                            const Value count =
                                Sum(Cast(Equal(Cast(ArgMax(in[0]), DType::kInt32), in[1]), DType::kFloat32));
                            return std::vector<Value>{count, loss, Gradients(loss, {in[0]})[0]};
                          },
                          {.fuse = fuse})[0];
  };
  CHECK(correct(true).data<float>()[0] == 3);
  CHECK(correct(false).data<float>()[0] == 3);
}

}  // namespace
}  // namespace official::compute
