#include "utils/compute/ops/softmax/softmax.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;

Doubles LogSoftmaxRows(const Doubles& x, int64_t n) {
  Doubles y(x.size());
  for (size_t r = 0; r < x.size(); r += n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x[r + i]);
    for (int64_t i = 0; i < n; ++i) y[r + i] = x[r + i] - std::log(sum);
  }
  return y;
}

void CheckSoftmax(const Shape& shape) {
  const int64_t n = shape.dim(-1);
  const Tensor x = testing::RandomTensor(shape, 3, -2, 2);
  const auto log_softmax = [n](const std::vector<Doubles>& in) {
    return std::vector<Doubles>{LogSoftmaxRows(in[0], n)};
  };
  const auto softmax = [n](const std::vector<Doubles>& in) {
    Doubles y = LogSoftmaxRows(in[0], n);
    for (double& v : y) v = std::exp(v);
    return std::vector<Doubles>{y};
  };
  for (const OpCase& test :
       {OpCase{
            op::Softmax, {x}, [](absl::Span<const Value> in) { return std::vector<Value>{Softmax(in[0])}; }, softmax},
        OpCase{op::LogSoftmax,
               {x},
               [](absl::Span<const Value> in) { return std::vector<Value>{LogSoftmax(in[0])}; },
               log_softmax}}) {
    testing::CheckForward(test);
    testing::CheckGradients(test);
  }
}

TEST_CASE("Softmax and LogSoftmax, values and gradients") {
  const int64_t n = GENERATE(1, 3, 17, 64);
  CheckSoftmax(GENERATE_COPY(Shape{n}, Shape{5, n}, Shape{2, 3, n}));
}

TEST_CASE("LogSumExp") {
  const int64_t n = GENERATE(1, 3, 17, 1040);
  testing::CheckForward({
      .op = op::LogSumExp,
      // Shifted, so that the sum of the exponentials themselves would overflow in float32.
      .inputs = {testing::RandomTensor(GENERATE_COPY(Shape{n}, Shape{2, 3, n}), 6, 118, 122)},
      .build = [](absl::Span<const Value> in) { return std::vector<Value>{LogSumExp(in[0])}; },
      .reference =
          [n](const std::vector<Doubles>& in) {
            const Doubles log_p = LogSoftmaxRows(in[0], n);
            Doubles log_sums;
            for (size_t r = 0; r < log_p.size(); r += n) log_sums.push_back(in[0][r] - log_p[r]);
            return std::vector<Doubles>{log_sums};
          },
  });
}

TEST_CASE("Softmax and LogSoftmax of long rows") { CheckSoftmax(GENERATE(Shape{1030}, Shape{1, 1040})); }

OpCase CrossEntropyCase(int64_t rows, int64_t n, float smoothing) {
  return {
      .op = op::SparseSoftmaxCrossEntropy,
      .inputs = {testing::RandomTensor({rows, n}, 4, -3, 3), testing::RandomInts({rows}, 5, static_cast<int>(n))},
      .build =
          [=](absl::Span<const Value> in) {
            return std::vector<Value>{SparseSoftmaxCrossEntropy(in[0], in[1], smoothing)};
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            const Doubles log_p = LogSoftmaxRows(in[0], n);
            Doubles loss(in[1].size());
            for (size_t r = 0; r < loss.size(); ++r) {
              for (int64_t c = 0; c < n; ++c) {
                const double target = smoothing / n + (c == in[1][r] ? 1 - smoothing : 0);
                loss[r] -= target * log_p[r * n + c];
              }
            }
            return std::vector<Doubles>{loss};
          },
  };
}

