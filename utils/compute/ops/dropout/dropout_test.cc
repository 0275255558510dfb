#include "utils/compute/ops/dropout/dropout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "utils/compute/core/random.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
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
      .op = op::Dropout,
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

constexpr int64_t kFirstSequence = (int64_t{1} << 32) + 3;

Tensor DropPacked(const std::string& kind, const Tensor& x, std::vector<int32_t> offsets, int64_t first_sequence,
                  double rate = 0.4) {
  const Tensor offsets_tensor = Tensor::Of<int32_t>({static_cast<int64_t>(offsets.size())}, offsets);
  return testing::RunOn(kind, {x, offsets_tensor, State(42, 9, first_sequence)}, [&](absl::Span<const Value> in) {
    return std::vector<Value>{PackedDropout(in[0], in[1], rate, in[2], "dropout")};
  })[0];
}

// Sequences of 2, 0 and 3 tokens, and a row of padding. Column c of a token takes word c / 16 % 4 of the draw
// c / 64 * 16 + c % 16 at its position, under the key that is drawn for the sequence.
TEST_CASE("The mask of packed sequences is Philox's") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const int64_t columns = 300;
  const std::vector<float> y = Values(DropPacked(kind, OnesTensor({6, columns}), {0, 2, 2, 5}, kFirstSequence));
  const auto stream = static_cast<uint32_t>(StreamOf("dropout", 7));
  const int sequence_of[] = {0, 0, 2, 2, 2}, position_of[] = {0, 1, 0, 1, 2};
  for (int64_t row = 0; row < 5; ++row) {
    const auto example = static_cast<uint64_t>(kFirstSequence + sequence_of[row]);
    const Philox4 key = Philox(42, {static_cast<uint32_t>(example), static_cast<uint32_t>(example >> 32), stream, 9});
    for (int64_t c = 0; c < columns; ++c) {
      const Philox4 draw =
          Philox(key[0] | uint64_t{key[1]} << 32,
                 {static_cast<uint32_t>(c / 64 * 16 + c % 16), static_cast<uint32_t>(position_of[row]), 0, key[2]});
      const float want = draw[c / 16 % 4] >= 0.4 * 0x1p32 ? static_cast<float>(1 / 0.6) : 0.0f;
      if (y[row * columns + c] != want) FAIL_CHECK("row " << row << " column " << c);
    }
  }
  for (int64_t c = 0; c < columns; ++c) CHECK(y[5 * columns + c] == 0);
}

TEST_CASE("Two half batches of packed sequences draw what the whole batch draws, whatever their rows") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::vector<float> y = Values(DropPacked(kind, OnesTensor({7, 50}), {0, 3, 4, 7}, 5));
  std::vector<float> halves = Values(DropPacked(kind, OnesTensor({3, 50}), {0, 3}, 5));
  const std::vector<float> rest = Values(DropPacked(kind, OnesTensor({4, 50}), {0, 1, 4}, 6));
  halves.insert(halves.end(), rest.begin(), rest.end());
  CHECK(y == halves);
}

TEST_CASE("PackedDropout, values and gradients; padding is not read") {
  const double rate = GENERATE(0.0, 0.4);
  const Tensor state = State(42, 9, 7), offsets = Tensor::Of<int32_t>({4}, {0, 2, 2, 5});
  const std::vector<float> mask = Values(DropPacked("cpu", OnesTensor({6, 20}), {0, 2, 2, 5}, 7, rate));
  Tensor x = testing::RandomTensor({6, 20}, 1, -2, 2);
  std::fill_n(x.data<float>() + 5 * 20, 20, std::numeric_limits<float>::quiet_NaN());
  const testing::OpCase test{
      .op = op::PackedDropout,
      .inputs = {x, offsets, state},
      .build =
          [&](absl::Span<const Value> in) {
            return std::vector<Value>{PackedDropout(in[0], in[1], rate, in[2], "dropout")};
          },
      .reference =
          [&](const std::vector<testing::Doubles>& in) {
            testing::Doubles y(in[0].size());
            for (size_t i = 0; i < 5 * 20; ++i) y[i] = in[0][i] * mask[i];
            return std::vector<testing::Doubles>{y};
          },
  };
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

// `drop` adds a dropout of a value; its inputs are those of the step, behind x and dy, and its name.
void CheckBehindRelu(OpName op, const std::vector<Tensor>& more,
                     const std::function<Value(Value, absl::Span<const Value>, absl::string_view)>& drop) {
  const Tensor x = testing::RandomTensor({70, 40}, 1), dy = testing::RandomTensor({70, 40}, 2);
  const auto gradient = [&](absl::Span<const Value> in, absl::string_view backward_name) {
    const Value y = Relu(in[0]), seed = Cast(in[1], in[0].dtype());
    const Value d_y = drop(seed, in.subspan(2), backward_name);
    return std::vector<Value>{drop(y, in.subspan(2), "a"), Apply(op::ReluGrad, {d_y, y})};
  };
  for (const DType dtype : StorageTypes()) {
    CAPTURE(DTypeName(dtype));
    std::vector<Tensor> inputs = {x.CastTo(dtype), dy};
    inputs.insert(inputs.end(), more.begin(), more.end());
    const auto same = [&](absl::Span<const Value> in) { return gradient(in, "a"); };
    for (const std::string& kind : testing::KindsUnderTest()) {
      CHECK(testing::ToDoubles(testing::RunOn(kind, inputs, same)[1]) ==
            testing::ToDoubles(testing::RunOn(kind, inputs, same, {.fuse = false})[1]));
    }
    std::vector<TensorType> types;
    for (const Tensor& input : inputs) types.push_back(input.type());
    const std::vector<OpName> ops = testing::CompiledOps(types, same);
    CHECK(std::count(ops.begin(), ops.end(), op) == 1);
    // Other elements are dropped: both must draw.
    const std::vector<OpName> others =
        testing::CompiledOps(types, [&](absl::Span<const Value> in) { return gradient(in, "b"); });
    CHECK(std::count(others.begin(), others.end(), op) == 2);
  }
}

TEST_CASE("Behind a ReLU the backward pass of dropout draws nothing") {
  CheckBehindRelu(op::Dropout, {State(1, 2, 3)}, [](Value x, absl::Span<const Value> in, absl::string_view name) {
    return Dropout(x, 0.3, in[0], name);
  });
}

TEST_CASE("Behind a ReLU the backward pass of packed dropout draws nothing") {
  CheckBehindRelu(op::PackedDropout, {Tensor::Of<int32_t>({3}, {0, 30, 66}), State(1, 2, 3)},
                  [](Value x, absl::Span<const Value> in, absl::string_view name) {
                    return PackedDropout(x, in[0], 0.3, in[1], name);
                  });
}

TEST_CASE("Row offsets that do not ascend from 0 or go beyond the rows are errors") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {4, 2}}), offsets = graph.Input("o", {DType::kInt32, {3}});
  const Value state = RandomState(graph);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  const GraphRoots roots = {{x, offsets, state}, {PackedDropout(x, offsets, 0.4, state, "d")}, {}};
  const std::unique_ptr<Program> program = Program::Compile(graph, roots, *device, variables).value();
  for (const std::vector<int32_t>& bad : std::vector<std::vector<int32_t>>{{1, 2, 3}, {0, 3, 2}, {0, 2, 5}}) {
    const absl::Status status =
        testing::RunAndWait(*program, {OnesTensor({4, 2}), Tensor::Of<int32_t>({3}, bad), State(1, 2, 3)}, *device);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains("row offset"));
  }
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
