#include "utils/run/session_log.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/simd.h"
#include "utils/logs/events.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/misc/available_memory.h"
#include "utils/misc/model_helpers.h"
#include "utils/misc/size_text.h"
#include "utils/run/usable_gpus.h"

namespace official::run {
namespace {

// "", or ", 2 of 4 on this worker".
std::string WorkerText(const distribute::Strategy& strategy) {
  if (!strategy.has_other_workers()) return "";
  return absl::StrCat(", ", strategy.num_local_replicas(), " of ", strategy.num_replicas_in_sync(), " on this worker");
}

// What the sums with other workers have cost, if there were any.
void LogCostsOfSums(const distribute::Strategy& strategy) {
  const distribute::SumCosts costs = strategy.CostsOfWorkerSums();
  if (costs.steps == 0) return;
  const auto steps = static_cast<double>(costs.steps);
  const double megabytes = 1e-6 * static_cast<double>(costs.bytes_sent) / steps;
  const double milliseconds = 1e3 * costs.seconds / steps, waited = 1e3 * costs.waited_seconds / steps;
  const double hidden = std::max(0.0, 1 - costs.waited_seconds / costs.seconds);
  logs::LogEvent("sums",
                 absl::StrFormat("sums with other workers, a step: %.4g MB sent, %.4g ms, of which the devices waited "
                                 "%.4g ms (%.0f%% hidden behind their work)",
                                 megabytes, milliseconds, waited, 100 * hidden),
                 {{"steps", costs.steps},
                  {"bytes_sent_per_step", static_cast<double>(costs.bytes_sent) / steps},
                  {"ms_per_step", milliseconds},
                  {"waited_ms_per_step", waited}});
}

}  // namespace

void LogStart(const Config& config, const Devices& devices, const std::string& model, const std::string& dataset,
              const train::Estimator& estimator, bool only_evaluates) {
  const std::string device = estimator.strategy().Description(), strategy(estimator.strategy().name());
  const std::string precision(flags::DTypeFlagValue(config.train.dtype));
  const bool resumes = estimator.origin() != "fresh" && !only_evaluates;
  logs::LogEvent(
      resumes ? "resume" : "start",
      absl::StrCat("device ", device, WithLibraries(devices.kind), ", strategy ", strategy, ", precision ", precision,
                   ", batch ", config.base.batch_size, " (", devices.replica_batch, " per replica",
                   WorkerText(estimator.strategy()), "), data ", dataset, ", ", estimator.origin()),
      {{"model", model},
       {"model_dir", config.train.model_dir},
       {"dataset", dataset},
       {"device", device},
       {"strategy", strategy},
       {"num_replicas", devices.num_replicas},
       {"dtype", precision},
       {"batch_size", config.base.batch_size},
       {"seed", static_cast<int64_t>(estimator.state().seed)},
       {"global_step", estimator.global_step()}});
  if (devices.kind == "cpu" && !compute::OnednnComputesIn(config.train.dtype)) {
    const std::string why = config.train.dtype == compute::DType::kBFloat16
                                ? compute::WhyBFloat16InFloat32(compute::HasSlowPairs())
                                : "CPUs have no others";
    LOG(INFO) << "--dtype=" << precision << ": products are computed in float32, since " << why
              << "; it is hardly ever faster than fp32 here";
  }
}

bool HasPassedStopThreshold(const Config& config, const train::RunState& state) {
  return train::IsEvaluated(state) && state.evaluated_metric &&
         misc::PastStopThreshold(config.base.stop_threshold, *state.evaluated_metric);
}

std::string WhyEnded(const Config& config, const train::RunState& state, const std::string& early_stop) {
  if (!early_stop.empty()) {
    return absl::StrCat("--early_stop has ended the training: ", early_stop,
                        "; to continue, raise its number or leave it out");
  }
  if (!HasPassedStopThreshold(config, state)) return "";
  return absl::StrCat("the stop threshold of ", *config.base.stop_threshold, " has ended the training: the metric was ",
                      *state.evaluated_metric, "; to continue, raise the threshold or leave it out");
}

void LogNothingToDo(const Config& config, const train::Schedule& schedule, const std::string& early_stop,
                    const train::Estimator& estimator) {
  const train::RunState& state = estimator.state();
  const std::string why = WhyEnded(config, state, early_stop);
  const std::optional<int64_t>& max_steps = schedule.max_train_steps;
  const std::string end =
      !why.empty() ? absl::StrCat(", where ", why)
      : max_steps && state.global_step >= *max_steps
          ? absl::StrCat(" of --max_train_steps=", *max_steps, "; to continue, raise it or leave it out")
      : schedule.steps ? absl::StrCat(" of --train_steps=", schedule.steps->total, "; to continue, raise --train_steps")
                       : absl::StrCat(", ", state.position.epoch, " of --train_epochs=", config.base.train_epochs,
                                      " epochs; to continue, raise --train_epochs");
  const std::string what = estimator.strategy().is_chief() ? config.train.model_dir : "the run";
  LOG(INFO) << "nothing to do: " << what << " is trained to step " << state.global_step << end
            << "; to start again, give --clean or another --model_dir";
  estimator.LogChangedFlags();
}

void LogEnd(const std::string& outcome, absl::string_view what, const train::Estimator& estimator,
            const logs::Progress* progress) {
  logs::Json::Object fields = {{"status", outcome}, {"global_step", estimator.global_step()}};
  std::string text(what);
  if (progress != nullptr) {
    absl::StrAppend(&text, ": ", progress->Summary());
    const logs::Json::Object summary = progress->SummaryFields();
    fields.insert(fields.end(), summary.begin(), summary.end());
  }
  const int64_t peak = misc::PeakMemory();
  absl::StrAppend(&text, ", peak memory ", misc::SizeText(static_cast<double>(peak)));
  fields.emplace_back("peak_memory_bytes", peak);
  LogCostsOfSums(estimator.strategy());
  logs::LogEvent("end", text, std::move(fields));
}

}  // namespace official::run
