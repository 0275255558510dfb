#include "utils/compute/ops/matmul/dense.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

struct Layer {
  int64_t batch, in, out;
};

Tensor Small(Shape shape, uint64_t seed) { return testing::RandomTensor(std::move(shape), seed, -0.1, 0.1); }

std::vector<Tensor> InputsOf(const Layer& s) {
  return {Small({s.batch, s.in}, 1), Small({s.in, s.out}, 2), Small({s.out}, 3)};
}

std::vector<Value> Fused(absl::Span<const Value> in, const char* activation) {
  return {Apply(op::FusedMatMul, in,
                Attrs{{"transpose_a", false}, {"transpose_b", false}, {"activation", std::string(activation)}})};
}

using MakeDense = std::optional<Kernel>(const KernelSpec&, const MatMulGeometry&);

bool IsTakenBy(MakeDense* make, const TensorType& a, const TensorType& b, const MatMulParams& params, int parts) {
  Graph graph;
  graph.set_batch_parts(parts);
  const Value y = MatMul(graph.Input("a", a), graph.Input("b", b), params);
  REQUIRE(graph.status().ok());
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  const std::vector<Layout> layouts(2, Layout::kRowMajor);
  return make({*y.node(), *device, layouts, layouts}, MatMulGeometryOf(*y.node())).has_value();
}

bool IsTaken(const TensorType& a, const TensorType& b, const MatMulParams& params = {}) {
  return IsTakenBy(&MakeDenseForward, a, b, params, 4);
}

// Batches below, at and beyond a tile's rows; depths that do and do not end with a whole panel; panels that do not
// divide evenly among threads.
const std::vector<Layer> kLayers = {{1, 3072, 512}, {3, 1552, 1056}, {14, 3136, 1024}, {37, 2064, 800}};

TEST_CASE("Products with large weights are what loops compute") {
  for (const Layer& s : kLayers) {
    CAPTURE(s.batch, s.in, s.out);
    REQUIRE(IsTaken({DType::kFloat32, {s.batch, s.in}}, {DType::kFloat32, {s.in, s.out}}));
    const std::vector<Tensor> inputs = InputsOf(s);
    const Doubles x = testing::ToDoubles(inputs[0]), w = testing::ToDoubles(inputs[1]),
                  bias = testing::ToDoubles(inputs[2]);
    Doubles product(s.batch * s.out);
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t i = 0; i < s.in; ++i) {
        for (int64_t j = 0; j < s.out; ++j) product[n * s.out + j] += x[n * s.in + i] * w[i * s.out + j];
      }
    }
    const std::vector<Tensor> got = testing::RunOnCpu(inputs, [](absl::Span<const Value> in) {
      return std::vector<Value>{MatMul(in[0], in[1]), Fused(in, "")[0], Fused(in, "Relu")[0]};
    });
    for (int k = 0; k < 3; ++k) {
      const Doubles y = testing::ToDoubles(got[k]);
      double largest = 0;
      for (int64_t i = 0; i < s.batch * s.out; ++i) {
        const double sum = product[i] + (k > 0 ? bias[i % s.out] : 0);
        largest = std::max(largest, std::abs(y[i] - (k == 2 ? std::max(sum, 0.0) : sum)));
      }
      CAPTURE(k);
      CHECK(largest < 4e-6);  // of sums up to 2
    }
  }
}

