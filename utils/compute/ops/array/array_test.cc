#include "utils/compute/ops/array/array.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;
using testing::RandomTensor;
using testing::RunOn;

// 0, 1, 2, ...
Tensor Numbered(Shape shape, DType dtype = DType::kFloat32) {
  Tensor x(DType::kInt64, std::move(shape));
  std::iota(x.data<int64_t>(), x.data<int64_t>() + x.num_elements(), 0);
  return x.CastTo(dtype);
}

std::string BuildError(const std::vector<TensorType>& inputs,
                       const std::function<Value(absl::Span<const Value>)>& build) {
  return std::string(testing::BuildStatus(inputs, [&](absl::Span<const Value> in) {
                       return std::vector<Value>{build(in)};
                     }).message());
}

// An op that only moves elements: element i of the result is element source(i) of input 0, or 0 if that is negative.
OpCase MoveCase(OpName op, const Shape& input, int64_t outputs, std::function<Value(Value)> build,
                std::function<int64_t(int64_t)> source) {
  return {.op = op,
          .inputs = {RandomTensor(input, 3)},
          .build = [=](absl::Span<const Value> in) { return std::vector<Value>{build(in[0])}; },
          .reference =
              [=](const std::vector<Doubles>& in) {
                Doubles y;
                for (int64_t i = 0; i < outputs; ++i) y.push_back(source(i) < 0 ? 0 : in[0][source(i)]);
                return std::vector<Doubles>{y};
              }};
}

TEST_CASE("Reshape, ExpandDims and Squeeze keep the elements") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = Numbered({2, 3, 1});
  const std::vector<Tensor> y = RunOn(kind, {x}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Reshape(in[0], {3, -1}), ExpandDims(in[0], -1), ExpandDims(in[0], 1),
                              Squeeze(in[0], -1),      Reshape(in[0], {6}),   Gradients(Reshape(in[0], {6}), in)[0]};
  });
  CHECK(y[0].shape() == Shape{3, 2});
  CHECK(y[1].shape() == Shape{2, 3, 1, 1});
  CHECK(y[2].shape() == Shape{2, 1, 3, 1});
  CHECK(y[3].shape() == Shape{2, 3});
  CHECK(testing::ToDoubles(y[4]) == Doubles{0, 1, 2, 3, 4, 5});
  CHECK(testing::ToDoubles(y[5]) == Doubles{1, 1, 1, 1, 1, 1});
  CHECK(y[5].shape() == x.shape());
  const TensorType f = {DType::kFloat32, {2, 3}};
  CHECK(BuildError({f}, [](auto in) { return Reshape(in[0], {4}); }) ==
        "Reshape: cannot give 6 elements the shape [4]; inputs are float32[2,3]");
  CHECK(BuildError({f}, [](auto in) {
          return Reshape(in[0], {4, -1});
        }) == "Reshape: cannot give 6 elements the shape [4,-1]; inputs are float32[2,3]");
  CHECK(BuildError({f}, [](auto in) {
          return Reshape(in[0], {-1, -1});
        }) == "Reshape: cannot give 6 elements the shape [-1,-1]; inputs are float32[2,3]");
  CHECK(BuildError({f}, [](auto in) { return Squeeze(in[0], 1); }) ==
        "Squeeze: dimension 1 of float32[2,3] is not of size 1");
  CHECK(BuildError({f}, [](auto in) { return ExpandDims(in[0], 3); }) ==
        "ExpandDims: no place 3 among the dimensions of float32[2,3]");
}

TEST_CASE("Transpose, values and gradients") {
  struct Permutation {
    Shape shape;
    std::vector<int64_t> perm;
  };
  const Permutation test = GENERATE(values<Permutation>({
      {{}, {}},
      {{5}, {0}},
      {{3, 5}, {1, 0}},
      {{3, 5}, {0, 1}},
      {{1, 5, 1}, {2, 1, 0}},
      {{2, 3, 4}, {1, 0, 2}},
      {{2, 3, 4}, {2, 1, 0}},
      {{2, 3, 4, 5}, {0, 3, 1, 2}},
      {{2, 3, 4, 5}, {0, 2, 3, 1}},
      {{2, 3, 4, 5}, {3, 1, 2, 0}},
      {{2, 3, 4, 5}, {2, 0, 3, 1}},
      {{2, 9, 2, 17}, {0, 3, 2, 1}},
      {{0, 3}, {1, 0}},
  }));
  const int rank = test.shape.rank();
  std::vector<int64_t> dims;
  for (const int64_t p : test.perm) dims.push_back(test.shape.dim(static_cast<int>(p)));
  const Shape output(dims);
  const OpCase c = MoveCase(
      op::Transpose, test.shape, output.num_elements(), [&](Value x) { return Transpose(x, test.perm); },
      [&](int64_t i) {
        int64_t source = 0;
        for (int d = 0; d < rank; ++d) {
          const int in = static_cast<int>(test.perm[d]);
          source += i / output.Product(d + 1, rank) % output.dim(d) * test.shape.Product(in + 1, rank);
        }
        return source;
      });
  testing::CheckForward(c);
  testing::CheckGradients(c);
}