TEST_CASE("Cross entropy with label smoothing, values and gradients") {
  const OpCase test = CrossEntropyCase(7, GENERATE(2, 10, 33), GENERATE(0.0f, 0.1f));
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("Cross entropy of long rows") {
  const int64_t n = GENERATE(1030, 1040);
  testing::CheckForward(CrossEntropyCase(3, n, 0.1f));
  testing::CheckGradients(CrossEntropyCase(1, n, 0.1f));
}

// The loss of rows of which only the first elements are classes, as a program has them.
std::vector<Value> LossOfClasses(absl::Span<const Value> in, int64_t classes, float target, float other) {
  return {
      Apply(op::SparseSoftmaxCrossEntropy, {in[0], in[1]},
            Attrs{{"target", target}, {"other_target", other}, {"padding_label", int64_t{0}}, {"classes", classes}})};
}

// Behind the classes, and in rows of label 0, lie NaN: whoever reads them shows it.
OpCase LongerRowsCase(int64_t rows, int64_t classes, int64_t columns, float smoothing) {
  const float other = smoothing / static_cast<float>(classes), target = 1 - smoothing + other;
  OpCase test = CrossEntropyCase(rows, columns, 0);
  test.inputs[1] = testing::RandomInts({rows}, 5, static_cast<int>(classes));
  for (int64_t r = 0; r < rows; ++r) {
    float* const x = test.inputs[0].data<float>() + r * columns;
    const bool is_padding = test.inputs[1].data<int32_t>()[r] == 0;
    std::fill(is_padding ? x : x + classes, x + columns, std::numeric_limits<float>::quiet_NaN());
  }
  test.build = [=](absl::Span<const Value> in) { return LossOfClasses(in, classes, target, other); };
  test.reference = [=](const std::vector<Doubles>& in) {
    Doubles loss(rows);
    for (int64_t r = 0; r < rows; ++r) {
      const auto x = in[0].begin() + r * columns;
      if (in[1][r] == 0) continue;
      const Doubles log_p = LogSoftmaxRows(Doubles(x, x + classes), classes);
      for (int64_t c = 0; c < classes; ++c) loss[r] -= (c == in[1][r] ? target : other) * log_p[c];
    }
    return std::vector<Doubles>{loss};
  };
  return test;
}

TEST_CASE("Cross entropy of rows longer than the classes, values and gradients") {
  const auto [classes, columns] = GENERATE(std::pair{2, 8}, std::pair{5, 7}, std::pair{13, 16}, std::pair{33, 128});
  const OpCase test = LongerRowsCase(7, classes, columns, GENERATE(0.0f, 0.1f));
  testing::CheckForward(test);
  testing::CheckGradients(test);
  testing::CheckForward(LongerRowsCase(3, 1030, 1152, 0.1f));
  testing::CheckGradients(LongerRowsCase(2, 1030, 1152, 0.1f));
}

TEST_CASE("The gradient behind the classes is exactly zero, that of the classes as without longer rows") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(from_range(StorageTypes()));
  const int64_t classes = GENERATE(13, 1029), columns = classes + 3, rows = 4;
  Tensor labels = testing::RandomInts({rows}, 5, static_cast<int>(classes));
  labels.data<int32_t>()[1] = 0;
  const Tensor logits = testing::RandomTensor({rows, classes}, 4, -3, 3).CastTo(dtype);
  const auto gradient = [&](int64_t behind) {
    return testing::RunOn(kind, {logits, labels}, [&](absl::Span<const Value> in) {
      const Value x = Pad(in[0], {0, 0, 0, behind});
      const Value loss = LossOfClasses({x, in[1]}, classes, 1, 0)[0];
      return std::vector<Value>{Cast(Gradients(loss, {x})[0], DType::kFloat32)};
    })[0];
  };
  const Tensor longer = gradient(columns - classes), plain = gradient(0);
  REQUIRE(longer.type().ToString() == TensorType{DType::kFloat32, {rows, columns}}.ToString());
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t row = i / columns, column = i % columns;
    CAPTURE(kind, dtype, row, column);
    const float got = longer.data<float>()[i],
                alone = column < classes ? plain.data<float>()[row * classes + column] : 0;
    // A GPU adds up the exponentials in another order.
    CHECK(std::abs(got - alone) <= (kind == "cpu" ? 0 : 1e-2 * std::abs(alone)));
  }
}

Tensor CrossEntropy(const std::string& kind, const Tensor& logits, const Tensor& labels, float smoothing) {
  return testing::RunOn(kind, {logits, labels}, [&](absl::Span<const Value> in) {
    return std::vector<Value>{SparseSoftmaxCrossEntropy(in[0], in[1], smoothing)};
  })[0];
}

// Seen in the official transformer's padded_cross_entropy_loss under TensorFlow 1.10.1. It takes the targets 0.9 and
// 0.1 / 3 for a smoothing of 0.1 and subtracts their entropy.
TEST_CASE("Cross entropy equals TensorFlow's") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor logits = Tensor::Of<float>({2, 4}, {1, 2, 3, 0, 0, 0, 0, 0});
  const Tensor labels = Tensor::Of<int32_t>({2}, {2, 1});
  const Tensor loss = CrossEntropy(kind, logits, labels, 0);
  CHECK(loss.data<float>()[0] == Approx(0.4401897).epsilon(1e-6));
  CHECK(loss.data<float>()[1] == Approx(1.3862944).epsilon(1e-6));
  const double entropy = -(0.9 * std::log(0.9) + 0.1 * std::log(0.1 / 3));
  const Tensor smooth = CrossEntropy(kind, logits, labels, 0.1f * 4 / 3);
  CHECK(smooth.data<float>()[0] - entropy == Approx(0.20524544).epsilon(2e-6));
  CHECK(smooth.data<float>()[1] - entropy == Approx(0.9513501).epsilon(1e-6));
}

