#include "utils/compute/ops/dropout/dropout.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "utils/compute/core/random.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/graph/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

Tensor State(int64_t seed, int64_t step, int64_t first_example) {
  return Tensor::Of<int64_t>({3}, {seed, step, first_example});
}

Tensor Drop(const std::string& kind, const Tensor& x, const Tensor& state, double rate = 0.4,
            const char* name = "dropout") {
  return testing::RunOn(kind, {x, state}, [&](absl::Span<const Value> in) {
    return std::vector<Value>{Dropout(in[0], rate, in[1], name)};
  })[0];
}

Tensor OnesTensor(Shape shape) {
  Tensor ones(DType::kFloat32, std::move(shape));
  std::fill_n(ones.data<float>(), ones.num_elements(), 1.0f);
  return ones;
}

std::vector<float> Values(const Tensor& t) { return {t.flat<float>().begin(), t.flat<float>().end()}; }

TEST_CASE("Dropout keeps a share of 1 - rate and scales it by 1 / (1 - rate)") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::vector<float> y = Values(Drop(kind, OnesTensor({100, 1024}), State(1, 0, 0)));
  const auto kept = std::count_if(y.begin(), y.end(), [](float v) { return v != 0; });
  CHECK(kept / 102400.0 == Approx(0.6).margin(0.006));  // four standard deviations
  CHECK(std::all_of(y.begin(), y.end(), [](float v) { return v == 0 || v == Approx(1 / 0.6); }));
}

// Element i of example e is number n = e * 77 + i; it is kept if word n % 4 of Philox draw n / 4 is at least 0.4 *
// 2^32.
TEST_CASE("The mask is Philox's") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const int64_t first_example = int64_t{3} << 32;  // an epoch or more later: the draw's number has more than 32 bits
  const std::vector<float> y = Values(Drop(kind, OnesTensor({5, 77}), State(42, 9, first_example)));
  const auto stream = static_cast<uint32_t>(StreamOf("dropout", 7));
  for (int64_t i = 0; i < 5 * 77; ++i) {
    const uint64_t n = static_cast<uint64_t>(first_example * 77 + i);
    const Philox4 words = Philox(42, {static_cast<uint32_t>(n / 4), static_cast<uint32_t>(n / 4 >> 32), stream, 9});
    CHECK((y[i] != 0) == (words[n % 4] >= 0.4 * 0x1p32));
  }
}

TEST_CASE("The mask depends on seed, step and name") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = OnesTensor({4, 33});
  const std::vector<float> y = Values(Drop(kind, x, State(1, 0, 0)));
  CHECK(y == Values(Drop(kind, x, State(1, 0, 0))));
  CHECK(y != Values(Drop(kind, x, State(2, 0, 0))));
  CHECK(y != Values(Drop(kind, x, State(1, 1, 0))));
  CHECK(y != Values(Drop(kind, x, State(1, 0, 0), 0.4, "other")));
}

TEST_CASE("Two half batches draw what the whole batch draws") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor whole = OnesTensor({6, 77});
  const std::vector<float> y = Values(Drop(kind, whole, State(5, 9, 0)));
  std::vector<float> halves = Values(Drop(kind, OnesTensor({2, 77}), State(5, 9, 0)));
  const std::vector<float> rest = Values(Drop(kind, OnesTensor({4, 77}), State(5, 9, 2)));
  halves.insert(halves.end(), rest.begin(), rest.end());
  CHECK(y == halves);
}

TEST_CASE("The mask is the same for any number of threads") {
  const Tensor x = OnesTensor({100, 1024});
  const int threads = NumThreads();
  const std::vector<float> y = Values(Drop("cpu", x, State(1, 0, 0)));
  SetNumThreads(1);
  CHECK(y == Values(Drop("cpu", x, State(1, 0, 0))));
  SetNumThreads(threads);
}

// The mask, seen on an input of ones, is the factor of every input and every gradient, in all types.
TEST_CASE("Dropout, values and gradients") {
  const Tensor state = State(3, 4, 7);
  const std::vector<float> mask = Values(Drop("cpu", OnesTensor({3, 5, 20}), state));
  const testing::OpCase test{
      .op = "Dropout",
      .inputs = {testing::RandomTensor({3, 5, 20}, 1, -2, 2)},
      .build =
          [&](absl::Span<const Value> in) {
            return std::vector<Value>{Dropout(in[0], 0.4, in[0].graph()->Constant(state), "dropout")};
          },
      .reference =
          [&](const std::vector<testing::Doubles>& in) {
            testing::Doubles y = in[0];
            for (size_t i = 0; i < y.size(); ++i) y[i] *= mask[i];
            return std::vector<testing::Doubles>{y};
          },
  };
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("The gradient has the mask of the forward pass") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {3, 50}});
  const Value state = RandomState(graph);
  const Value y = Dropout(x, 0.4, state, "dropout");
  const Value dx = Gradients(y, {x})[0];
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  const std::vector<Tensor> out =
      Evaluate(graph, {{x, state}, {y, dx}, {}}, {OnesTensor({3, 50}), State(3, 4, 0)}, *device).value();
  CHECK(Values(out[0]) == Values(out[1]));
}

TEST_CASE("Rate 0 is the input, a rate of 1 is refused") {
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {3, 5}});
  CHECK(Dropout(x, 0, RandomState(graph), "d") == x);
  CHECK(!Dropout(x, 1, RandomState(graph), "d"));
  CHECK_THAT(std::string(graph.status().message()), Catch::Contains("rate in [0, 1), got 1"));
}

}  // namespace
}  // namespace official::compute
