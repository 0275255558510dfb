#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <utility>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/array/moves.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;
using testing::RandomInts;
using testing::RandomTensor;
using testing::RunOn;

TEST_CASE("Gather, values and gradients") {
  const int64_t width = GENERATE(1, 5, 64);
  const OpCase test{.op = op::Gather,
                    .inputs = {RandomTensor({6, width}, 1), RandomInts({3, 4}, 2, 6)},
                    .build = [](absl::Span<const Value> in) { return std::vector<Value>{Gather(in[0], in[1])}; },
                    .reference =
                        [=](const std::vector<Doubles>& in) {
                          Doubles y;
                          for (const double index : in[1]) {
                            for (int64_t j = 0; j < width; ++j)
                              y.push_back(in[0][static_cast<int64_t>(index) * width + j]);
                          }
                          return std::vector<Doubles>{y};
                        }};
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("Gather of scalars, of integers and of nothing") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::vector<Tensor> y =
      RunOn(kind, {Tensor::Of<int64_t>({3}, {10, 20, 30}), Tensor::Of<int32_t>({}, {2}), Tensor(DType::kInt32, {0})},
            [](absl::Span<const Value> in) {
              return std::vector<Value>{Gather(in[0], in[1]), Gather(in[0], in[2])};
            });
  CHECK(y[0].scalar<int64_t>() == 30);
  CHECK(y[1].shape() == Shape{0});
}

TEST_CASE("Gather of rows of any type") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(from_range(AllTypes()));
  CAPTURE(dtype);
  const Tensor x = RandomInts({5, 3}, 1, 2).CastTo(dtype);
  const Tensor y = RunOn(kind, {x, Tensor::Of<int32_t>({3}, {4, 1, 4})},
                         [](absl::Span<const Value> in) { return std::vector<Value>{Gather(in[0], in[1])}; })[0];
  CHECK(y.type() == TensorType{dtype, {3, 3}});
  const Doubles rows = testing::ToDoubles(x);
  Doubles want;
  for (const int row : {4, 1, 4}) want.insert(want.end(), rows.begin() + 3 * row, rows.begin() + 3 * row + 3);
  CHECK(testing::ToDoubles(y) == want);
}

OpCase IndexedSlicesCase(int64_t n, int64_t rows, int64_t width) {
  return {.op = op::IndexedSlices,
          .inputs = {RandomInts({n}, 3, static_cast<int>(rows)), RandomTensor({n, width}, 4)},
          .build =
              [=](absl::Span<const Value> in) {
                return std::vector<Value>{IndexedSlices(in[0], in[1], {rows, width})};
              },
          .reference =
              [=](const std::vector<Doubles>& in) {
                Doubles dense(rows * width, 0);
                for (int64_t i = 0; i < n * width; ++i) {
                  dense[static_cast<int64_t>(in[0][i / width]) * width + i % width] += in[1][i];
                }
                return std::vector<Doubles>{dense};
              }};
}

TEST_CASE("IndexedSlices, values and gradients") {
  testing::CheckForward(IndexedSlicesCase(9, 4, 3));
  testing::CheckGradients(IndexedSlicesCase(9, 4, 3));
  testing::CheckForward(IndexedSlicesCase(200, 300, 1500));
  testing::CheckForward(IndexedSlicesCase(1, 1, 1));
}

// 1 + 1/256 is lost in bfloat16, 1 + 1/2048 in half; a sum kept in these types would stay at 1.
TEST_CASE("IndexedSlices sums 16-bit rows in float") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto [dtype, tiny] = GENERATE(std::pair{DType::kBFloat16, 0x1p-8f}, std::pair{DType::kFloat16, 0x1p-11f});
  const Tensor rows = Tensor::Of<float>({5, 1}, {1, tiny, tiny, tiny, tiny}).CastTo(dtype);
  const Tensor y = RunOn(kind, {Tensor(DType::kInt32, {5}), rows}, [](absl::Span<const Value> in) {
    return std::vector<Value>{IndexedSlices(in[0], in[1], {2, 1})};
  })[0];
  CHECK(testing::ToDoubles(y) == Doubles{1 + 4.0 * tiny, 0});
}

TEST_CASE("IndexedSlices does not depend on the number of threads") {
  const OpCase test = IndexedSlicesCase(3000, 50, 40);
  const auto run = [&](int num_threads) {
    Graph graph;
    const Value indices = graph.Input("indices", test.inputs[0].type()),
                rows = graph.Input("rows", test.inputs[1].type());
    const auto device = MakeDevice("cpu", {.num_threads = num_threads}).value();
    return Evaluate(graph, {{indices, rows}, {IndexedSlices(indices, rows, {50, 40})}, {}}, test.inputs, *device)
        .value()[0];
  };
  const Tensor one = run(1), three = run(3);
  CHECK(std::memcmp(one.raw_data(), three.raw_data(), one.num_bytes()) == 0);
}

