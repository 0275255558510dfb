// The input of a run for tests of sessions: the examples of train::LinearModel (parameter_server_job.h).
#pragma once

#include "utils/data/held_rows.h"
#include "utils/run/input.h"
#include "utils/train/parameter_server_job.h"

namespace official::run {

inline Input ExamplesOfEpoch() {
  Input input;
  input.dataset = "examples";
  input.spec = train::SpecOfExample();
  input.num_train_examples = train::kExamples;
  input.train = [](const ReadOptions& options) { return train::Examples(-1, options.end_epoch)(options.start); };
  input.eval = [](const data::HeldRows&) { return train::Examples(-1, 1)({}); };
  return input;
}

}  // namespace official::run