// Rows of label 0 hold NaN: whoever reads them shows it.
testing::OpCase PaddedCase(int64_t rows, int64_t n, float smoothing) {
  OpCase test = CrossEntropyCase(rows, n, 0);
  for (int64_t r = 0; r < rows; r += 3) {
    test.inputs[1].data<int32_t>()[r] = 0;
    std::fill_n(test.inputs[0].data<float>() + r * n, n, std::numeric_limits<float>::quiet_NaN());
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (r % 3 != 0) test.inputs[1].data<int32_t>()[r] = std::max(1, test.inputs[1].data<int32_t>()[r]);
  }
  test.build = [=](absl::Span<const Value> in) {
    return std::vector<Value>{PaddedCrossEntropy(in[0], in[1], smoothing)};
  };
  test.reference = [=](const std::vector<Doubles>& in) {
    const Doubles log_p = LogSoftmaxRows(in[0], n);
    Doubles loss(rows);
    for (int64_t r = 0; r < rows; ++r) {
      if (in[1][r] == 0) continue;
      for (int64_t c = 0; c < n; ++c) {
        const double target = c == in[1][r] ? 1 - smoothing : static_cast<double>(smoothing) / (n - 1);
        if (target > 0) loss[r] += target * (std::log(target) - log_p[r * n + c]);
      }
    }
    return std::vector<Doubles>{loss};
  };
  return test;
}

TEST_CASE("PaddedCrossEntropy, values and gradients") {
  const OpCase test = PaddedCase(7, GENERATE(2, 10, 33), GENERATE(0.0f, 0.1f));
  testing::CheckForward(test);
  testing::CheckGradients(test);
  testing::CheckForward(PaddedCase(4, 1030, 0.1f));
}

// Seen in the official transformer's padded_cross_entropy_loss under TensorFlow 1.10.1.
TEST_CASE("PaddedCrossEntropy equals TensorFlow's") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor loss = testing::RunOn(
      kind, {Tensor::Of<float>({3, 4}, {1, 2, 3, 0, 0, 0, 0, 0, 1, 2, 3, 4}), Tensor::Of<int32_t>({3}, {2, 1, 0})},
      [](absl::Span<const Value> in) { return std::vector<Value>{PaddedCrossEntropy(in[0], in[1], 0.1f)}; })[0];
  CHECK(loss.data<float>()[0] == Approx(0.20524544).epsilon(2e-6));
  CHECK(loss.data<float>()[1] == Approx(0.9513501).epsilon(1e-6));
  CHECK(loss.data<float>()[2] == 0);
}

// Where a class has no probability its gradient is minus its target. Seen in TensorFlow 2.15.1, in graphs of
// padded_cross_entropy_loss and tf.losses.softmax_cross_entropy.
TEST_CASE("Smooth targets have TensorFlow's bits") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto targets = [&](int64_t classes, const auto& loss) {
    Tensor logits(DType::kFloat32, {1, classes});
    std::fill_n(logits.data<float>(), classes, -1e30f);
    logits.data<float>()[1] = 0;
    const Tensor gradient =
        testing::RunOn(kind, {logits, Tensor::Of<int32_t>({1}, {2})},
                       [&](absl::Span<const Value> in) { return Gradients(loss(in[0], in[1]), {in[0]}); })[0];
    return std::array{-gradient.data<float>()[2], -gradient.data<float>()[3]};
  };
  const auto padded = [](Value logits, Value labels) { return PaddedCrossEntropy(logits, labels, 0.1); };
  const auto sparse = [](Value logits, Value labels) { return SparseSoftmaxCrossEntropy(logits, labels, 0.1); };
  CHECK(targets(10, padded) == std::array{0x1.ccccccp-1f, 0x1.6c16c2p-7f});
  CHECK(targets(33708, padded) == std::array{0x1.ccccccp-1f, 0x1.8e3082p-19f});
  CHECK(targets(10, sparse) == std::array{0x1.d1eb84p-1f, 0x1.47ae14p-7f});
  CHECK(targets(1001, sparse) == std::array{0x1.ccd9e4p-1f, 0x1.a302eap-14f});
}

TEST_CASE("The gradient of cross entropy is written over the logits") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {64, 1000}});
  const Value labels = graph.Input("labels", {DType::kInt32, {64}});
  const Value logits = Neg(x);
  const Value gradient = Gradients(PaddedCrossEntropy(logits, labels, 0.1f), {logits})[0];
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const GraphRoots roots = {{x, labels}, {gradient}, {}};
  const std::unique_ptr<Program> program = Program::Compile(graph, roots, *device, variables).value();
  CHECK(program->arena_bytes() < 2 * logits.type().num_bytes());
}