TEST_CASE("The gradients of several lookups in one table are one IndexedSlices") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Graph graph;
  const Value table = graph.Input("table", {DType::kFloat32, {4, 2}});
  const Value a = graph.Constant(Tensor::Of<int32_t>({2}, {1, 1})),
              b = graph.Constant(Tensor::Of<int32_t>({1, 2}, {3, 1}));
  const Value both = Concat({Gather(table, a), Reshape(Gather(table, b), {2, 2})}, 0);
  const Value gradient = Gradients(both, {table})[0];
  CHECK(gradient.node()->Is(op::IndexedSlices));
  CHECK(gradient.node()->input(0).shape() == Shape{4});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  const Tensor dense = Evaluate(graph, {{table}, {gradient}, {}}, {RandomTensor({4, 2}, 1)}, *device).value()[0];
  CHECK(testing::ToDoubles(dense) == Doubles{0, 0, 3, 3, 0, 0, 1, 1});
}

OpCase AddRowsCase(int64_t n, int64_t limit, int64_t width) {
  const OpCase slices = IndexedSlicesCase(n, limit, width);
  return {.op = op::AddRows,
          .inputs = {RandomTensor({limit, width}, 8), slices.inputs[0], slices.inputs[1]},
          .build = [](absl::Span<const Value> in) { return std::vector<Value>{AddRows(in[0], in[1], in[2])}; },
          .reference =
              [=](const std::vector<Doubles>& in) {
                std::vector<Doubles> sum = slices.reference({in[1], in[2]});
                for (size_t i = 0; i < sum[0].size(); ++i) sum[0][i] += in[0][i];
                return sum;
              }};
}

TEST_CASE("AddRows") {
  testing::CheckForward(AddRowsCase(9, 4, 3));
  testing::CheckForward(AddRowsCase(200, 300, 1500));
  testing::CheckForward(AddRowsCase(1, 1, 1));
  testing::CheckForward(AddRowsCase(0, 2, 3));
}

// An index that occurs often, beside others; all numbers are multiples of 1/16, whose sums are exact in any order.
TEST_CASE("IndexedSlices and AddRows of indices that occur often") {
  const int64_t times = GENERATE(1, 31, 32, 33, 5000), width = GENERATE(1, 37);
  INFO(times << " times");
  const auto with_often = [=](OpCase test, size_t indices) {
    int32_t* const at = test.inputs[indices].data<int32_t>();
    for (int64_t i = 0; i < times; ++i) at[2 * i] = 7;
    for (size_t i = 0; i < test.inputs.size(); ++i) {
      if (i == indices) continue;
      for (float& x : test.inputs[i].flat<float>()) x = std::round(x * 16) / 16;
    }
    return test;
  };
  testing::CheckForward(with_often(IndexedSlicesCase(2 * times + 70, 9, width), 0));
  testing::CheckForward(with_often(AddRowsCase(2 * times + 70, 9, width), 1));
}

TEST_CASE("Sums of 32 equal indices at a time miss and repeat no row") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  // Index i occurs times[i] times; the rows are integers, whose sums are exact in any order.
  const std::vector<int> times = {1, 31, 32, 33, 5000, 64, 65, 2, 97};
  std::vector<int32_t> indices;
  for (size_t i = 0; i < times.size(); ++i) indices.insert(indices.end(), times[i], static_cast<int32_t>(i));
  std::vector<float> rows;
  Doubles want(times.size(), 0);
  for (size_t i = 0; i < indices.size(); ++i) {
    std::swap(indices[i], indices[i * 7919 % (i + 1)]);
    rows.push_back(static_cast<float>(i % 101));
  }
  for (size_t i = 0; i < indices.size(); ++i) want[indices[i]] += rows[i];
  const auto n = static_cast<int64_t>(indices.size()), limit = static_cast<int64_t>(times.size());
  Tensor ids(DType::kInt32, {n}), values(DType::kFloat32, {n, 1});
  std::copy(indices.begin(), indices.end(), ids.data<int32_t>());
  std::copy(rows.begin(), rows.end(), values.data<float>());
  const std::vector<Tensor> y =
      RunOn(kind, {ids, values, Tensor(DType::kFloat32, {limit, 1})}, [=](absl::Span<const Value> in) {
        return std::vector<Value>{IndexedSlices(in[0], in[1], {limit, 1}), AddRows(in[2], in[0], in[1])};
      });
  CHECK(testing::ToDoubles(y[0]) == want);
  CHECK(testing::ToDoubles(y[1]) == want);
}

TEST_CASE("AddRows leaves an input that others read as it is, and writes over one that nobody reads") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::vector<Tensor> inputs = {Tensor::Of<float>({2, 1}, {1, 2}), Tensor::Of<int32_t>({1}, {1}),
                                      Tensor::Of<float>({1, 1}, {5})};
  for (const bool others : {false, true}) {
    const std::vector<Tensor> out = testing::RunOn(kind, inputs, [&](absl::Span<const Value> in) {
      const Value x = Neg(in[0]);
      std::vector<Value> values = {AddRows(x, in[1], in[2])};
      if (others) values.push_back(x);
      return values;
    });
    CHECK(testing::ToDoubles(out[0]) == Doubles{-1, 3});
    if (others) CHECK(testing::ToDoubles(out[1]) == Doubles{-1, -2});
  }
}

