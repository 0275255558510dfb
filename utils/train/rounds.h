// The rounds of a run: training, then an evaluation, until all epochs or steps are done. Pure functions of the schedule
// and of how far the run has come, so that a run that was killed and resumed has the rounds of one that was not.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "utils/train/config.h"
#include "utils/train/run_state.h"

namespace official::train {

struct Schedule {
  int64_t train_epochs = 1;  // of the whole training
  int64_t epochs_between_evals = 1;
  // Train so many steps in all and evaluate after every so many, whatever the epochs.
  struct Steps {
    int64_t total, between_evals;
  };
  std::optional<Steps> steps = std::nullopt;
  std::optional<int64_t> max_train_steps = std::nullopt;  // ends the training at this step
};

// The end of one train call.
struct TrainUntil {
  int64_t end_epoch;                 // before this epoch, from 0; data::kEndless: never
  std::optional<int64_t> max_steps;  // or at this step
};

// True if all training is done, with parameter servers by all workers.
bool IsTrained(const Schedule& schedule, const RunState& state);

// True if the present step was evaluated.
bool IsEvaluated(const RunState& state);

// True if the present step is to be evaluated, and was not yet. Evaluations are due after every epochs_between_evals
// epochs, or between_evals steps, of the whole training, wherever a run began, and at its end; a run that was stopped
// between training and evaluation leaves the evaluation to the next.
bool EvaluationIsDue(const Schedule& schedule, const RunState& state);

// Returns the end of the train call that leads to the next evaluation.
TrainUntil NextEvaluation(const Schedule& schedule, const RunState& state);

// Returns what of that call ends the whole training.
TrainingEnds EndOf(const Schedule& schedule, const TrainUntil& until);

// Returns the number, from 1, of the epoch of the last batch; 0 before the first.
int64_t LastEpoch(const RunState& state);

// Returns the number, from 1, of the evaluation that is made now.
int64_t EvaluationNumber(const Schedule& schedule, const RunState& state);

// The size of an epoch.
struct EpochSize {
  int64_t num_examples = 0, batch_size = 1;
  bool across_epochs = false;  // true: a batch may continue into the next epoch of the same train call
  // True: all batches have batch_size examples; those that do not fill a batch at the end of an epoch begin the next
  // epoch, also after an evaluation, and are left out at the end of all training.
  bool carries_over = false;
  std::optional<int64_t> steps = std::nullopt;  // set where it does not follow from the batch size
};

// Returns the step at which all training will end.
int64_t TotalSteps(const Schedule& schedule, const RunState& state, const EpochSize& epoch);

// Returns how many examples the train calls from now on have, or where batches end with an epoch the epochs: each
// number once, in order. Of a call that max_train_steps ends before its last batch it is left out. Not for epochs that
// carry over or whose steps are set.
std::vector<int64_t> ExamplesOfCalls(const Schedule& schedule, const RunState& state, const EpochSize& epoch);

// Returns the number of evaluations from now to the end of all training.
int64_t EvaluationsLeft(const Schedule& schedule, const RunState& state, const EpochSize& epoch);

}  // namespace official::train
