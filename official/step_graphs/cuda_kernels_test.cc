#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/step_graphs/step_graphs.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/program/lowering.h"
#include "utils/distribute/strategy.h"

namespace official::step_graphs {
namespace {

using compute::kCudaKind;
using compute::Layout;
using compute::Value;

// Makes the kernel of each node that a program for GPUs has.
absl::Status MakeKernels(const StepGraph& step, compute::Device& device, int* kernels) {
  ASSIGN_OR_RETURN(const compute::PlannedLayouts lowered, compute::Lower(step.graph, step.roots, kCudaKind));
  for (const auto& node : lowered.graph.graph->nodes()) {
    if (!compute::NeedsKernel(*node)) continue;
    ASSIGN_OR_RETURN(const compute::KernelDef* const def, compute::KernelFor(*node, kCudaKind));
    const std::vector<Layout> inputs(node->num_inputs(), Layout::kRowMajor);
    const std::vector<Layout> outputs(node->num_outputs(), Layout::kRowMajor);
    const absl::Status made = def->make({*node, device, inputs, outputs, nullptr, {}}).status();
    if (!made.ok()) {
      return absl::Status(made.code(),
                          absl::StrCat("op ", node->op().name.text(), ", ", node->name(), ": ", made.message()));
    }
    ++*kernels;
  }
  return absl::OkStatus();
}

TEST_CASE("Every node of every model's graphs has a kernel for GPUs") {
  std::map<int, std::unique_ptr<distribute::Strategy>> strategies;  // by the number of replicas
  for (const int n : {1, 2}) {
    strategies[n] = distribute::Strategy::Create({.device_kind = kCudaKind, .num_replicas = n}).value();
  }
  int graphs = 0, kernels = 0;
  const absl::Status status = VisitGraphs([&](const StepGraph& step) {
    ++graphs;
    return MakeKernels(step, strategies.at(step.num_replicas)->device(0), &kernels);
  });
  INFO(status << " (" << graphs << " graphs, " << kernels << " kernels)");
  CHECK(status.ok());
  CHECK(graphs > 300);
}

}  // namespace
}  // namespace official::step_graphs