TEST_CASE("The gradient of a table that is looked up in and multiplied with is one dense sum") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Graph graph;
  const Value table = graph.Input("table", {DType::kFloat32, {4, 2}});
  const Value ids = graph.Constant(Tensor::Of<int32_t>({3}, {1, 3, 1}));
  const Value y = Concat({Gather(table, ids), Mul(table, table)}, 0);
  const Value gradient = Gradients(y, {table})[0];
  CHECK(gradient.node()->Is(op::AddRows));
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  const Tensor at = RandomTensor({4, 2}, 1);
  const Tensor dense = Evaluate(graph, {{table}, {gradient}, {}}, {at}, *device).value()[0];
  const int lookups[] = {0, 2, 0, 1};
  for (int i = 0; i < 8; ++i) CHECK(dense.data<float>()[i] == Approx(2 * at.data<float>()[i] + lookups[i / 2]));
}

absl::Status RunStatus(const std::string& kind, const std::vector<Tensor>& inputs,
                       const std::function<Value(absl::Span<const Value>)>& build) {
  Graph graph;
  GraphRoots roots;
  for (const Tensor& t : inputs) roots.feeds.push_back(graph.Input("x", t.type()));
  roots.fetches = {build(roots.feeds)};
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  return Evaluate(graph, roots, inputs, *device).status();
}

TEST_CASE("An index outside the table is an error that names it") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const int32_t bad = GENERATE(-1, 5, 70000);
  const Tensor table(DType::kFloat32, {5, 2}), indices = Tensor::Of<int32_t>({3}, {0, bad, 4});
  // A GPU does not know the position.
  const std::string text =
      "index " + std::to_string(bad) + (kind == kCudaKind ? "" : " at position 1") + " is outside [0, 5)";
  const absl::Status gather = RunStatus(kind, {table, indices}, [](auto in) { return Gather(in[0], in[1]); });
  CHECK(absl::IsInvalidArgument(gather));
  CHECK(gather.message() == "Gather: " + text);
  const absl::Status slices = RunStatus(kind, {indices, Tensor(DType::kFloat32, {3, 2})}, [](auto in) {
    return IndexedSlices(in[0], in[1], {5, 2});
  });
  CHECK(slices.message() == "IndexedSlices: " + text);
}

TEST_CASE("No rows of a table without any") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor y = RunOn(kind, {Tensor(DType::kFloat32, {0, 2}), Tensor(DType::kInt32, {0})},
                         [](absl::Span<const Value> in) { return std::vector<Value>{Gather(in[0], in[1])}; })[0];
  CHECK(y.type() == TensorType{DType::kFloat32, {0, 2}});
}

// As TensorFlow 2.15 gives.
TEST_CASE("OneHot") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(from_range(StorageTypes()));
  const Tensor y = RunOn(kind, {Tensor::Of<int32_t>({2, 2}, {0, 5, -1, 2})},
                         [&](absl::Span<const Value> in) { return std::vector<Value>{OneHot(in[0], 3, dtype)}; })[0];
  CHECK(y.type() == TensorType{dtype, {2, 2, 3}});
  CHECK(testing::ToDoubles(y) == Doubles{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  const Tensor wide = RunOn(kind, {Tensor::Of<int64_t>({2}, {1, int64_t{1} << 32})},
                            [&](absl::Span<const Value> in) { return std::vector<Value>{OneHot(in[0], 2, dtype)}; })[0];
  CHECK(testing::ToDoubles(wide) == Doubles{0, 1, 0, 0});
}

TEST_CASE("What does not fit is refused while building") {
  const auto message = [](const std::vector<TensorType>& inputs,
                          const std::function<Value(absl::Span<const Value>)>& f) {
    return std::string(
        testing::BuildStatus(inputs, [&](absl::Span<const Value> in) { return std::vector<Value>{f(in)}; }).message());
  };
  const TensorType f = {DType::kFloat32, {5, 2}}, i = {DType::kInt32, {3}}, l = {DType::kInt64, {3}};
  CHECK(message({f, l}, [](auto in) { return Gather(in[0], in[1]); }) ==
        "Gather: needs int32 indices; inputs are float32[5,2], int64[3]");
  CHECK(message({i, f},
                [](auto in) {
                  return IndexedSlices(in[0], in[1], {9, 2});
                }) ==
        "IndexedSlices: needs one float32, bfloat16 or half row of [9,2] for each index; inputs are int32[3], "
        "float32[5,2]");
  CHECK(message({f}, [](auto in) { return OneHot(in[0], 2); }) ==
        "OneHot: needs int32 or int64 indices; inputs are float32[5,2]");
  CHECK(message({i}, [](auto in) { return OneHot(in[0], 2, DType::kInt32); }) ==
        "OneHot: makes float32, bfloat16 or half; inputs are int32[3]");
}

}  // namespace
}  // namespace official::compute