TEST_CASE("Transpose of every element size, in several blocks") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(DType::kUInt8, DType::kBFloat16, DType::kInt32, DType::kInt64);
  const Tensor x = testing::RandomInts({3, 70, 45}, 4, 200).CastTo(dtype);
  const Tensor y = RunOn(kind, {x}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Transpose(in[0], {0, 2, 1})};
  })[0];
  const Doubles from = testing::ToDoubles(x), to = testing::ToDoubles(y);
  bool equal = true;
  for (int n = 0; n < 3; ++n) {
    for (int r = 0; r < 70; ++r) {
      for (int c = 0; c < 45; ++c) equal &= to[(n * 45 + c) * 70 + r] == from[(n * 70 + r) * 45 + c];
    }
  }
  CHECK(equal);
}

TEST_CASE("Slice and Pad, values and gradients") {
  // Rows 1 and 2, columns 1 to 3 of [4, 5, 2]; and the same box put back.
  const OpCase slice = MoveCase(
      op::Slice, {4, 5, 2}, 12,
      [](Value x) {
        return Slice(x, {1, 1, 0}, {2, 3, 2});
      },
      [](int64_t i) { return (1 + i / 6) * 10 + 2 + i % 6; });
  testing::CheckForward(slice);
  testing::CheckGradients(slice);
  const OpCase pad = MoveCase(
      op::Pad, {2, 3, 2}, 40,
      [](Value x) {
        return Pad(x, {1, 1, 1, 1, 0, 0});
      },
      [](int64_t i) -> int64_t {
        const int64_t row = i / 10 - 1, column = i / 2 % 5 - 1;
        return row < 0 || row > 1 || column < 0 || column > 2 ? -1 : row * 6 + column * 2 + i % 2;
      });
  testing::CheckForward(pad);
  testing::CheckGradients(pad);
  const OpCase last = MoveCase(
      op::Slice, {300, 7}, 300,
      [](Value x) {
        return Slice(x, {0, 6}, {300, 1});
      },
      [](int64_t i) { return i * 7 + 6; });
  testing::CheckForward(last);
  const OpCase nothing = MoveCase(
      op::Slice, {4, 5}, 0,
      [](Value x) {
        return Slice(x, {4, 0}, {0, 5});
      },
      [](int64_t) { return 0; });
  testing::CheckForward(nothing);
  const TensorType f = {DType::kFloat32, {2, 3}};
  CHECK(BuildError({f}, [](auto in) {
          return Slice(in[0], {0, 2}, {2, 2});
        }) == "Slice: begin 2 and size 2 are outside dimension 1; inputs are float32[2,3]");
  CHECK(BuildError({f}, [](auto in) { return Slice(in[0], {0}, {2}); }) ==
        "Slice: needs a begin and a size for each dimension; inputs are float32[2,3]");
  CHECK(BuildError({f}, [](auto in) {
          return Pad(in[0], {1, 1, -1, 0});
        }) == "Pad: needs two paddings of at least 0 for each dimension; inputs are float32[2,3]");
}

// paddings[2 * i] zeros before and paddings[2 * i + 1] after dimension i.
OpCase PadCase(const Shape& input, const std::vector<int64_t>& paddings) {
  std::vector<int64_t> dims;
  for (int d = 0; d < input.rank(); ++d) dims.push_back(paddings[2 * d] + input.dim(d) + paddings[2 * d + 1]);
  const Shape output(dims);
  return MoveCase(
      op::Pad, input, output.num_elements(), [=](Value x) { return Pad(x, paddings); },
      [=](int64_t i) {
        int64_t source = 0;
        for (int d = 0; d < input.rank(); ++d) {
          const int64_t at = i / output.Product(d + 1, output.rank()) % output.dim(d) - paddings[2 * d];
          if (at < 0 || at >= input.dim(d)) return int64_t{-1};
          source = source * input.dim(d) + at;
        }
        return source;
      });
}

