// The answer to --print_schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "utils/train/model.h"

namespace official::run {

struct SchedulePoint {
  int64_t step;  // updates that are finished before
  double learning_rate;
};

// Returns the learning rates of the updates of a run of `total_steps`: the first update of each rate and the last
// update, if there are at most 20 rates and 10 million steps; else 20 updates at equal distances, the first and the
// last among them.
std::vector<SchedulePoint> SchedulePoints(const train::LearningRateFn& learning_rate, int64_t total_steps);

// Returns a table of the points, each with its epoch, and a plot of block characters below it. `steps_per_epoch` is 0
// where there are no epochs.
std::string ScheduleTable(const train::LearningRateFn& learning_rate, int64_t total_steps, double steps_per_epoch);

}  // namespace official::run