TEST_CASE("Other products are left to oneDNN") {
  const DType f = DType::kFloat32;
  CHECK(IsTaken({f, {100, 3136}}, {f, {3136, 1024}}));
  CHECK_FALSE(IsTaken({f, {100, 1024}}, {f, {1024, 1024}}));                         // small weights
  CHECK_FALSE(IsTaken({f, {1024, 3136}}, {f, {3136, 1024}}));                        // a large batch
  CHECK_FALSE(IsTaken({f, {100, 3137}}, {f, {3137, 1024}}));                         // sizes that do not divide
  CHECK_FALSE(IsTaken({f, {100, 3136}}, {f, {3136, 1000}}));                         //
  CHECK_FALSE(IsTaken({f, {100, 1024}}, {f, {3136, 1024}}, {.transpose_b = true}));  // gradients
  CHECK_FALSE(IsTaken({f, {3136, 100}}, {f, {3136, 1024}}, {.transpose_a = true}));  //
  CHECK_FALSE(IsTaken({f, {2, 100, 2048}}, {f, {2, 2048, 1024}}));                   // several matrices
  // bfloat16, where oneDNN multiplies it.
  const DType b = DType::kBFloat16;
  CHECK(IsTaken({b, {100, 3136}}, {b, {3136, 1024}}) == !OnednnComputesIn(b));
  CHECK_FALSE(IsTaken({b, {100, 3136}}, {b, {3136, 1000}}));                         // sizes that do not divide
  CHECK_FALSE(IsTaken({b, {100, 120}}, {b, {120, 1024}}));                           //
  CHECK_FALSE(IsTaken({b, {100, 64}}, {b, {64, 512}}));                              // small weights
  CHECK_FALSE(IsTaken({b, {600, 3136}}, {b, {3136, 1024}}));                         // a large batch
  CHECK_FALSE(IsTaken({b, {3136, 100}}, {b, {3136, 1024}}, {.transpose_a = true}));  // gradients of weights
}

// The products of sums in float of bfloat16, rounded once.
TEST_CASE("Products of bfloat16 with weights of any size are what loops compute") {
  const bool transposed = GENERATE(false, true);
  // With transposed weights columns that do not fill a panel, too.
  const Layer s = transposed ? GENERATE(Layer{1, 128, 512}, Layer{14, 272, 1037}, Layer{37, 528, 777})
                             : GENERATE(Layer{1, 128, 512}, Layer{14, 272, 1056}, Layer{37, 3136, 544});
  CAPTURE(transposed, s.batch, s.in, s.out);
  const Tensor x = Small({s.batch, s.in}, 1).CastTo(DType::kBFloat16),
               bias = Small({s.out}, 3).CastTo(DType::kBFloat16);
  const Tensor weights = Small(transposed ? Shape({s.out, s.in}) : Shape({s.in, s.out}), 2).CastTo(DType::kBFloat16);
  const MatMulParams params = {.transpose_b = transposed};
  REQUIRE(IsTaken(x.type(), weights.type(), params) == !OnednnComputesIn(DType::kBFloat16));
  const std::vector<Tensor> got = testing::RunOnCpu({x, weights, bias}, [&](absl::Span<const Value> in) {
    const auto fused = [&](const char* activation) {
      return Apply(op::FusedMatMul, in,
                   Attrs{{"transpose_a", false}, {"transpose_b", transposed}, {"activation", std::string(activation)}});
    };
    return std::vector<Value>{MatMul(in[0], in[1], params), fused(""), fused("Relu")};
  });
  const Doubles xs = testing::ToDoubles(x), ws = testing::ToDoubles(weights), biases = testing::ToDoubles(bias);
  for (int k = 0; k < 3; ++k) {
    CAPTURE(k);
    const Doubles y = testing::ToDoubles(got[k]);
    double largest = 0;
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t j = 0; j < s.out; ++j) {
        double sum = k > 0 ? biases[j] : 0;
        for (int64_t i = 0; i < s.in; ++i) sum += xs[n * s.in + i] * ws[transposed ? j * s.in + i : i * s.out + j];
        if (k == 2) sum = std::max(sum, 0.0);
        largest = std::max(largest, std::abs(y[n * s.out + j] - sum) - std::abs(sum) / 256);
      }
    }
    CHECK(largest < 4e-6);
  }
}

Tensor RowsOf(const Tensor& t, Share rows) {
  const int64_t columns = t.shape().dim(1);
  return Tensor::Of<BFloat16>({rows.size(), columns},
                              {t.data<BFloat16>() + rows.begin * columns, static_cast<size_t>(rows.size() * columns)});
}

