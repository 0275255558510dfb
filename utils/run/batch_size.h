// --batch_size=auto: the program chooses the batch size, by timing a few training steps with each of some sizes.
//
//   RETURN_IF_ERROR(run::ChooseBatchSize({.training = ...}, config, session.get()));
//
// stands after Session::Open, where the data are loaded, and before Session::Begin or Rehearse.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/run/config.h"
#include "utils/run/input.h"
#include "utils/run/session.h"
#include "utils/train/model.h"

namespace official::run {

// Training: what is trained with one batch size.
struct Training {
  train::Model model;
  Input input;
};

using TrainingFn = std::function<absl::StatusOr<Training>(int batch_size)>;

struct BatchSizeOptions {
  TrainingFn training;
  int64_t per_example = 1;                            // of what --batch_size counts; each device gets whole examples
  std::string counted = "examples";                   // what it counts
  int64_t largest = std::numeric_limits<int>::max();  // the largest batch size, of any number of examples
};

// Does nothing if config.base.batch_size is a number. If it is to be chosen (0), puts there, and into `session` if
// there is one, the smallest size that no tried one beats by over 5% in examples/s (batch_size_search.h). Of a size
// that fits, a training step, the variables and a copy of them need at most 80% of the memory that the host has free;
// on a device with memory of its own, its steps run and leave a quarter of what their intermediate values need. No
// batch has more examples than the training data. The steps train fresh variables; the model directory is neither read
// nor written. The number also takes the place of the word in config.train.flags_text, and the log says it and why.
// Errors: those of CheckBatchSize; ResourceExhausted if no size fits.
absl::Status ChooseBatchSize(const BatchSizeOptions& options, Config& config, Session* session);

// InvalidArgument if the batch size is to be chosen and this is one process of several, or has the devices of a PJRT
// plugin.
absl::Status CheckBatchSize(const Config& config);

}  // namespace official::run
