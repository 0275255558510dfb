// Kernels on GPUs with less shared memory than those of compute capability 9.0: 99 KiB for a block, as from 8.6 on, or
// 64 KiB, as 7.5 has, which also lacks the tensor cores' instructions that kernels use.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/program/program.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using cuda_emulation::Card;
using cuda_emulation::TheCard;
using testing::Doubles;

constexpr Card kCard75 = {.major = 7, .block_shared_bytes = 64 << 10};
constexpr Card kCard86 = {.major = 8, .block_shared_bytes = 99 << 10};

struct OnCard {
  explicit OnCard(const Card& card) { TheCard() = card; }
  ~OnCard() { TheCard() = {}; }
};

// Self-attention of a head of so many columns.
struct Head {
  int columns;
  bool gradients;  // by queries, keys and values, of the output times itself; else the output
  DType type = DType::kFloat32;
  std::vector<int32_t> offsets = {0, 3, 70};

  std::vector<Tensor> Inputs() const {
    std::vector<Tensor> inputs;
    for (const int seed : {1, 2, 3}) {
      inputs.push_back(testing::RandomTensor({offsets.back(), columns}, seed).CastTo(type));
    }
    const Tensor rows = Tensor::Of<int32_t>({static_cast<int64_t>(offsets.size())}, offsets);
    inputs.insert(inputs.end(), {rows, rows, Tensor::Of<int64_t>({3}, {5, 9, 0})});
    return inputs;
  }
  std::vector<Value> Build(absl::Span<const Value> in) const {
    const Value y = Attention(
        {.q = in[0], .k = in[1], .v = in[2], .q_offsets = in[3], .k_offsets = in[4], .random_state = in[5]},
        {.num_heads = 1, .causal = true, .scale = 1 / std::sqrt(columns), .dropout_rate = 0.2, .name = "attention"});
    return gradients ? Gradients({y}, {y}, {in[0], in[1], in[2]}) : std::vector<Value>{y};
  }
};

// The largest difference of the GPU's results from those of the CPU, relative to max(1, |result|).
double Difference(const Head& head) {
  const auto build = [&](absl::Span<const Value> in) { return head.Build(in); };
  const std::vector<Tensor> got = testing::RunOn(kCudaKind, head.Inputs(), build);
  const std::vector<Tensor> want = testing::RunOnCpu(head.Inputs(), build);
  double largest = 0;
  for (size_t k = 0; k < want.size(); ++k) {
    const Doubles x = testing::ToDoubles(got[k]), y = testing::ToDoubles(want[k]);
    for (size_t i = 0; i < y.size(); ++i) {
      const double difference = std::abs(x[i] - y[i]) / std::max(1.0, std::abs(y[i]));
      if (!(difference <= largest)) largest = difference;
    }
  }
  return largest;
}

absl::Status CompileStatus(const Head& head) {
  Graph graph;
  GraphRoots roots;
  for (const Tensor& input : head.Inputs()) {
    roots.feeds.push_back(graph.Input(std::to_string(roots.feeds.size()), input.type()));
  }
  roots.fetches = head.Build(roots.feeds);
  const std::unique_ptr<Device> device = MakeDevice(kCudaKind).value();
  VariableStore variables(*device);
  return Program::Compile(graph, roots, *device, variables).status();
}

TEST_CASE("Integers of 64 bits need little shared memory") {
  const OnCard card(GENERATE(kCard75, kCard86));
  const Tensor x = Tensor::Of<int64_t>({3}, {-1, 0, 7});
  const Tensor y = testing::RunOn(kCudaKind, {x}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Cast(Mul(in[0], in[0]), DType::kInt32)};
  })[0];
  CHECK(testing::ToDoubles(y) == Doubles{1, 0, 49});
}

TEST_CASE("Attention fits into 99 KiB but for float32 gradients of wide heads") {
  const OnCard card(kCard86);
  CHECK(Difference({.columns = 64, .gradients = true}) < 1e-4);
  CHECK(Difference({.columns = 128, .gradients = false}) < 1e-4);
  CHECK(Difference({.columns = 128, .gradients = true, .type = DType::kBFloat16}) < 0.05);
  const absl::Status status = CompileStatus({.columns = 65, .gradients = true});
  CHECK(absl::IsUnimplemented(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("AttentionGrad") &&
                                                Catch::Contains("needs 165376 bytes of shared memory") &&
                                                Catch::Contains("gpu:0 (emulated GPU) has 101376"));
}

TEST_CASE("Attention without gradients of heads of 64 columns fits into 64 KiB") {
  const OnCard card(kCard75);
  const DType type = GENERATE(DType::kFloat32, DType::kFloat16);
  CHECK(Difference({.columns = 64, .gradients = false, .type = type}) < (type == DType::kFloat32 ? 1e-4 : 0.01));
  for (const Head& head :
       {Head{.columns = 65, .gradients = false, .type = type}, Head{.columns = 64, .gradients = true, .type = type}}) {
    const absl::Status status = CompileStatus(head);
    CHECK(absl::IsUnimplemented(status));
    CHECK_THAT(std::string(status.message()),
               Catch::Contains(head.gradients ? "99840 bytes" : "99072 bytes") && Catch::Contains("has 65536"));
  }
}

}  // namespace
}  // namespace official::compute
