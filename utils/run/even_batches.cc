#include "utils/run/even_batches.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/data/batch.h"
#include "utils/run/estimator_config.h"

namespace official::run {
namespace {

absl::Status Uneven(const Config& config, const train::EpochSize& epoch, int64_t examples, int64_t num_replicas) {
  const int64_t last_batch = (examples - 1) % epoch.batch_size + 1;
  std::string epochs;
  if (epoch.across_epochs) {
    epochs = absl::StrCat("--epochs_between_evals=", num_replicas / std::gcd(epoch.num_examples, num_replicas),
                          " and a multiple of it as --train_epochs, or ");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--distribution_strategy=", config.performance.distribution_strategy, ": ", examples, " examples are left ",
      epoch.across_epochs ? "until an evaluation" : "of an epoch", ", and with --batch_size=", epoch.batch_size,
      " the last batch of them, of ", last_batch, ", is no multiple of the ", num_replicas, " devices; ", epochs,
      "--num_replicas=", std::gcd(examples, num_replicas), " would work"));
}

}  // namespace

absl::Status CheckEvenBatches(const Config& config, const Input& input, const train::Schedule& schedule,
                              const train::Estimator& estimator) {
  if (!estimator.needs_even_batches()) return absl::OkStatus();
  const train::EpochSize epoch = EpochOf(config, input);
  const bool is_fixed = !epoch.carries_over && !epoch.steps;
  if (!is_fixed || schedule.steps) return absl::OkStatus();

  const int num_replicas = estimator.strategy().num_replicas_in_sync();
  const int64_t total_steps = train::TotalSteps(schedule, estimator.state(), epoch);
  const int64_t between = epoch.across_epochs ? schedule.epochs_between_evals : 1;
  data::Position begin = estimator.state().position;
  int64_t step = estimator.global_step();
  while (begin.epoch < schedule.train_epochs) {
    int64_t end = std::min(schedule.train_epochs, (begin.epoch / between + 1) * between);
    const int64_t examples = (end - begin.epoch) * epoch.num_examples - begin.index;
    const int64_t steps = (examples + epoch.batch_size - 1) / epoch.batch_size;
    step += steps;
    if (step > total_steps) break;  // --max_train_steps ends the training before
    if (examples % num_replicas != 0) return Uneven(config, epoch, examples, num_replicas);
    if (examples == between * epoch.num_examples) {  // so are all rounds of as many epochs
      const int64_t rounds = (schedule.train_epochs - end) / between;
      step += rounds * steps;
      end += rounds * between;
    }
    begin = {end, 0};
  }
  return absl::OkStatus();
}

}  // namespace official::run