// GPUs move words of 2 to 16 bytes, by what all sizes and paddings have in common.
TEST_CASE("Pad and its gradient move images of any number of channels") {
  const int64_t channels = GENERATE(1, 3, 8, 12, 16);
  const std::vector<int64_t> paddings = GENERATE(values<std::vector<int64_t>>({
      {0, 0, 1, 2, 3, 0, 0, 0},   // around images
      {0, 0, 0, 1, 0, 1, 0, 0},   // behind them only
      {1, 0, 0, 0, 0, 0, 0, 0},   // a whole image
      {0, 0, 0, 0, 0, 0, 3, 2},   // channels that make the others' places odd
      {0, 1, 2, 0, 0, 3, 8, 16},  // all dimensions
      {0, 0, 0, 0, 0, 0, 0, 0},
  }));
  CAPTURE(channels, Shape(paddings));
  const OpCase pad = PadCase({2, 3, 5, channels}, paddings);
  testing::CheckForward(pad);
  testing::CheckGradients(pad);
}

TEST_CASE("Pad of sizes that are 0 or 1, of one dimension, and in several blocks") {
  testing::CheckForward(PadCase({5}, {8, 3}));
  testing::CheckForward(PadCase({4}, {4, 1}));
  testing::CheckForward(PadCase({4, 1, 8}, {0, 1, 2, 1, 8, 0}));
  testing::CheckForward(PadCase({1, 3, 1, 4}, {2, 0, 1, 1, 1, 2, 4, 4}));
  testing::CheckForward(PadCase({3, 0, 4}, {0, 0, 2, 1, 1, 0}));
  testing::CheckForward(PadCase({0, 4}, {1, 0, 2, 1}));
  testing::CheckForward(PadCase({0, 4}, {0, 0, 2, 1}));
  testing::CheckForward(PadCase({3, 37, 45, 3}, {0, 0, 1, 1, 2, 1, 0, 0}));
  testing::CheckForward(PadCase({3, 37, 45, 8}, {0, 0, 1, 1, 2, 1, 0, 0}));
}

TEST_CASE("Concat, values and gradients") {
  const int axis = GENERATE(0, 1, -1);
  const Shape a = axis == 0 ? Shape{2, 3, 4} : axis == 1 ? Shape{2, 1, 4} : Shape{2, 3, 1};
  const Shape b = {2, 3, 4}, c = axis == 0 ? Shape{0, 3, 4} : axis == 1 ? Shape{2, 5, 4} : Shape{2, 3, 17};
  const OpCase test{.op = op::Concat,
                    .inputs = {RandomTensor(a, 1), RandomTensor(b, 2), RandomTensor(c, 3)},
                    .build = [=](absl::Span<const Value> in) { return std::vector<Value>{Concat(in, axis)}; },
                    .reference =
                        [=](const std::vector<Doubles>& in) {
                          const int at = axis < 0 ? 2 : axis;
                          Doubles y;
                          for (int64_t outer = 0; outer < b.Product(0, at); ++outer) {
                            const Shape shapes[] = {a, b, c};
                            for (int k = 0; k < 3; ++k) {
                              const int64_t run = shapes[k].Product(at, 3);
                              y.insert(y.end(), in[k].begin() + outer * run, in[k].begin() + (outer + 1) * run);
                            }
                          }
                          return std::vector<Doubles>{y};
                        }};
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("Concat refuses inputs that do not fit") {
  const TensorType f = {DType::kFloat32, {2, 3}}, g = {DType::kFloat32, {2, 4}}, i = {DType::kInt32, {2, 3}};
  CHECK(BuildError({f, g}, [](auto in) { return Concat(in, 0); }) ==
        "Concat: needs inputs that differ in dimension 0 only; inputs are float32[2,3], float32[2,4]");
  CHECK(BuildError({f, i}, [](auto in) { return Concat(in, 0); }) ==
        "Concat: needs inputs of one type; inputs are float32[2,3], int32[2,3]");
  CHECK(BuildError({f, f}, [](auto in) { return Concat(in, 2); }) ==
        "Concat: has no axis 2; inputs are float32[2,3], float32[2,3]");
}

TEST_CASE("Stack and Unstack are inverse") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = Numbered({2, 3});
  const std::vector<Tensor> y = RunOn(kind, {x}, [](absl::Span<const Value> in) {
    const std::vector<Value> columns = Unstack(in[0], 1);
    return std::vector<Value>{columns[2], Stack(columns, 1), Stack(columns, 0)};
  });
  CHECK(testing::ToDoubles(y[0]) == Doubles{2, 5});
  CHECK(y[1].shape() == Shape{2, 3});
  CHECK(testing::ToDoubles(y[1]) == testing::ToDoubles(x));
  CHECK(y[2].shape() == Shape{3, 2});
  CHECK(testing::ToDoubles(y[2]) == Doubles{0, 3, 1, 4, 2, 5});
  CHECK(BuildError({{DType::kFloat32, {2}}}, [](auto in) {
          Unstack(in[0], 1);
          return Value();
        }) == "Unstack: float32[2] has no axis 1");
}

