#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "official/step_graphs/compiled_ops.h"
#include "official/step_graphs/step_graphs.h"
#include "official/step_graphs/tpu_step.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/pjrt/tpu_compiler.h"
#include "utils/train/step.h"

namespace official::step_graphs {
namespace {

using compute::DType;

constexpr int kChips = 4;

std::string ModuleOf(const TrainedModel& model, DType dtype, int num_chips = 1) {
  return TpuStepModule(model, dtype, model.batch, num_chips).value();
}

// The products of the module whose first factor is of this type.
int64_t ProductsOf(const std::string& module, const std::string& element) {
  const std::vector<absl::string_view> lines = absl::StrSplit(module, '\n');
  return std::count_if(lines.begin(), lines.end(), [&](absl::string_view line) {
    if (!absl::StrContains(line, "stablehlo.dot_general") && !absl::StrContains(line, "stablehlo.convolution")) {
      return false;
    }
    const absl::string_view types = line.substr(line.rfind(" : ("));
    return absl::EndsWith(types.substr(0, types.find('>')), "x" + element);
  });
}

// The values that four chips sum in the step of a model, in each pack.
std::vector<int> Packs(const TrainedModel& model, DType dtype) {
  constexpr train::Mode kMode = train::Mode::kTrain;
  const train::BuiltModel built = train::BuildModel(model.model, kMode, dtype, model.types(kMode, model.batch),
                                                    {.loss_scale = DefaultLossScale(dtype), .num_replicas = kChips})
                                      .value();
  std::vector<int> packs;
  for (const auto& node : built.graph->nodes()) {
    if (node->Is(compute::op::AllReduceStart)) packs.push_back(node->num_inputs());
  }
  return packs;
}

TEST_CASE("Each pack of gradients is one sum over the chips") {
  for (const TrainedModel& model : SmallModels()) {
    CAPTURE(model.name);
    const std::vector<int> packs = Packs(model, DType::kBFloat16);
    CHECK_FALSE(packs.empty());
    std::vector<int> sums;
    const std::string module = ModuleOf(model, DType::kBFloat16, kChips);
    for (const absl::string_view line : absl::StrSplit(module, '\n')) {
      if (!absl::StrContains(line, "stablehlo.all_reduce")) continue;
      const absl::string_view operands = line.substr(0, line.find(')'));
      sums.push_back(static_cast<int>(1 + std::count(operands.begin(), operands.end(), ',')));
    }
    CHECK(sums == packs);
  }
}

TEST_CASE("The random numbers of the Transformer's dropout are drawn before the products that need them") {
  for (const TrainedModel& model : SmallModels()) {
    if (!absl::StrContains(model.name, "transformer")) continue;
    int drawn = 0, barriers = 0;
    const std::string module = ModuleOf(model, DType::kBFloat16);
    for (const absl::string_view line : absl::StrSplit(module, '\n')) {
      const bool compares = absl::StrContains(line, "stablehlo.compare") && absl::StrContains(line, " GE>");
      drawn += compares && absl::StrContains(line, "xui32>");
      barriers += absl::StrContains(line, "optimization_barrier") && absl::EndsWith(line, "xi1>)");
    }
    CHECK(drawn > 0);
    CHECK(barriers == drawn);
  }
}

// Products that are bfloat16, sums as the packs are, and nothing that waits for the host.
void CheckOps(const std::vector<CompiledOp>& ops, std::vector<int> packs) {
  const std::vector<std::string> bfloat16s = {"BF16", "BF16"};
  int products = 0;
  std::vector<int> sums;
  for (const CompiledOp& op : ops) {
    CAPTURE(op.opcode, op.custom_call_target);
    for (const char* const host : {"infeed", "outfeed", "send", "recv"}) CHECK_FALSE(absl::StartsWith(op.opcode, host));
    CHECK_FALSE(absl::StrContains(op.custom_call_target, "callback"));
    if (op.opcode == "convolution" || op.opcode == "dot") {
      ++products;
      CHECK(op.operands == bfloat16s);
    }
    if (op.opcode == "all-reduce" || op.opcode == "all-reduce-start") {
      sums.push_back(static_cast<int>(op.operands.size()));
    }
  }
  CHECK(products > 0);
  std::sort(sums.begin(), sums.end());
  std::sort(packs.begin(), packs.end());
  CHECK(sums == packs);
}

TEST_CASE("The steps of all programs compile for four TPU chips that are not there") {
  const char* const libtpu = std::getenv("OFFICIAL_LIBTPU");
  if (libtpu == nullptr || *libtpu == '\0') {
    std::cout << "skipped: OFFICIAL_LIBTPU does not name libtpu.so (tools/python_env tpu)\n";
    return;
  }
  const auto compiler = compute::TpuCompiler::Create(libtpu, "v5e:2x2").value();
  CHECK(compiler->num_chips() == kChips);
  for (const TrainedModel& model : SmallModels()) {
    CAPTURE(model.name);
    const std::string module = ModuleOf(model, DType::kBFloat16, kChips);
    const compute::CompiledModule compiled = compiler->Compile(module, kChips).value();
    CHECK(compiled.cost.seconds.value_or(0) > 0);
    CHECK(compiled.cost.seconds.value_or(1) < 0.1);
    CHECK(compiled.cost.flops > 1000);
    CHECK(compiled.cost.bytes_accessed > 1000);
    CHECK(compiled.cost.memory_bytes > 1000);
    CheckOps(CompiledOps(compiled.hlo).value(), Packs(model, DType::kBFloat16));
  }
  CHECK(absl::StrContains(compiler->Compile("", 5).status().message(), "5 chips were asked for, and v5e:2x2 has 4"));
  const absl::Status status = compute::TpuCompiler::Create(libtpu, "v5e:nowhere").status();
  CHECK(absl::StrContains(status.message(), "knows no chips v5e:nowhere"));
}

TEST_CASE("The products of a step are of its type, and nothing in it needs the host") {
  for (const TrainedModel& model : SmallModels()) {
    CAPTURE(model.name);
    const std::string single = ModuleOf(model, DType::kFloat32), half = ModuleOf(model, DType::kBFloat16);
    CHECK(ProductsOf(single, "bf16") == 0);
    CHECK(ProductsOf(half, "bf16") > 0);
    // The last layer of NeuMF, and its gradient, are float32 in any type.
    CHECK(ProductsOf(half, "f32") == (absl::StartsWith(model.name, "ncf") ? 2 : 0));
    CHECK(ProductsOf(half, "bf16") + ProductsOf(half, "f32") == ProductsOf(single, "f32"));
    for (const char* const op : {"custom_call", "infeed", "outfeed", "send", "recv", "f64"}) {
      CHECK_FALSE(absl::StrContains(half, op));
    }
  }
}

TEST_CASE("A step has one chip or all of the topology") {
  CHECK(CheckChips(1, 4, "v5e:2x2").ok());
  CHECK(CheckChips(4, 4, "v5e:2x2").ok());
  CHECK(CheckChips(2, 4, "v5e:2x2").message() ==
        "--chips=2 is neither 1 nor 4, the number of chips of --topology=v5e:2x2");
  CHECK(
      CheckChips(5, 4, "v5e:2x2").message() ==
      "--chips=5 is neither 1 nor 4, the number of chips of --topology=v5e:2x2; name a larger one, such as v5e:16x16");
}

TEST_CASE("The largest batch is found to an eighth, from a guess above or below it") {
  const int64_t limit = GENERATE(33, 100, 1000, 4097), guess = GENERATE(1, 128, 100000);
  int tries = 0;
  const int64_t found = LargestBatch(guess, [&](int64_t batch) -> absl::StatusOr<bool> {
                          ++tries;
                          return batch <= limit;
                        }).value();
  CHECK(found <= limit);
  CHECK(found + std::max<int64_t>(found / 8, 1) > limit);
  CHECK(tries < 25);
  CHECK(LargestBatch(guess, [](int64_t) -> absl::StatusOr<bool> { return false; }).value() == 0);
}

}  // namespace
}  // namespace official::step_graphs
