#include "utils/train/rounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace official::train {
namespace {

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The step at which all training ends; unset: it ends with the epochs.
std::optional<int64_t> MaxSteps(const Schedule& schedule) {
  if (!schedule.steps) return schedule.max_train_steps;
  return std::min(schedule.steps->total, schedule.max_train_steps.value_or(schedule.steps->total));
}

// True if the epochs are over for this worker.
bool OwnDataHaveEnded(const Schedule& schedule, const data::Position& position) {
  return !schedule.steps && position.epoch >= schedule.train_epochs;
}

// True if they are for all workers.
bool DataHaveEnded(const Schedule& schedule, const RunState& state) {
  const std::vector<data::Position>& others = state.worker_positions;
  const auto ended = [&](const data::Position& position) { return OwnDataHaveEnded(schedule, position); };
  return ended(state.position) && std::all_of(others.begin(), others.end(), ended);
}

// The first epoch after the train call that begins in `epoch`.
int64_t EndEpoch(const Schedule& schedule, int64_t epoch) {
  const int64_t between = schedule.epochs_between_evals;
  return std::min(schedule.train_epochs, (epoch / between + 1) * between);
}

// For epochs that carry over: the steps from the start of the run to `position`, which may be beyond the end of its
// epoch if it was left with other data.
int64_t StepsBefore(const data::Position& position, const EpochSize& epoch) {
  return std::min(position.epoch * epoch.num_examples / epoch.batch_size + position.index / epoch.batch_size,
                  (position.epoch + 1) * epoch.num_examples / epoch.batch_size);
}

// The steps that are left in the epochs.
int64_t StepsLeft(const Schedule& schedule, const data::Position& position, const EpochSize& epoch) {
  if (epoch.steps) {
    // An epoch that has begun has as many steps left as it has examples.
    const double left = static_cast<double>(schedule.train_epochs - position.epoch) -
                        static_cast<double>(position.index) / static_cast<double>(epoch.num_examples);
    return static_cast<int64_t>(std::ceil(left * static_cast<double>(*epoch.steps)));
  }
  if (epoch.carries_over) return StepsBefore({schedule.train_epochs, 0}, epoch) - StepsBefore(position, epoch);
  if (!epoch.across_epochs) {
    return (schedule.train_epochs - position.epoch) * DivideUp(epoch.num_examples, epoch.batch_size) -
           position.index / epoch.batch_size;
  }
  // Each train call ends with a batch of what is left. All but the first and the last have as many epochs.
  if (position.epoch >= schedule.train_epochs) return 0;
  const auto steps_of = [&epoch](int64_t num_epochs, int64_t done) {
    return DivideUp(num_epochs * epoch.num_examples - done, epoch.batch_size);
  };
  const int64_t between = schedule.epochs_between_evals;
  const int64_t first_end = EndEpoch(schedule, position.epoch);
  const int64_t epochs_after = schedule.train_epochs - first_end;
  return steps_of(first_end - position.epoch, position.index) + epochs_after / between * steps_of(between, 0) +
         steps_of(epochs_after % between, 0);
}

}  // namespace

bool IsTrained(const Schedule& schedule, const RunState& state) {
  const std::optional<int64_t> max_steps = MaxSteps(schedule);
  return DataHaveEnded(schedule, state) || (max_steps && state.global_step >= *max_steps);
}

bool IsEvaluated(const RunState& state) { return state.evaluated_step == state.global_step; }

bool EvaluationIsDue(const Schedule& schedule, const RunState& state) {
  if (state.position == data::Position{} || IsEvaluated(state)) return false;
  if (IsTrained(schedule, state)) return true;
  if (OwnDataHaveEnded(schedule, state.position)) return false;  // other workers have still to train
  // With parameter servers the steps of other workers may be beyond the one at which it became due.
  if (schedule.steps) {
    const int64_t between = schedule.steps->between_evals;
    return state.global_step / between > state.evaluated_step.value_or(0) / between;
  }
  return state.position.index == 0 && state.position.epoch % schedule.epochs_between_evals == 0;
}

