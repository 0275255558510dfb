#include "utils/compute/ops/matmul/matmul.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

struct Case {
  int64_t batch, m, k, n;
};

// The definition, for [batch, m, k] x [batch, k, n] as stored.
Doubles Product(const Case& s, const MatMulParams& params, const Doubles& a, const Doubles& b) {
  Doubles y;
  for (int64_t i = 0; i < s.batch; ++i) {
    for (int64_t row = 0; row < s.m; ++row) {
      for (int64_t column = 0; column < s.n; ++column) {
        double sum = 0;
        for (int64_t j = 0; j < s.k; ++j) {
          sum += a[i * s.m * s.k + (params.transpose_a ? j * s.m + row : row * s.k + j)] *
                 b[i * s.k * s.n + (params.transpose_b ? column * s.k + j : j * s.n + column)];
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

Shape Stored(const Case& s, bool with_batch, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  return with_batch ? Shape{s.batch, rows, columns} : Shape{rows, columns};
}

testing::OpCase MakeCase(const Case& s, const MatMulParams& params) {
  return {
      .op = op::MatMul,
      .inputs = {testing::RandomTensor(Stored(s, s.batch > 1, s.m, s.k, params.transpose_a), 1),
                 testing::RandomTensor(Stored(s, s.batch > 1, s.k, s.n, params.transpose_b), 2)},
      .build = [=](absl::Span<const Value> in) { return std::vector<Value>{MatMul(in[0], in[1], params)}; },
      .reference =
          [=](const std::vector<Doubles>& in) { return std::vector<Doubles>{Product(s, params, in[0], in[1])}; },
  };
}

TEST_CASE("MatMul and its gradient, transposed or not") {
  for (const Case& s : std::vector<Case>{{1, 1, 1, 1}, {1, 5, 3, 17}, {1, 17, 16, 2}, {3, 4, 5, 6}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        CAPTURE(s.batch, s.m, s.k, s.n, ta, tb);
        const testing::OpCase test = MakeCase(s, {.transpose_a = ta, .transpose_b = tb});
        testing::CheckForward(test);
        testing::CheckGradients(test);
      }
    }
  }
}

TEST_CASE("MatMul of sizes beyond one tile") {
  // The sums of several hundred products need more than float32's 1e-4 only if they are made badly.
  for (const Case& s : std::vector<Case>{{1, 100, 333, 70}, {1, 33, 128, 1001}, {2, 65, 64, 130}, {1, 1, 700, 600}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        CAPTURE(s.batch, s.m, s.k, s.n, ta, tb);
        testing::CheckForward(MakeCase(s, {.transpose_a = ta, .transpose_b = tb}));
      }
    }
  }
}

TEST_CASE("Batches may have two dimensions") {
  const Case flat{6, 3, 4, 5};
  testing::OpCase test = MakeCase(flat, {});
  test.inputs = {test.inputs[0].Reshaped({2, 3, 3, 4}), test.inputs[1].Reshaped({2, 3, 4, 5})};
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

testing::OpCase FusedCase(const Case& s, const std::string& activation) {
  testing::OpCase test = MakeCase(s, {});
  test.op = op::FusedMatMul;
  test.inputs.push_back(testing::RandomTensor({s.n}, 3));
  test.build = [=](absl::Span<const Value> in) {
    return std::vector<Value>{
        Apply(op::FusedMatMul, in, Attrs{{"transpose_a", false}, {"transpose_b", false}, {"activation", activation}})};
  };
  test.reference = [=](const std::vector<Doubles>& in) {
    Doubles y = Product(s, {}, in[0], in[1]);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] += in[2][i % s.n];
      if (!activation.empty()) y[i] = std::max(y[i], 0.0);
    }
    return std::vector<Doubles>{y};
  };
  return test;
}

TEST_CASE("FusedMatMul adds the bias and cuts at zero") {
  testing::CheckForward(FusedCase({1, 7, 20, 19}, ""));
  testing::CheckForward(FusedCase({1, 7, 20, 19}, "Relu"));
}

// On CPUs, oneDNN's ReLU makes zeros of NaN. PJRT devices fuse for themselves.
TEST_CASE("NaN passes through the ReLU of a product on GPUs") {
  const DType dtype = GENERATE(from_range(StorageTypes()));
  testing::OpCase test = FusedCase({1, 8, 16, 24}, "Relu");
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  test.inputs[0].data<float>()[1 * 16 + 5] = kNaN;
  test.inputs[2].data<float>()[3] = kNaN;
  for (Tensor& input : test.inputs) input = input.CastTo(dtype);
  for (const std::string& kind : testing::KindsUnderTest()) {
    if (kind != kCudaKind) continue;
    CAPTURE(kind, DTypeName(dtype));
    const Doubles y = testing::ToDoubles(testing::RunOn(kind, test.inputs, test.build)[0]);
    REQUIRE(y.size() == 8 * 24);
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 24 == 1 || i % 24 == 3));
  }
}