// An array of 4-byte elements is one of bytes with a dimension of size 4 more.
TEST_CASE("Elements of every type move as their bytes do") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt32,
                               DType::kInt64, DType::kUInt8, DType::kBool);
  const int64_t size = SizeOf(dtype);
  const Tensor bytes = testing::RandomInts({3, 4, size}, 1, 2).CastTo(DType::kUInt8);
  const Tensor elements({dtype, {3, 4}}, bytes.raw_data());
  const auto moves = [&](absl::Span<const Value> in) {
    // What is said of the dimension of the bytes.
    const auto with = [&](std::vector<int64_t> dims, std::vector<int64_t> more) {
      if (in[0].shape().rank() == 3) dims.insert(dims.end(), more.begin(), more.end());
      return dims;
    };
    const Value rows = in[0].graph()->Constant(Tensor::Of<int32_t>({2}, {2, 0}));
    return std::vector<Value>{Transpose(in[0], with({1, 0}, {2})),
                              Slice(in[0], with({1, 1}, {0}), with({2, 3}, {size})),
                              Pad(in[0], with({1, 0, 0, 2}, {0, 0})), Concat({in[0], in[0]}, 1), Gather(in[0], rows)};
  };
  const std::vector<Tensor> got = RunOn(kind, {elements}, moves), want = RunOn(kind, {bytes}, moves);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(DTypeName(dtype) << ", move " << i);
    REQUIRE(got[i].num_bytes() == want[i].num_bytes());
    CHECK(std::memcmp(got[i].raw_data(), want[i].raw_data(), got[i].num_bytes()) == 0);
  }
}

TEST_CASE("FirstRows are the first elements, of any value") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = testing::RandomTensor({4, 2, 3}, 1);
  const std::vector<Tensor> rows = RunOn(kind, {x}, [](absl::Span<const Value> in) {
    const Value moved = Transpose(Transpose(in[0], {1, 0, 2}), {1, 0, 2});
    return std::vector<Value>{FirstRows(in[0], 3), FirstRows(moved, 4), FirstRows(FirstRows(moved, 3), 1),
                              FirstRows(in[0], 0)};
  });
  REQUIRE(rows[0].shape() == Shape{3, 2, 3});
  REQUIRE(rows[1].shape() == Shape{4, 2, 3});
  REQUIRE(rows[2].shape() == Shape{1, 2, 3});
  CHECK(rows[3].shape() == Shape{0, 2, 3});
  CHECK(std::memcmp(rows[0].raw_data(), x.raw_data(), rows[0].num_bytes()) == 0);
  for (int i = 0; i < 24; ++i) CHECK(rows[1].data<float>()[i] == x.data<float>()[i]);
  CHECK(std::memcmp(rows[2].raw_data(), x.raw_data(), rows[2].num_bytes()) == 0);
  CHECK(BuildError({{DType::kFloat32, {4, 2}}}, [](auto in) { return FirstRows(in[0], 5); }) ==
        "FirstRows: cannot take 5 of 4 rows; inputs are float32[4,2]");
}

TEST_CASE("ZerosLike") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = RunOn(kind, {Numbered({2, 3}, DType::kInt64)},
                         [](absl::Span<const Value> in) { return std::vector<Value>{ZerosLike(in[0])}; })[0];
  CHECK(y.type() == TensorType{DType::kInt64, {2, 3}});
  CHECK(testing::ToDoubles(y) == Doubles(6, 0));
}

}  // namespace
}  // namespace official::compute