TrainUntil NextEvaluation(const Schedule& schedule, const RunState& state) {
  if (!schedule.steps) return {EndEpoch(schedule, state.position.epoch), MaxSteps(schedule)};
  const int64_t between = schedule.steps->between_evals;
  return {data::kEndless, std::min(*MaxSteps(schedule), (state.global_step / between + 1) * between)};
}

TrainingEnds EndOf(const Schedule& schedule, const TrainUntil& until) {
  if (schedule.steps) return until.max_steps == MaxSteps(schedule) ? TrainingEnds::kAtMaxSteps : TrainingEnds::kLater;
  return until.end_epoch == schedule.train_epochs ? TrainingEnds::kAtMaxStepsOrData : TrainingEnds::kAtMaxSteps;
}

int64_t LastEpoch(const RunState& state) { return state.position.epoch + (state.position.index > 0 ? 1 : 0); }

int64_t EvaluationNumber(const Schedule& schedule, const RunState& state) {
  if (schedule.steps) return DivideUp(state.global_step, schedule.steps->between_evals);
  return DivideUp(LastEpoch(state), schedule.epochs_between_evals);
}

int64_t TotalSteps(const Schedule& schedule, const RunState& state, const EpochSize& epoch) {
  const std::optional<int64_t> max_steps = MaxSteps(schedule);
  if (schedule.steps) return *max_steps;
  const int64_t total = state.global_step + StepsLeft(schedule, state.position, epoch);
  return std::min(total, max_steps.value_or(total));
}

std::vector<int64_t> ExamplesOfCalls(const Schedule& schedule, const RunState& state, const EpochSize& epoch) {
  const int64_t most_steps = MaxSteps(schedule).value_or(std::numeric_limits<int64_t>::max());
  const int64_t between = epoch.across_epochs ? schedule.epochs_between_evals : 1;
  std::vector<int64_t> all;
  int64_t step = state.global_step;
  for (data::Position begin = state.position; begin.epoch < schedule.train_epochs;) {
    int64_t end = epoch.across_epochs ? EndEpoch(schedule, begin.epoch) : begin.epoch + 1;
    const int64_t examples = (end - begin.epoch) * epoch.num_examples - begin.index;
    const int64_t steps = DivideUp(examples, epoch.batch_size);
    step += steps;
    if (step > most_steps) break;
    if (std::find(all.begin(), all.end(), examples) == all.end()) all.push_back(examples);
    if (examples == between * epoch.num_examples) {  // so are all that follow, but for a last one of fewer epochs
      const int64_t more = std::min((schedule.train_epochs - end) / between, (most_steps - step) / steps);
      step += more * steps;
      end += more * between;
    }
    begin = {end, 0};
  }
  return all;
}

int64_t EvaluationsLeft(const Schedule& schedule, const RunState& state, const EpochSize& epoch) {
  const int64_t steps_left = TotalSteps(schedule, state, epoch) - state.global_step;
  if (steps_left <= 0) return EvaluationIsDue(schedule, state) ? 1 : 0;
  if (schedule.steps) {
    const int64_t between = schedule.steps->between_evals;
    return DivideUp(state.global_step + steps_left, between) - state.global_step / between;
  }
  const int64_t between = schedule.epochs_between_evals;
  if (epoch.carries_over) {
    const int64_t last_step = StepsBefore(state.position, epoch) + steps_left;
    return DivideUp(DivideUp(last_step * epoch.batch_size, epoch.num_examples), between) -
           state.position.epoch / between;
  }
  const int64_t steps_of_epoch = epoch.steps.value_or(DivideUp(epoch.num_examples, epoch.batch_size));
  const int64_t done =
      state.position.epoch * steps_of_epoch + state.position.index * steps_of_epoch / epoch.num_examples;
  const int64_t end_epoch = std::min(schedule.train_epochs, DivideUp(done + steps_left, steps_of_epoch));
  return DivideUp(end_epoch, between) - state.position.epoch / between;
}

}  // namespace official::train
