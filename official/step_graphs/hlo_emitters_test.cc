#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/step_graphs/step_graphs.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/program/lowering.h"

namespace official::step_graphs {
namespace {

TEST_CASE("Every node of every model's graphs is written in StableHLO") {
  compute::AddHloEmittersToKernels();
  std::map<std::string, std::set<std::string>> missing;  // by op and type
  int graphs = 0;
  const absl::Status status = VisitGraphs([&](const StepGraph& step) -> absl::Status {
    ++graphs;
    ASSIGN_OR_RETURN(compute::PlannedLayouts lowered, compute::Lower(step.graph, step.roots, compute::kPjrtKind));
    bool is_written = true;
    for (const auto& node : lowered.graph.graph->nodes()) {
      if (!compute::NeedsKernel(*node) || compute::FindHloEmitter(*node) != nullptr) continue;
      is_written = false;
      missing[absl::StrCat(node->op().name.text(), " for ", DTypeName(KeyType(*node)))].insert(step.name);
    }
    return is_written ? compute::EmitProgram(lowered.graph).status() : absl::OkStatus();
  });
  INFO(status);
  CHECK(status.ok());
  for (const auto& [op, names] : missing) {
    FAIL_CHECK("no emitter of " << op << ", as in: " << absl::StrJoin(names, "; "));
  }
  CHECK(graphs > 300);
}

}  // namespace
}  // namespace official::step_graphs
