#include "utils/run/even_batches.h"

#include <cstdint>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/run/estimator_config.h"

namespace official::run {

absl::Status CheckEvenBatches(const Config& config, const Input& input, const train::Schedule& schedule,
                              const train::Estimator& estimator) {
  const int64_t multiple = estimator.batch_multiple();
  if (multiple == 1) return absl::OkStatus();
  const std::string devices = absl::StrCat("--distribution_strategy=", config.performance.distribution_strategy,
                                           " needs batches that are multiples of ", multiple,
                                           ", the number of devices or, of all devices, micro-batches");
  const train::EpochSize epoch = EpochOf(config, input, /*batches_per_step=*/1);
  if (epoch.batch_size % multiple != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(devices, ", and --batch_size=", epoch.batch_size,
                     " is none; try --batch_size=", (epoch.batch_size + multiple - 1) / multiple * multiple));
  }
  if (epoch.carries_over || epoch.steps || schedule.steps) return absl::OkStatus();

  const train::RunState& state = estimator.state();
  int64_t divides_all = multiple, uneven = 0;
  for (const int64_t examples : train::ExamplesOfCalls(schedule, state, epoch)) {
    divides_all = std::gcd(divides_all, examples);
    if (uneven == 0 && examples % multiple != 0) uneven = examples;
  }
  if (uneven == 0) return absl::OkStatus();
  const int num_replicas = estimator.strategy().num_replicas_in_sync();
  std::string advice;
  if (multiple != num_replicas) {  // micro-batches need equal shares only where the devices sum in the model
    advice = "leave out --sync_batch_norm";
    if (divides_all % num_replicas == 0) absl::StrAppend(&advice, ", or train without gradient accumulation");
  } else {
    advice = absl::StrCat("--num_replicas=", divides_all, " would work");
    const bool is_new = state.position.epoch == 0 && state.position.index == 0;
    if (epoch.across_epochs && is_new) {
      absl::StrAppend(&advice, ", or --epochs_between_evals=", multiple / std::gcd(epoch.num_examples, multiple),
                      " with a multiple of it as --train_epochs");
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      devices, ": ", uneven, " examples are left ", epoch.across_epochs ? "until an evaluation" : "of an epoch",
      ", and with --batch_size=", epoch.batch_size, " the last batch of them has ", (uneven - 1) % epoch.batch_size + 1,
      "; ", advice));
}

}  // namespace official::run
