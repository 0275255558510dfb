#include <catch2/catch.hpp>
#include <cstring>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::RandomTensor;
using Build = std::function<std::vector<Value>(absl::Span<const Value>)>;

// The kernels that a program runs, one line each.
std::string Kernels(const std::vector<TensorType>& inputs, const Build& build) {
  Graph graph;
  GraphRoots roots;
  for (size_t i = 0; i < inputs.size(); ++i) roots.feeds.push_back(graph.Input("x", inputs[i]));
  roots.fetches = build(roots.feeds);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  return Program::Compile(graph, roots, *device, variables).value()->DebugString();
}

int CountLines(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

// Fused and unfused results are the same bytes, and the graph becomes `kernels` kernels.
void CheckFused(const std::vector<Tensor>& inputs, int kernels, const Build& build) {
  std::vector<TensorType> types;
  for (const Tensor& t : inputs) types.push_back(t.type());
  const std::string text = Kernels(types, build);
  INFO(text);
  CHECK(CountLines(text) == kernels);
  const std::vector<Tensor> fused = testing::RunOnCpu(inputs, build);
  const std::vector<Tensor> plain = testing::RunOnCpu(inputs, build, {.fuse = false});
  for (size_t i = 0; i < fused.size(); ++i) {
    REQUIRE(fused[i].type() == plain[i].type());
    CHECK(std::memcmp(fused[i].raw_data(), plain[i].raw_data(), fused[i].num_bytes()) == 0);
  }
}

std::vector<Value> Chain(absl::Span<const Value> in) {
  return {Tanh(Add(Mul(Sigmoid(in[0]), in[1]), Exp(Relu(in[0]))))};
}

TEST_CASE("A chain becomes one kernel with the same bits") {
  const int64_t n = GENERATE(1, 17, 1000, 1024, 5000, 40000);
  const DType dtype = GENERATE(from_range(StorageTypes()));
  CheckFused({RandomTensor({n}, 1, -3, 3).CastTo(dtype), RandomTensor({n}, 2).CastTo(dtype)}, 1, Chain);
}

TEST_CASE("Scalars, rows and columns take part in a chain") {
  const int64_t rows = GENERATE(1, 3, 700), columns = GENERATE(1, 10, 1023, 1500);
  const Build build = [](absl::Span<const Value> in) {
    return std::vector<Value>{Mul(Relu(BiasAdd(Sub(in[0], in[3]), in[1])), in[2])};
  };
  CheckFused(
      {RandomTensor({rows, columns}, 1), RandomTensor({columns}, 2), RandomTensor({}, 3), RandomTensor({rows, 1}, 4)},
      1, build);
}

TEST_CASE("Casts and comparisons take part in a chain") {
  const DType narrow = GENERATE(DType::kBFloat16, DType::kFloat16);
  const Build build = [narrow](absl::Span<const Value> in) {
    const Value wide = Cast(in[0], DType::kFloat32);
    const Value low = LogicalAnd(Less(wide, in[1]), LogicalNot(in[2]));
    return std::vector<Value>{Cast(Add(Select(low, Square(in[1]), in[1]), Cast(in[3], DType::kFloat32)), narrow)};
  };
  CheckFused({RandomTensor({100, 33}, 1).CastTo(narrow), RandomTensor({100, 33}, 2),
              testing::RandomInts({100, 33}, 3, 2).CastTo(DType::kBool), testing::RandomInts({33}, 4, 9)},
             2, build);  // `wide` has one reader; the integers are cast in the smaller shape
}

TEST_CASE("A value with two readers is computed once") {
  const Build build = [](absl::Span<const Value> in) {
    const Value shared = Exp(in[0]);
    return std::vector<Value>{Mul(Neg(shared), Tanh(shared))};
  };
  CheckFused({RandomTensor({64}, 1)}, 2, build);
  // Both readers being one node, it is theirs alone.
  CheckFused({RandomTensor({64}, 1)}, 1, [](absl::Span<const Value> in) {
    const Value e = Exp(in[0]);
    return std::vector<Value>{Mul(e, e)};
  });
}

TEST_CASE("A fetched value is kept") {
  CheckFused({RandomTensor({64}, 1)}, 2, [](absl::Span<const Value> in) {
    const Value e = Exp(in[0]);
    return std::vector<Value>{Neg(e), e};
  });
}

TEST_CASE("Integers stay apart") {
  CheckFused({testing::RandomInts({64}, 1, 100), testing::RandomInts({64}, 2, 100)}, 3, [](absl::Span<const Value> in) {
    const Value sum = Add(Mul(in[0], in[1]), in[1]);
    return std::vector<Value>{Neg(Cast(sum, DType::kFloat32))};
  });
}

TEST_CASE("Long chains are cut where a kernel's program ends") {
  CheckFused({RandomTensor({3000}, 1)}, 3, [](absl::Span<const Value> in) {
    Value x = in[0];
    for (int i = 0; i < 40; ++i) x = i % 2 == 0 ? Sin(x) : Square(x);
    return std::vector<Value>{x};
  });
  const Build wide = [](absl::Span<const Value> in) {
    Value sum = in[0];
    for (size_t i = 1; i < in.size(); ++i) sum = Add(sum, in[i]);
    return std::vector<Value>{sum};
  };
  CheckFused(std::vector<Tensor>(12, RandomTensor({300}, 1)), 2, wide);
}

TEST_CASE("The result may take an input's memory") {
  const auto device = MakeDevice("cpu").value();
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {1024}});
  const Value big = Exp(x), y = graph.Constant(RandomTensor({1024}, 2));
  // `big` is fetched by nobody and dies in the fused node.
  const Value shared = Add(big, Mul(Tanh(Sub(big, y)), y));
  VariableStore variables(*device);
  const auto program = Program::Compile(graph, {{x}, {shared}, {}}, *device, variables).value();
  CHECK(CountLines(program->DebugString()) == 2);
  CHECK(program->arena_bytes() == 4096);
}

constexpr OpName kTestWrite("TestWrite");
const bool write_op = RegisterOp({.name = kTestWrite, .infer = SameTypeAsInput, .has_side_effect = true});
const bool write_kernel = RegisterKernel({
    .op = kTestWrite,
    .device_kind = "cpu",
    .dtypes = {DType::kFloat32},
    .make = [](const KernelSpec&) -> absl::StatusOr<Kernel> {
      return Kernel{[](const KernelArgs& args) {
        args.variable<float>(0)[0] = 100;
        args.output<float>(0)[0] = 0;
        return absl::OkStatus();
      }};
    },
});

TEST_CASE("A variable is read before it is written") {
  Graph graph;
  const Value v = graph.Variable({"v", {DType::kFloat32, {1}}, Initializer::Constant(3)});
  const Value before = Square(v);
  Node* write = ApplyNode(kTestWrite, {v});
  const Value after = Neg(before);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{}, {after}, {write}}, *device, variables).value();
  REQUIRE(program->Run({}).ok());
  CHECK(program->Fetch(0)->data<float>()[0] == -9);
}

}  // namespace
}  // namespace official::compute
