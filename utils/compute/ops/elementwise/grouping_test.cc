#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

// Sizes at the ends of vectors and of a block's piece, and more than one launch holds.
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes = {1, 3, 4, 130, 2047, 2048, 2049, 5000};
  if (GENERATE(false, true)) sizes.resize(300, 5);
  return sizes;
}

struct Ran {
  int num_kernels = 0;
  int num_groups = 0;
  std::vector<Tensor> results;  // fetched values, then variables
};

// Runs what `build` adds once on a device of this kind: it makes fetches and targets of variables v0, v1, ... and
// feeds.
struct Built {
  std::vector<Value> feeds, fetches;
  std::vector<Node*> targets;
};
using Build = std::function<Built(Graph& graph, absl::Span<const Value> variables)>;

Ran RunOnce(const std::string& kind, const std::vector<int64_t>& sizes, const std::vector<Tensor>& fed,
            const Build& build, bool fuse = true) {
  Graph graph;
  std::vector<Value> variables;
  for (size_t i = 0; i < sizes.size(); ++i) {
    variables.push_back(graph.Variable({absl::StrCat("v", i), {DType::kFloat32, {sizes[i]}}, Initializer::Zeros()}));
  }
  const Built built = build(graph, variables);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore store(*device);
  REQUIRE(store.Create(graph, 1).ok());
  for (size_t i = 0; i < sizes.size(); ++i) {
    REQUIRE(store.Write(absl::StrCat("v", i), testing::RandomTensor({sizes[i]}, i)).ok());
  }
  const auto program =
      Program::Compile(graph, {built.feeds, built.fetches, built.targets}, *device, store, {.fuse = fuse}).value();
  if (fuse) testing::RecordKernels(*program, kind);
  REQUIRE(testing::RunAndWait(*program, fed, *device).ok());
  Ran ran;
  const std::string kernels = program->DebugString();
  ran.num_kernels = static_cast<int>(std::count(kernels.begin(), kernels.end(), '\n'));
  for (size_t at = 0; (at = kernels.find("GroupedElementwise(", at)) != std::string::npos; ++at) ++ran.num_groups;
  for (size_t i = 0; i < built.fetches.size(); ++i) ran.results.push_back(program->Fetch(i).value().Clone());
  for (size_t i = 0; i < sizes.size(); ++i) ran.results.push_back(store.Read(absl::StrCat("v", i)).value());
  return ran;
}

void CheckSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a[i].type() == b[i].type());
    CHECK(std::memcmp(a[i].raw_data(), b[i].raw_data(), a[i].num_bytes()) == 0);
  }
}

// True if nodes are grouped on devices of this kind.
bool Groups(const std::string& kind) {
  return KernelRegistry::Global().Find(op::GroupedElementwise, kind, DType::kFloat32) != nullptr;
}

TEST_CASE("What is made of variables alone is made by one kernel each, with the same bits") {
  const std::vector<int64_t> sizes = Sizes();
  const Build build = [](Graph& graph, absl::Span<const Value> variables) {
    Built built;
    const Value factor = graph.Constant(Tensor::Scalar(1.0f / 3));
    for (const Value& v : variables) built.fetches.push_back(Cast(v, DType::kBFloat16));
    for (const Value& v : variables) built.fetches.push_back(Sin(Mul(factor, v)));
    return built;
  };
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    const Ran grouped = RunOnce(kind, sizes, {}, build), plain = RunOnce(kind, sizes, {}, build, /*fuse=*/false);
    CHECK(grouped.num_kernels == (Groups(kind) ? 2 : 2 * static_cast<int>(sizes.size())));
    CHECK(grouped.num_groups == (Groups(kind) ? 2 : 0));
    CheckSame(grouped.results, plain.results);
  }
}

TEST_CASE("What only an update and a norm read is made by one kernel, with the same bits") {
  const std::vector<int64_t> sizes = Sizes();
  const DType dtype = GENERATE(from_range(StorageTypes()));
  const bool with_norm = GENERATE(false, true);
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < sizes.size(); ++i) {
    gradients.push_back(testing::RandomTensor({sizes[i]}, 1000 + i).CastTo(dtype));
  }
  const Build build = [&](Graph& graph, absl::Span<const Value> variables) {
    Built built;
    const Value decay = graph.Constant(Tensor::Scalar(0.1f));
    std::vector<VariableGradient> updates;
    for (size_t i = 0; i < variables.size(); ++i) {
      built.feeds.push_back(graph.Input("gradient", gradients[i].type()));
      const Value gradient = Cast(Sin(built.feeds.back()), DType::kFloat32);
      updates.push_back({variables[i], Add(Mul(variables[i], decay), gradient)});
    }
    if (with_norm) {
      std::vector<Value> values;
      for (const VariableGradient& update : updates) values.push_back(update.gradient);
      built.fetches.push_back(L2Loss(values));
    }
    built.targets = GradientDescent(graph.Constant(Tensor::Scalar(0.5f)), updates);
    return built;
  };
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    const Ran grouped = RunOnce(kind, sizes, gradients, build);
    CHECK(grouped.num_groups == (Groups(kind) ? 1 : 0));
    const int num_readers = with_norm ? 2 : 1;
    CHECK(grouped.num_kernels == num_readers + (Groups(kind) ? 1 : static_cast<int>(sizes.size())));
    CheckSame(grouped.results, RunOnce(kind, sizes, gradients, build, /*fuse=*/false).results);
  }
}

TEST_CASE("A variable that is written in between is read before") {
  const Build build = [](Graph& graph, absl::Span<const Value> variables) {
    Built built;
    const Value rate = graph.Constant(Tensor::Scalar(1.0f));
    std::vector<Value> doubled;
    for (const Value& v : variables) doubled.push_back(Add(v, v));
    for (size_t i = 0; i < variables.size(); ++i) {
      for (Node* node : GradientDescent(rate, std::vector<VariableGradient>{{variables[i], doubled[i]}})) {
        built.targets.push_back(node);
      }
      built.fetches.push_back(Mul(variables[i], variables[i]));
    }
    return built;
  };
  for (const std::string& kind : testing::KindsUnderTest()) {
    INFO(kind);
    const Ran grouped = RunOnce(kind, {1, 3, 4}, {}, build),
              plain = RunOnce(kind, {1, 3, 4}, {}, build, /*fuse=*/false);
    CheckSame(grouped.results, plain.results);
  }
}

}  // namespace
}  // namespace official::compute