TEST_CASE("One matrix multiplies a whole batch") {
  const Case flat{1, 6, 4, 5};
  testing::OpCase test = MakeCase(flat, {});
  test.inputs[0] = test.inputs[0].Reshaped({2, 3, 4});
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("Bias and ReLU become part of the product") {
  const std::vector<Tensor> inputs = {testing::RandomTensor({5, 7}, 1), testing::RandomTensor({7, 9}, 2),
                                      testing::RandomTensor({9}, 3)};
  const auto build = [](absl::Span<const Value> in) {
    return std::vector<Value>{Relu(BiasAdd(MatMul(in[0], in[1]), in[2]))};
  };
  CHECK(testing::CompiledOps({inputs[0].type(), inputs[1].type(), inputs[2].type()}, build) ==
        std::vector<OpName>{op::FusedMatMul});
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    const Doubles fused = testing::ToDoubles(testing::RunOn(kind, inputs, build)[0]);
    const Doubles plain = testing::ToDoubles(testing::RunOn(kind, inputs, build, {.fuse = false})[0]);
    for (size_t i = 0; i < fused.size(); ++i) CHECK(fused[i] == Approx(plain[i]).margin(1e-6));
  }
}

TEST_CASE("The gradients of a layer's weights and bias come from one kernel on devices that have it") {
  const DType dtype = GENERATE(from_range(StorageTypes()));
  // One row of x^T: emulated cuBLASLt then has no algorithm that sums, too. No rows of dy: all gradients are zero.
  const auto [rows, in_size, out_size] =
      GENERATE(table<int64_t, int64_t, int64_t>({{70, 24, 40}, {5, 3, 1}, {300, 1, 17}, {0, 3, 4}}));
  CAPTURE(rows, in_size, out_size);
  const std::vector<Tensor> inputs = {testing::RandomTensor({rows, in_size}, 1).CastTo(dtype),
                                      testing::RandomTensor({rows, out_size}, 2).CastTo(dtype)};
  const auto gradients = [](absl::Span<const Value> in) {
    return std::vector<Value>{MatMul(in[0], in[1], {.transpose_a = true}), BiasAddGrad(in[1])};
  };
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    const bool fuses = rows > 0 && KernelRegistry::Global().Find(op::FusedMatMulBiasAddGrad, kind, dtype) != nullptr;
    Graph graph;
    const std::vector<Value> feeds = {graph.Input("x", inputs[0].type()), graph.Input("dy", inputs[1].type())};
    const std::unique_ptr<Device> device = MakeDevice(kind).value();
    VariableStore variables(*device);
    const auto program = Program::Compile(graph, {feeds, gradients(feeds), {}}, *device, variables).value();
    const std::string kernels = program->DebugString();
    CHECK(std::count(kernels.begin(), kernels.end(), '\n') == (fuses ? 1 : 2));
    const std::vector<Tensor> fused = testing::RunOn(kind, inputs, gradients),
                              plain = testing::RunOn(kind, inputs, gradients, {.fuse = false});
    for (size_t i = 0; i < fused.size(); ++i) {
      const Doubles a = testing::ToDoubles(fused[i]), b = testing::ToDoubles(plain[i]);
      REQUIRE(a.size() == b.size());
      const double margin = dtype == DType::kFloat32 ? 1e-5 : dtype == DType::kFloat16 ? 2e-2 : 1e-1;
      for (size_t k = 0; k < a.size(); ++k) CHECK(a[k] == Approx(b[k]).margin(margin));
    }
  }
}

// The feed-forward layer of packed tokens, [T, d] with T a multiple of 64, whose last rows are padding: zeros, with
// gradients of zero. Padding then adds nothing to the gradients of weights and bias, which are those of the rows
// before.
TEST_CASE("A dense layer of packed tokens is fused, and padding adds nothing to its gradients") {
  const auto layer = [](absl::Span<const Value> in) {
    const Value y = Relu(BiasAdd(MatMul(in[0], in[1]), in[2]));
    std::vector<Value> values = Gradients({y}, {in[3]}, {in[0], in[1], in[2]});
    values.push_back(y);
    return values;
  };
  const int64_t tokens = 70, rows = 128;
  std::vector<Tensor> inputs = {testing::RandomTensor({rows, 24}, 1), testing::RandomTensor({24, 40}, 2),
                                testing::RandomTensor({40}, 3), testing::RandomTensor({rows, 40}, 4)};
  std::fill_n(inputs[0].data<float>() + tokens * 24, (rows - tokens) * 24, 0.0f);
  std::fill_n(inputs[3].data<float>() + tokens * 40, (rows - tokens) * 40, 0.0f);
  std::vector<TensorType> types;
  for (const Tensor& t : inputs) types.push_back(t.type());
  const std::vector<OpName> ops = testing::CompiledOps(types, layer);
  CHECK(std::count(ops.begin(), ops.end(), op::FusedMatMul) == 1);
  CHECK(std::count(ops.begin(), ops.end(), op::MatMul) == 2);
  CHECK(std::count(ops.begin(), ops.end(), op::Relu) == 0);
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    const std::vector<Tensor> padded = testing::RunOn(kind, inputs, layer);
    std::vector<Tensor> packed_inputs = inputs;
    for (const int i : {0, 3}) {
      const int64_t columns = inputs[i].shape().dim(1);
      packed_inputs[i] = Tensor(DType::kFloat32, {tokens, columns});
      std::copy_n(inputs[i].data<float>(), tokens * columns, packed_inputs[i].data<float>());
    }
    const std::vector<Tensor> packed = testing::RunOn(kind, packed_inputs, layer);
    for (size_t k = 0; k < padded.size(); ++k) {
      for (int64_t i = 0; i < packed[k].num_elements(); ++i) {
        CHECK(padded[k].data<float>()[i] == Approx(packed[k].data<float>()[i]).margin(1e-5));
      }
    }
    for (int64_t i = tokens * 24; i < rows * 24; ++i) CHECK(padded[0].data<float>()[i] == 0);
  }
}