TEST_CASE("Cross entropy takes logits of any rank and labels of both types") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor logits = testing::RandomTensor({2, 3, 5}, 1), labels = testing::RandomInts({2, 3}, 2, 5);
  const Tensor flat = CrossEntropy(kind, logits.Reshaped({6, 5}), labels.Reshaped({6}), 0);
  const Tensor loss = CrossEntropy(kind, logits, labels.CastTo(DType::kInt64), 0);
  CHECK(loss.type().ToString() == "float32[2,3]");
  for (int i = 0; i < 6; ++i) CHECK(loss.data<float>()[i] == flat.data<float>()[i]);
}

TEST_CASE("Large logits do not overflow") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = testing::RunOn(kind, {Tensor::Of<float>({1, 3}, {1e4f, 1e4f, -1e4f})},
                                  [](absl::Span<const Value> in) { return std::vector<Value>{Softmax(in[0])}; })[0];
  CHECK(y.data<float>()[0] == Approx(0.5));
  CHECK(y.data<float>()[2] == 0);
}

// By hand; -1e9 is how attention masks padding, -infinity how beam search bans a token.
TEST_CASE("Masked logits get probability 0, and a NaN stays in its row") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor y = testing::RunOn(kind, {Tensor::Of<float>({3, 3}, {-1e9f, 2, 2, 1, -infinity, 1, 0, NAN, 0})},
                                  [](absl::Span<const Value> in) { return std::vector<Value>{Softmax(in[0])}; })[0];
  const float want[] = {0, 0.5f, 0.5f, 0.5f, 0, 0.5f};
  for (int i = 0; i < 6; ++i) CHECK(y.data<float>()[i] == want[i]);
  for (int i = 6; i < 9; ++i) CHECK(std::isnan(y.data<float>()[i]));
}

TEST_CASE("A label outside the classes is an error that names it") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Graph graph;
  const Value logits = graph.Input("logits", {DType::kFloat32, {2, 3}});
  const Value labels = graph.Input("labels", {DType::kInt32, {2}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  const Value loss = SparseSoftmaxCrossEntropy(logits, labels);
  for (const int label : {3, -1}) {
    const absl::Status status =
        Evaluate(graph, {{logits, labels}, {loss}, {}},
                 {Tensor(DType::kFloat32, {2, 3}), Tensor::Of<int32_t>({2}, {0, label})}, *device)
            .status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Catch::Contains("label " + std::to_string(label) + (kind == kCudaKind ? "" : " of example 1") +
                               " is outside [0, 3)"));  // a GPU does not know the example
  }
}

TEST_CASE("A label that int32 cannot hold is an error that does not name another class") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const int64_t label = (int64_t{1} << 32) + 1;
  Graph graph;
  const Value logits = graph.Input("logits", {DType::kFloat32, {1, 3}});
  const Value labels = graph.Input("labels", {DType::kInt64, {1}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  const absl::Status status = Evaluate(graph, {{logits, labels}, {SparseSoftmaxCrossEntropy(logits, labels)}, {}},
                                       {Tensor(DType::kFloat32, {1, 3}), Tensor::Of<int64_t>({1}, {label})}, *device)
                                  .status();
  CHECK(absl::IsInvalidArgument(status));
  // A GPU says the largest number that it can.
  const int64_t named = kind == kCudaKind ? std::numeric_limits<int32_t>::max() : label;
  CHECK_THAT(std::string(status.message()), Catch::Contains("label " + std::to_string(named)));
}

TEST_CASE("A label behind the classes is an error, and so are more classes than columns") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Graph graph;
  const Value logits = graph.Input("logits", {DType::kFloat32, {2, 8}});
  const Value labels = graph.Input("labels", {DType::kInt32, {2}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  const absl::Status status = Evaluate(graph, {{logits, labels}, LossOfClasses({logits, labels}, 5, 1, 0), {}},
                                       {Tensor(DType::kFloat32, {2, 8}), Tensor::Of<int32_t>({2}, {4, 5})}, *device)
                                  .status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("label 5") && Catch::Contains("is outside [0, 5)"));
  for (const int64_t classes : {0, 9}) {
    const absl::Status refused =
        testing::BuildStatus({{DType::kFloat32, {2, 8}}, {DType::kInt32, {2}}},
                             [&](absl::Span<const Value> in) { return LossOfClasses(in, classes, 1, 0); });
    CHECK_THAT(std::string(refused.message()), Catch::Contains("needs 1 to 8 classes, got " + std::to_string(classes)));
  }
}

TEST_CASE("Labels that do not fit the logits are refused while building") {
  const absl::Status status = testing::BuildStatus(
      {{DType::kFloat32, {2, 3}}, {DType::kInt32, {3}}},
      [](absl::Span<const Value> in) { return std::vector<Value>{SparseSoftmaxCrossEntropy(in[0], in[1])}; });
  CHECK_THAT(std::string(status.message()), Catch::Contains("float32[2,3], int32[3]"));
}

}  // namespace
}  // namespace official::compute
