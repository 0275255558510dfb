#include "utils/train/rounds.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace official::train {
namespace {

constexpr int64_t kExamples = 100, kBatch = 30;

// Plays a run that trains and evaluates as the schedule says: "t3 e t7 e" trains to step 3, evaluates, ... A step of an
// epoch takes kBatch examples, the last those that are left.
std::string Play(const Schedule& schedule, RunState state = {}) {
  std::string played;
  while (!IsTrained(schedule, state) || EvaluationIsDue(schedule, state)) {
    if (!EvaluationIsDue(schedule, state)) {
      const TrainUntil until = NextEvaluation(schedule, state);
      while (state.position.epoch < until.end_epoch && (!until.max_steps || state.global_step < *until.max_steps)) {
        ++state.global_step;
        state.position.index += kBatch;
        if (state.position.index >= kExamples) state.position = {state.position.epoch + 1, 0};
      }
      absl::StrAppend(&played, "t", state.global_step, " ");
    }
    if (!EvaluationIsDue(schedule, state)) continue;
    absl::StrAppend(&played, "e", EvaluationNumber(schedule, state), " ");
    state.evaluated_step = state.global_step;
  }
  return played;
}

TEST_CASE("Rounds of training and evaluation") {
  struct Case {
    Schedule schedule;
    RunState state;
    std::string played;
  };
  for (const Case& c : std::vector<Case>{
           {{.train_epochs = 2}, {}, "t4 e1 t8 e2 "},
           {{.train_epochs = 3, .epochs_between_evals = 2}, {}, "t8 e1 t12 e2 "},
           {{.train_epochs = 0}, {}, ""},
           // The limit of steps ends the training in an epoch, which is evaluated then.
           {{.train_epochs = 2, .max_train_steps = 5}, {}, "t4 e1 t5 e2 "},
           {{.train_epochs = 2, .max_train_steps = 4}, {}, "t4 e1 "},
           // A resumed run has the rounds that it would have had.
           {{.train_epochs = 3, .epochs_between_evals = 2}, {.global_step = 4, .position = {1, 0}}, "t8 e1 t12 e2 "},
           {{.train_epochs = 2}, {.global_step = 6, .position = {1, 60}, .evaluated_step = 4}, "t8 e2 "},
           // Stopped between training and evaluation, and after it.
           {{.train_epochs = 2}, {.global_step = 4, .position = {1, 0}}, "e1 t8 e2 "},
           {{.train_epochs = 2}, {.global_step = 8, .position = {2, 0}, .evaluated_step = 8}, ""},
           // All workers have done their parts; one has not, but the steps are done.
           {{.train_epochs = 2}, {.global_step = 8, .position = {2, 0}, .worker_positions = {{2, 0}, {2, 0}}}, "e2 "},
           {{.train_epochs = 2, .max_train_steps = 8},
            {.global_step = 8, .position = {2, 0}, .worker_positions = {{2, 0}, {1, 30}}},
            "e2 "},
           // Steps, whatever the epochs.
           {{.steps = Schedule::Steps{10, 5}}, {}, "t5 e1 t10 e2 "},
           {{.steps = Schedule::Steps{10, 5}, .max_train_steps = 7}, {}, "t5 e1 t7 e2 "},
           {{.steps = Schedule::Steps{10, 5}}, {.global_step = 3, .position = {0, 90}}, "t5 e1 t10 e2 "}}) {
    CHECK(Play(c.schedule, c.state) == c.played);
  }
}

TEST_CASE("Training is not done while another worker has still to train") {
  const Schedule schedule = {.train_epochs = 2};
  RunState state = {.global_step = 6, .position = {2, 0}, .worker_positions = {{2, 0}, {1, 30}}};
  CHECK_FALSE(IsTrained(schedule, state));
  CHECK_FALSE(EvaluationIsDue(schedule, state));
  CHECK(NextEvaluation(schedule, state).end_epoch == 2);
  CHECK(EndOf(schedule, NextEvaluation(schedule, state)) == TrainingEnds::kAtMaxStepsOrData);
  state.worker_positions[1] = {2, 0};
  CHECK(IsTrained(schedule, state));
  CHECK(EvaluationIsDue(schedule, state));
  // The other way round: this worker has still to train.
  state = {.global_step = 6, .position = {1, 30}, .worker_positions = {{1, 30}, {2, 0}}};
  CHECK_FALSE(IsTrained(schedule, state));
}

TEST_CASE("The step at which all training ends") {
  struct Case {
    Schedule schedule;
    RunState state;
    EpochSize epoch;
    int64_t total;
  };
  const EpochSize apart = {.num_examples = kExamples, .batch_size = kBatch};
  const EpochSize across = {.num_examples = kExamples, .batch_size = kBatch, .across_epochs = true};
  const EpochSize carries = {.num_examples = kExamples, .batch_size = kBatch, .carries_over = true};
  const EpochSize told = {.num_examples = kExamples, .batch_size = kBatch, .steps = 7};
  for (const Case& c : std::vector<Case>{
           {{.train_epochs = 3}, {}, apart, 12},
           {{.train_epochs = 3, .max_train_steps = 5}, {}, apart, 5},
           {{.train_epochs = 3, .max_train_steps = 50}, {}, apart, 12},
           {{.train_epochs = 3}, {.global_step = 6, .position = {1, 60}}, apart, 12},
           {{.train_epochs = 3, .epochs_between_evals = 3}, {}, across, 10},
           {{.train_epochs = 3}, {}, across, 12},
           {{.train_epochs = 3, .epochs_between_evals = 2}, {}, across, 11},
           {{.train_epochs = 3, .epochs_between_evals = 3}, {.global_step = 4, .position = {1, 20}}, across, 10},
           // The ten examples that an epoch of three steps leaves over make a step of each third one.
           {{.train_epochs = 20}, {}, carries, 66},
           {{.train_epochs = 20, .epochs_between_evals = 7}, {}, carries, 66},
           {{.train_epochs = 20, .max_train_steps = 50}, {}, carries, 50},
           {{.train_epochs = 20}, {.global_step = 3, .position = {1, 0}}, carries, 66},
           {{.train_epochs = 20}, {.global_step = 9, .position = {2, 90}}, carries, 66},
           {{.train_epochs = 20}, {.global_step = 66, .position = {20, 0}}, carries, 66},
           // Resumed with fewer examples: the second epoch, to step 6, is over.
           {{.train_epochs = 3}, {.global_step = 20, .position = {1, 150}}, carries, 24},
           {{.train_epochs = 3}, {}, told, 21},
           {{.train_epochs = 3}, {.global_step = 10, .position = {1, 50}}, told, 21},
           {{.steps = Schedule::Steps{10, 5}}, {}, told, 10},
           {{.steps = Schedule::Steps{10, 5}, .max_train_steps = 7}, {}, told, 7}}) {
    CHECK(TotalSteps(c.schedule, c.state, c.epoch) == c.total);
  }
}

// The sum over the train calls, each of which ends with a batch of what is left.
int64_t StepsCallByCall(const Schedule& schedule, data::Position position, const EpochSize& epoch) {
  int64_t steps = 0;
  while (position.epoch < schedule.train_epochs) {
    const int64_t end = NextEvaluation(schedule, {.position = position}).end_epoch;
    const int64_t examples = (end - position.epoch) * epoch.num_examples - position.index;
    steps += (examples + epoch.batch_size - 1) / epoch.batch_size;
    position = {end, 0};
  }
  return steps;
}

TEST_CASE("Batches across epochs are those of all train calls, however many epochs there are") {
  const EpochSize across = {.num_examples = kExamples, .batch_size = kBatch, .across_epochs = true};
  for (int64_t epochs = 0; epochs <= 9; ++epochs) {
    for (int64_t between = 1; between <= 10; ++between) {
      const Schedule schedule = {.train_epochs = epochs, .epochs_between_evals = between};
      for (const data::Position& position : std::vector<data::Position>{{0, 0}, {0, 90}, {2, 20}, {3, 0}, {9, 0}}) {
        INFO(epochs << " epochs, " << between << " between evaluations, from " << position.epoch << ", "
                    << position.index);
        const RunState state = {.global_step = 5, .position = position};
        CHECK(TotalSteps(schedule, state, across) == 5 + StepsCallByCall(schedule, position, across));
      }
    }
  }
  // By hand: 4 steps of each epoch; 7 of each two epochs, and 4 of the last one.
  constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
  CHECK(TotalSteps({.train_epochs = kMany}, {}, across) == 4 * kMany);
  CHECK(TotalSteps({.train_epochs = kMany, .epochs_between_evals = 2}, {}, across) == (kMany - 1) / 2 * 7 + 4);
  CHECK(TotalSteps({.train_epochs = kMany, .max_train_steps = 1}, {}, across) == 1);
}

TEST_CASE("The evaluations that are left are those of the run") {
  const EpochSize apart = {.num_examples = kExamples, .batch_size = kBatch};
  const RunState in_second = {.global_step = 6, .position = {1, 60}, .evaluated_step = 4};
  const RunState after_second = {.global_step = 8, .position = {2, 0}, .evaluated_step = 8};
  const RunState ended = {.global_step = 12, .position = {3, 0}, .evaluated_step = 12};
  for (const RunState& state : {RunState{}, in_second, after_second, ended}) {
    for (const Schedule& schedule : std::vector<Schedule>{{.train_epochs = 3},
                                                          {.train_epochs = 3, .epochs_between_evals = 2},
                                                          {.train_epochs = 3, .epochs_between_evals = 3},
                                                          {.train_epochs = 3, .max_train_steps = 5},
                                                          {.train_epochs = 3, .max_train_steps = 9},
                                                          {.steps = Schedule::Steps{12, 4}},
                                                          {.steps = Schedule::Steps{12, 4}, .max_train_steps = 9}}) {
      const std::string played = Play(schedule, state);
      INFO("from step " << state.global_step << ": " << played);
      CHECK(EvaluationsLeft(schedule, state, apart) == std::count(played.begin(), played.end(), 'e'));
    }
  }
}

TEST_CASE("The evaluations that are left of epochs whose steps are another number") {
  // 30 examples a step, also over the end of an epoch, where a round may end so or not; 7 steps an epoch, whatever
  // examples they have.
  const EpochSize across = {.num_examples = kExamples, .batch_size = kBatch, .across_epochs = true};
  const EpochSize carries = {.num_examples = kExamples, .batch_size = kBatch, .carries_over = true};
  const EpochSize told = {.num_examples = kExamples, .batch_size = kBatch, .steps = 7};
  struct Case {
    Schedule schedule;
    RunState state;
    EpochSize epoch;
    int64_t evaluations;
  };
  for (const Case& c : std::vector<Case>{
           {{.train_epochs = 3}, {}, across, 3},
           {{.train_epochs = 4, .epochs_between_evals = 2}, {.global_step = 7, .position = {2, 0}}, across, 1},
           {{.train_epochs = 4, .epochs_between_evals = 2}, {.global_step = 4, .position = {1, 20}}, across, 2},
           {{.train_epochs = 20}, {}, carries, 20},
           {{.train_epochs = 20, .epochs_between_evals = 7}, {}, carries, 3},
           {{.train_epochs = 20}, {.global_step = 9, .position = {2, 90}, .evaluated_step = 6}, carries, 18},
           {{.train_epochs = 20, .max_train_steps = 6}, {}, carries, 2},
           {{.train_epochs = 20, .max_train_steps = 7}, {}, carries, 3},
           {{.train_epochs = 3}, {}, told, 3},
           {{.train_epochs = 3}, {.global_step = 10, .position = {1, 50}}, told, 2},
           {{.train_epochs = 3, .max_train_steps = 12}, {.global_step = 10, .position = {1, 50}}, told, 1},
           {{.train_epochs = 3, .max_train_steps = 14}, {.global_step = 10, .position = {1, 50}}, told, 1},
           {{.train_epochs = 3}, {.global_step = 21, .position = {3, 0}, .evaluated_step = 21}, told, 0}}) {
    INFO("step " << c.state.global_step
                 << (c.epoch.across_epochs  ? ", across epochs"
                     : c.epoch.carries_over ? ", carried over"
                                            : ""));
    CHECK(EvaluationsLeft(c.schedule, c.state, c.epoch) == c.evaluations);
  }
}

TEST_CASE("The examples of the train calls") {
  const EpochSize apart = {.num_examples = 40, .batch_size = 16};
  const EpochSize across = {.num_examples = 40, .batch_size = 16, .across_epochs = true};
  struct Case {
    Schedule schedule;
    RunState state;
    EpochSize epoch;
    std::vector<int64_t> examples;
  };
  for (const Case& c :
       std::vector<Case>{{{.train_epochs = 3}, {}, apart, {40}},
                         {{.train_epochs = 3, .epochs_between_evals = 2}, {}, apart, {40}},
                         {{.train_epochs = 3}, {.global_step = 1, .position = {0, 16}}, apart, {24, 40}},
                         {{.train_epochs = 3}, {.global_step = 9, .position = {3, 0}}, apart, {}},
                         {{.train_epochs = 3, .max_train_steps = 2}, {}, apart, {}},
                         {{.train_epochs = 3, .max_train_steps = 3}, {}, apart, {40}},
                         {{.train_epochs = 7, .epochs_between_evals = 3}, {}, across, {120, 40}},
                         {{.train_epochs = 6, .epochs_between_evals = 3}, {}, across, {120}},
                         {{.train_epochs = 7, .epochs_between_evals = 3},
                          {.global_step = 3, .position = {1, 8}},
                          across,
                          {72, 120, 40}},
                         // Of 8, 8 and 3 steps.
                         {{.train_epochs = 7, .epochs_between_evals = 3, .max_train_steps = 18}, {}, across, {120}},
                         {{.train_epochs = 7, .epochs_between_evals = 3, .max_train_steps = 19}, {}, across, {120, 40}},
                         {{.train_epochs = (int64_t{1} << 31) - 1, .epochs_between_evals = 2}, {}, across, {80, 40}}}) {
    INFO("from epoch " << c.state.position.epoch << " of " << c.schedule.train_epochs);
    CHECK(ExamplesOfCalls(c.schedule, c.state, c.epoch) == c.examples);
  }
}

TEST_CASE("The last epoch trained") {
  CHECK(LastEpoch({}) == 0);
  CHECK(LastEpoch({.position = {0, 30}}) == 1);
  CHECK(LastEpoch({.position = {1, 0}}) == 1);
}

}  // namespace
}  // namespace official::train
