#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "official/step_graphs/step_graphs.h"
#include "official/step_graphs/tpu_step.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/pjrt/tpu_compiler.h"

namespace official::step_graphs {
namespace {

using compute::DType;

std::string ModuleOf(const TrainedModel& model, DType dtype) {
  return TpuStepModule(model, dtype, model.batch).value();
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

// The steps of ResNet and of the Transformer compile too, but take minutes.
TEST_CASE("The steps of mnist and NCF compile for a TPU that is not there") {
  const char* const libtpu = std::getenv("OFFICIAL_LIBTPU");
  if (libtpu == nullptr || *libtpu == '\0') {
    std::cout << "skipped: OFFICIAL_LIBTPU does not name libtpu.so (tools/python_env tpu)\n";
    return;
  }
  const auto compiler = compute::TpuCompiler::Create(libtpu, "v5e:2x2").value();
  for (const TrainedModel& model : SmallModels()) {
    if (model.name != "mnist" && model.name != "ncf ml-1m") continue;
    CAPTURE(model.name);
    const compute::CompiledCost cost = compiler->Compile(ModuleOf(model, DType::kBFloat16)).value();
    CHECK(cost.seconds.value_or(0) > 0);
    CHECK(cost.seconds.value_or(1) < 0.1);
    CHECK(cost.flops > 1000);
    CHECK(cost.bytes_accessed > 1000);
    CHECK(cost.memory_bytes > 1000);
  }
  const absl::Status status = compute::TpuCompiler::Create(libtpu, "v5e:nowhere").status();
  CHECK(absl::StrContains(status.message(), "knows no chips v5e:nowhere"));
}

TEST_CASE("The products of a step are of its type, and nothing in it needs the host") {
  for (const TrainedModel& model : SmallModels()) {
    CAPTURE(model.name);
    const std::string single = ModuleOf(model, DType::kFloat32), half = ModuleOf(model, DType::kBFloat16);
    CHECK(ProductsOf(single, "bf16") == 0);
    const int64_t products = ProductsOf(half, "bf16");
    CHECK(products > 0);
    CHECK(products > ProductsOf(half, "f32"));
    CHECK(products + ProductsOf(half, "f32") == ProductsOf(single, "f32"));
    for (const char* const op : {"custom_call", "infeed", "outfeed", "send", "recv"}) {
      CHECK_FALSE(absl::StrContains(half, op));
    }
  }
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