// As replicas and threads need it.
TEST_CASE("Products of bfloat16 depend neither on the other rows nor on the number of threads") {
  const bool transposed = GENERATE(false, true);
  const int64_t out = transposed ? 1037 : 1056;
  const Tensor x = Small({37, 272}, 1).CastTo(DType::kBFloat16);
  const Tensor weights = Small(transposed ? Shape({out, 272}) : Shape({272, out}), 2).CastTo(DType::kBFloat16);
  const auto product = [&](const Tensor& rows) {
    return testing::RunOnCpu({rows, weights}, [&](absl::Span<const Value> in) {
      return std::vector<Value>{MatMul(in[0], in[1], {.transpose_b = transposed})};
    })[0];
  };
  const int before = NumThreads();
  const Doubles whole = testing::ToDoubles(product(x));
  for (const int threads : {1, 2, 3, 4}) {
    SetNumThreads(threads);
    CHECK(testing::ToDoubles(product(x)) == whole);
    for (int part = 0; part < 4 && !OnednnComputesIn(DType::kBFloat16); ++part) {
      const Share rows = ShareOf(37, part, 4);
      const Doubles share = testing::ToDoubles(product(RowsOf(x, rows)));
      CHECK(std::equal(share.begin(), share.end(), whole.begin() + rows.begin * out));
    }
  }
  SetNumThreads(before);
}

TEST_CASE("Products of bfloat16 without rows, columns or terms are empty or zero") {
  const bool transpose_a = GENERATE(false, true), transpose_b = GENERATE(false, true);
  const auto [m, k, n] = GENERATE(std::tuple{0, 128, 512}, std::tuple{4, 128, 0}, std::tuple{4, 0, 512});
  CAPTURE(transpose_a, transpose_b, m, k, n);
  const Tensor a(DType::kBFloat16, transpose_a ? Shape({k, m}) : Shape({m, k}));
  const Tensor b(DType::kBFloat16, transpose_b ? Shape({n, k}) : Shape({k, n}));
  const Tensor y = testing::RunOnCpu({a, b}, [&](absl::Span<const Value> in) {
    return std::vector<Value>{MatMul(in[0], in[1], {transpose_a, transpose_b})};
  })[0];
  CHECK(testing::ToDoubles(y) == Doubles(m * n, 0.0));
}

// x^T * dy of rows [begin, end) of the batch, with its sum in so many parts.
Tensor WeightGradient(const Tensor& x, const Tensor& dy, Share rows, int parts) {
  const auto of_rows = [&](const Tensor& t) {
    const int64_t columns = t.shape().dim(1);
    return Tensor::Of<float>({rows.size(), columns},
                             {t.data<float>() + rows.begin * columns, static_cast<size_t>(rows.size() * columns)});
  };
  return testing::RunOnCpu({of_rows(x), of_rows(dy)}, [&](absl::Span<const Value> in) {
    in[0].graph()->set_batch_parts(parts);
    return std::vector<Value>{MatMul(in[0], in[1], {.transpose_a = true})};
  })[0];
}

// Rows at and around a tile's; one block of columns and several; parts without examples; batches and columns that are
// left to oneDNN, with weights that it computes at once, and some rows at a time.
TEST_CASE("Gradients of weights are what loops compute, and sums of those of the parts of a batch") {
  const Layer s =
      GENERATE(Layer{2, 5, 32}, Layer{576, 29, 96}, Layer{1020, 14, 1056}, Layer{1028, 3, 192}, Layer{3, 2500, 999});
  CAPTURE(s.batch, s.in, s.out);
  const Tensor x = Small({s.batch, s.in}, 1), dy = Small({s.batch, s.out}, 2);
  const Tensor whole = WeightGradient(x, dy, {0, s.batch}, 4);
  double largest = 0;
  for (int64_t i = 0; i < s.in; ++i) {
    for (int64_t j = 0; j < s.out; ++j) {
      double sum = 0;
      for (int64_t n = 0; n < s.batch; ++n) {
        sum += double{x.data<float>()[n * s.in + i]} * double{dy.data<float>()[n * s.out + j]};
      }
      largest = std::max(largest, std::abs(sum - whole.data<float>()[i * s.out + j]));
    }
  }
  CHECK(largest < 2e-6);  // of sums around 0.2 and below
  for (const int replicas : {2, 4}) {
    std::vector<Tensor> parts;
    for (int r = 0; r < replicas; ++r) {
      const Share share = ShareOf(s.batch, r, replicas);
      parts.push_back(share.size() > 0 ? WeightGradient(x, dy, share, BatchPartsOfReplica(replicas))
                                       : Tensor(whole.type()));
    }
    bool equal = true;
    for (int64_t i = 0; i < whole.num_elements(); ++i) {
      equal &= TreeSum(0, replicas, [&](int64_t r) { return parts[r].data<float>()[i]; }) == whole.data<float>()[i];
    }
    CAPTURE(replicas);
    CHECK(equal);
  }
}

