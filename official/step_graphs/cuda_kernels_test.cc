#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/step_graphs/step_graphs.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/cuda_emulation/library_algorithms.h"
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

constexpr char kConvolutions[] = "official/step_graphs/convolutions.txt";

// Under `bazel run` the list in the workspace is written anew.
void CheckConvolutions(const std::set<std::string>& asked_for) {
  if (const char* const workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY"); workspace != nullptr) {
    std::ofstream file(absl::StrCat(workspace, "/", kConvolutions));
    for (const std::string& line : asked_for) file << line << "\n";
    REQUIRE(file.flush().good());
    return;
  }
  std::set<std::string> listed;
  std::ifstream file(kConvolutions);
  for (std::string line; std::getline(file, line);) listed.insert(line);
  INFO(kConvolutions << " is not what cuDNN was asked for. To write it: bazel run //official/step_graphs:"
                     << "cuda_kernels_test; then make the plans of these convolutions anew (conv_plans_test)");
  CHECK(listed == asked_for);
}

TEST_CASE("Every node of every model's graphs has a kernel for GPUs") {
  compute::cuda_emulation::TheCard().block_shared_bytes = 99 << 10;  // as from compute capability 8.6 on
  std::map<int, std::unique_ptr<distribute::Strategy>> strategies;   // by the number of replicas
  for (const int n : {1, 2}) {
    strategies[n] = distribute::Strategy::Create({.device_kind = kCudaKind, .num_replicas = n}).value();
  }
  int graphs = 0, kernels = 0;
  std::set<std::string> convolutions;  // of whole batches
  const absl::Status status = VisitGraphs([&](const StepGraph& step) {
    ++graphs;
    compute::cuda_emulation::TheAlgorithms() = {};
    RETURN_IF_ERROR(MakeKernels(step, strategies.at(step.num_replicas)->device(0), &kernels));
    if (step.num_replicas == 1) convolutions.merge(compute::cuda_emulation::TheAlgorithms().convolutions);
    return absl::OkStatus();
  });
  INFO(status << " (" << graphs << " graphs, " << kernels << " kernels)");
  CHECK(status.ok());
  CHECK(graphs > 300);
  CheckConvolutions(convolutions);
}

}  // namespace
}  // namespace official::step_graphs
