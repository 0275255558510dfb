#include "utils/compute/ops/embedding/embedding.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

// Seen in the official transformer's get_position_encoding under TensorFlow 1.10.1.
TEST_CASE("PositionSignal equals TensorFlow's") {
  const Tensor signal = PositionSignal(4, 8);
  CHECK(signal.type().ToString() == "float32[4,8]");
  const float want[3][8] = {
      {0, 0, 0, 0, 1, 1, 1, 1},
      {.84147096f, .046399221f, .0021544329f, 9.9999976e-5f, .54030228f, .998923f, .99999768f, 1},
      {.90929747f, .092698492f, .0043088556f, 1.9999995e-4f, -.41614684f, .99569422f, .9999907f, 1}};
  for (int p = 0; p < 3; ++p) {
    for (int i = 0; i < 8; ++i) CHECK(signal.data<float>()[p * 8 + i] == Approx(want[p][i]).epsilon(2e-7));
  }
}

Value AsFloat32(Value v) { return Cast(v, DType::kFloat32); }

// Sequences of 3, 0, 1 and 2 tokens and two rows of padding, whose ids are outside the table.
struct Problem {
  int64_t size;
  double rate;
  bool shift_right;

  static constexpr int64_t kRows = 8, kIds = 5;
  std::vector<Tensor> Inputs() const {
    return {testing::RandomTensor({kIds, size}, 1), Tensor::Of<int32_t>({kRows}, {3, 0, 3, 4, 1, 3, -7, 99}),
            testing::RandomTensor({3, size}, 2), Tensor::Of<int32_t>({5}, {0, 3, 3, 4, 6}),
            Tensor::Of<int64_t>({3}, {1, 2, 30})};
  }
  Value Build(absl::Span<const Value> in) const {
    return Embedding({in[0], in[1], AsFloat32(in[2]), in[3], in[4]},
                     {.scale = 1.5, .shift_right = shift_right, .dropout_rate = rate, .name = "embedding"});
  }
  // What dropout makes of ones.
  std::vector<float> Factors() const {
    Tensor ones(DType::kFloat32, {kRows, size});
    std::fill_n(ones.data<float>(), ones.num_elements(), 1.0f);
    const Tensor factors = testing::RunOnCpu({ones, Inputs()[3], Inputs()[4]}, [&](absl::Span<const Value> in) {
      return std::vector<Value>{PackedDropout(in[0], in[1], rate, in[2], "embedding")};
    })[0];
    return {factors.flat<float>().begin(), factors.flat<float>().end()};
  }
  testing::OpCase Case() const {
    const std::vector<int> ids = shift_right ? std::vector<int>{0, 3, 0, 0, 0, 1} : std::vector<int>{3, 0, 3, 4, 1, 3};
    return {
        .op = op::Embedding,
        .inputs = Inputs(),
        .build = [problem = *this](absl::Span<const Value> in) { return std::vector<Value>{problem.Build(in)}; },
        .reference =
            [=, size = size, factors = Factors()](const std::vector<Doubles>& in) {
              const int positions[] = {0, 1, 2, 0, 0, 1};
              Doubles y(kRows * size);
              for (int r = 0; r < 6; ++r) {
                for (int64_t i = 0; i < size; ++i) {
                  const double entry = ids[r] == 0 ? 0 : 1.5 * in[0][ids[r] * size + i];
                  y[r * size + i] = (entry + in[2][positions[r] * size + i]) * factors[r * size + i];
                }
              }
              return std::vector<Doubles>{y};
            },
    };
  }
};

TEST_CASE("Embedding, values") {
  const Problem problem = {GENERATE(1, 16, 67, 1100), GENERATE(0.0, 0.3), GENERATE(false, true)};
  testing::CheckForward(problem.Case());
}

// Positions have no gradient, so they are no input here.
TEST_CASE("Embedding, gradients") {
  const Problem problem = {GENERATE(1, 16, 67), GENERATE(0.0, 0.3), GENERATE(false, true)};
  testing::OpCase test = problem.Case();
  const Tensor positions = test.inputs[2];
  test.inputs.erase(test.inputs.begin() + 2);
  test.build = [=](absl::Span<const Value> in) {
    return std::vector<Value>{problem.Build({in[0], in[1], in[0].graph()->Constant(positions), in[2], in[3]})};
  };
  test.reference = [=, whole = test.reference](const std::vector<Doubles>& in) {
    return whole({in[0], in[1], testing::ToDoubles(positions), in[2], in[3]});
  };
  testing::CheckGradients(test);
}

TEST_CASE("The gradient of a table that is also multiplied with is one dense sum, written over the product's") {
  const Problem problem = {16, 0.3, false};
  const auto build = [&](absl::Span<const Value> in) {
    const Value y = problem.Build(in);
    return Gradients(MatMul(y, in[0], {.transpose_b = true}), {in[0]});
  };
  std::vector<TensorType> types;
  for (const Tensor& t : problem.Inputs()) types.push_back(t.type());
  const std::vector<OpName> ops = testing::CompiledOps(types, build);
  CHECK(std::count(ops.begin(), ops.end(), op::AddRows) == 1);
  CHECK(std::count(ops.begin(), ops.end(), op::IndexedSlices) == 0);
  const int threads = NumThreads();
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 3}) {
    SetNumThreads(n);
    const Tensor out = testing::RunOnCpu(problem.Inputs(), build)[0];
    results.emplace_back(out.flat<float>().begin(), out.flat<float>().end());
  }
  SetNumThreads(threads);
  CHECK(results[1] == results[0]);
  CHECK(results[2] == results[0]);
}

TEST_CASE("An id outside the table and a sequence longer than the positions are errors") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Problem problem = {4, 0.3, false};
  const auto run = [&](std::vector<Tensor> inputs) {
    Graph graph;
    GraphRoots roots;
    for (size_t i = 0; i < inputs.size(); ++i) {
      roots.feeds.push_back(graph.Input("input" + std::to_string(i), inputs[i].type()));
    }
    roots.fetches = {problem.Build(roots.feeds)};
    const std::unique_ptr<Device> device = MakeDevice(kind).value();
    return std::string(Evaluate(graph, roots, inputs, *device).status().message());
  };
  std::vector<Tensor> inputs = problem.Inputs();
  inputs[1] = Tensor::Of<int32_t>({Problem::kRows}, {3, 0, 3, 5, 1, 3, 0, 0});
  CHECK_THAT(run(inputs), Catch::Contains("id 5") && Catch::Contains("is outside [0, 5)"));
  inputs = problem.Inputs();
  inputs[2] = testing::RandomTensor({2, 4}, 2);
  CHECK_THAT(run(inputs), Catch::Contains("has 3 tokens, the positions 2 rows"));
}

}  // namespace
}  // namespace official::compute