TEST_CASE("Gradients of weights in bfloat16 are sums in float, rounded once") {
  const Layer s = GENERATE(Layer{2, 5, 32}, Layer{100, 500, 96}, Layer{250, 14, 1056});
  const int parts = GENERATE(1, 2, 4);
  CAPTURE(s.batch, s.in, s.out, parts);
  const Tensor x = Small({s.batch, s.in}, 1).CastTo(DType::kBFloat16);
  const Tensor dy = Small({s.batch, s.out}, 2).CastTo(DType::kBFloat16);
  REQUIRE(IsTakenBy(&MakeDenseWeightGradient, x.type(), dy.type(), {.transpose_a = true}, parts) ==
          !OnednnComputesIn(DType::kBFloat16));
  const auto gradient = [&](const Tensor& a, const Tensor& b) {
    return testing::RunOnCpu({a, b}, [&](absl::Span<const Value> in) {
      in[0].graph()->set_batch_parts(parts);
      return std::vector<Value>{MatMul(in[0], in[1], {.transpose_a = true})};
    })[0];
  };
  const Doubles got = testing::ToDoubles(gradient(x, dy));
  // In float the same kernel adds in the same order.
  const Tensor sums = gradient(x.CastTo(DType::kFloat32), dy.CastTo(DType::kFloat32));
  if (OnednnComputesIn(DType::kBFloat16)) {
    const Doubles wanted = testing::ToDoubles(sums);
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - wanted[i]) < std::abs(wanted[i]) / 128 + 4e-6);
  } else {
    CHECK(got == testing::ToDoubles(sums.CastTo(DType::kBFloat16)));
  }
}

TEST_CASE("What is not finite comes out, also through zeros and ReLU") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Layer s{3, 3072, 512};
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  if (dtype == DType::kBFloat16 && OnednnComputesIn(dtype)) return;  // oneDNN's ReLU makes zero of NaN
  const auto run = [dtype](const std::vector<Tensor>& floats) {
    std::vector<Tensor> inputs;
    for (const Tensor& t : floats) inputs.push_back(t.CastTo(dtype));
    return testing::ToDoubles(
        testing::RunOnCpu(inputs, [](absl::Span<const Value> in) { return Fused(in, "Relu"); })[0]);
  };
  std::vector<Tensor> inputs = InputsOf(s);
  inputs[0].data<float>()[s.in + 1000] = nan;
  Doubles y = run(inputs);
  for (int64_t i = 0; i < s.batch * s.out; ++i) CHECK(std::isnan(y[i]) == (i / s.out == 1));

  for (const float bad : {nan, infinity, -infinity}) {
    inputs = InputsOf(s);
    std::fill_n(inputs[0].data<float>(), s.batch * s.in, 0.0f);
    inputs[1].data<float>()[2000 * s.out + 77] = bad;  // times zero
    y = run(inputs);
    for (int64_t i = 0; i < s.batch * s.out; ++i) CHECK(std::isnan(y[i]) == (i % s.out == 77));
  }
}

}  // namespace
}  // namespace official::compute
