// The epochs of a call of fit: training, validation and what callbacks do between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/train/keras/callbacks.h"

namespace official::keras {

struct History {
  std::vector<int64_t> epochs;  // from 0
  std::vector<Logs> logs;       // of each
};

struct FitLoop {
  int64_t begin = 0, end = 1;  // the epochs to train, without `end`
  absl::Span<const std::unique_ptr<Callback>> callbacks = {};
  std::function<absl::StatusOr<Logs>(int64_t epoch)> train;
  std::function<absl::StatusOr<Logs>()> validate = nullptr;  // null: there is no validation data
};

// Runs the epochs until the end, or until a callback has stopped the training. Logs each epoch. Errors: those of the
// functions and of the callbacks.
absl::StatusOr<History> RunEpochs(const FitLoop& loop, Training& training);

// Returns InvalidArgument, with the name of the argument, if `steps` is below 1; unset is one pass over the data.
absl::Status CheckSteps(absl::string_view argument, std::optional<int64_t> steps);

}  // namespace official::keras