TEST_CASE("Products in bfloat16 do not depend on the number of threads") {
  // With AMX oneDNN would divide the sums of these among four threads otherwise than for one.
  const DType dtype = DType::kBFloat16;
  const Tensor a = testing::RandomTensor({512, 256}, 1).CastTo(dtype);
  const Tensor b = testing::RandomTensor({512, 32}, 2).CastTo(dtype);
  const Tensor many = testing::RandomTensor({512, 6000}, 3).CastTo(dtype);
  const int before = NumThreads();
  std::vector<Doubles> first;
  for (const int threads : {1, 2, 3, 4}) {
    CAPTURE(threads);
    SetNumThreads(threads);
    const std::vector<Tensor> y = testing::RunOnCpu({a, b, many}, [](auto in) {
      return std::vector<Value>{MatMul(in[0], in[1], {.transpose_a = true}),
                                MatMul(in[2], MatMul(in[2], in[1], {.transpose_a = true}))};
    });
    std::vector<Doubles> numbers;
    for (const Tensor& t : y) numbers.push_back(testing::ToDoubles(t));
    if (first.empty()) first = numbers;
    CHECK((numbers == first));
  }
  SetNumThreads(before);
}

TEST_CASE("A product over nothing is zero") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  const std::vector<Tensor> y =
      testing::RunOn(kind, {Tensor(DType::kFloat32, {2, 0}), Tensor(DType::kFloat32, {0, 3})},
                     [](absl::Span<const Value> in) { return std::vector<Value>{MatMul(in[0], in[1])}; });
  CHECK(testing::ToDoubles(y[0]) == Doubles(6, 0.0));
}

TEST_CASE("A product over nothing with a bias is the bias") {
  testing::CheckForward(FusedCase({1, 2, 0, 3}, ""));
  testing::CheckForward(FusedCase({1, 2, 0, 3}, "Relu"));
}

TEST_CASE("Matrices that do not fit say so") {
  const auto error = [](TensorType a, TensorType b) {
    return std::string(testing::BuildStatus({a, b}, [](absl::Span<const Value> in) {
                         return std::vector<Value>{MatMul(in[0], in[1])};
                       }).message());
  };
  const DType f = DType::kFloat32;
  CHECK_THAT(error({f, {2, 3}}, {f, {4, 5}}),
             Catch::Contains("a has 3 columns, b 4 rows") && Catch::Contains("float32[2,3], float32[4,5]"));
  CHECK_THAT(error({f, {2, 3}}, {DType::kBFloat16, {3, 5}}), Catch::Contains("one floating type"));
  CHECK_THAT(error({f, {2, 2, 3}}, {f, {3, 3, 5}}), Catch::Contains("batch dimension"));
  CHECK_THAT(error({f, {3}}, {f, {3, 5}}), Catch::Contains("rank 2 to 4"));
}

TEST_CASE("A GPU rounds float32 inputs, to TF32, only where that is allowed") {
  const std::vector<std::string> kinds = testing::KindsUnderTest();
  if (std::find(kinds.begin(), kinds.end(), "cuda") == kinds.end()) return;
  const bool allow_tf32 = GENERATE(false, true);
  const std::unique_ptr<Device> device = MakeDevice("cuda", {.allow_tf32 = allow_tf32}).value();
  const Case s{1, 128, 256, 128};
  Graph graph;
  const Value a = graph.Input("a", {DType::kFloat32, {s.m, s.k}}), b = graph.Input("b", {DType::kFloat32, {s.k, s.n}});
  const std::vector<Tensor> feeds = {testing::RandomTensor(a.shape(), 1), testing::RandomTensor(b.shape(), 2)};
  const Doubles want = Product(s, {}, testing::ToDoubles(feeds[0]), testing::ToDoubles(feeds[1]));
  const Doubles got = testing::ToDoubles(Evaluate(graph, {{a, b}, {MatMul(a, b)}, {}}, feeds, *device).value()[0]);
  double error = 0;
  for (size_t i = 0; i < want.size(); ++i) error = std::max(error, std::abs(got[i] - want[i]));
  CHECK(error < (allow_tf32 ? 3e-2 : 1e-4));
}

}  // namespace
}  // namespace official::compute
