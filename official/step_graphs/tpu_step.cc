#include "official/step_graphs/tpu_step.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/program/lowering.h"
#include "utils/train/step.h"

namespace official::step_graphs {

absl::StatusOr<std::string> TpuStepModule(const TrainedModel& model, compute::DType dtype, int64_t batch,
                                          int num_chips) {
  constexpr train::Mode kMode = train::Mode::kTrain;
  compute::AddHloEmittersToKernels();
  ASSIGN_OR_RETURN(const train::BuiltModel built,
                   train::BuildModel(model.model, kMode, dtype, model.types(kMode, batch),
                                     {.loss_scale = DefaultLossScale(dtype), .num_replicas = num_chips}));
  ASSIGN_OR_RETURN(const compute::PlannedLayouts lowered,
                   compute::Lower(*built.graph, built.roots, compute::kPjrtKind));
  ASSIGN_OR_RETURN(const compute::RewrittenGraph program,
                   compute::EmitProgram(lowered.graph, compute::HloOptionsFor("tpu")));
  return program.roots.targets[0]->attrs().Get<std::string>("text");  // of its HloModule
}

absl::Status CheckChips(int num_chips, int all_chips, absl::string_view topology) {
  if (num_chips == 1 || num_chips == all_chips) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--chips=", num_chips, " is neither 1 nor ", all_chips, ", the number of chips of --topology=", topology,
      num_chips > all_chips ? "; name a larger one, such as v5e:16x16" : ""));
}

absl::StatusOr<int64_t> LargestBatch(int64_t guess, absl::FunctionRef<absl::StatusOr<bool>(int64_t batch)> fits) {
  constexpr int64_t kSmallest = 32;
  int64_t good = 0, bad = 0;  // 0: none is known
  for (int64_t batch = std::max(guess, kSmallest); good == 0 || bad == 0;) {
    ASSIGN_OR_RETURN(const bool fit, fits(batch));
    (fit ? good : bad) = batch;
    if (!fit && batch == kSmallest) return 0;
    batch = fit ? batch * 2 : std::max(batch / 2, kSmallest);
  }
  while (bad - good > std::max<int64_t>(good / 8, 1)) {
    const int64_t middle = good + (bad - good) / 2;
    ASSIGN_OR_RETURN(const bool fit, fits(middle));
    (fit ? good : bad) = middle;
  }
  return good;
}

std::string CommandLineName(const TrainedModel& model) {
  return absl::StrReplaceAll(model.name, {{" ", "-"}, {",", ""}});
}

}  // namespace official::step_graphs
