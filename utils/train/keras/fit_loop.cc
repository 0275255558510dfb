#include "utils/train/keras/fit_loop.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::keras {

absl::StatusOr<History> RunEpochs(const FitLoop& loop, Training& training) {
  History history;
  training.stop_training = false;
  for (const auto& callback : loop.callbacks) RETURN_IF_ERROR(callback->OnTrainBegin(training));
  for (int64_t epoch = loop.begin; epoch < loop.end && !training.stop_training; ++epoch) {
    for (const auto& callback : loop.callbacks) RETURN_IF_ERROR(callback->OnEpochBegin(epoch, training));
    ASSIGN_OR_RETURN(Logs logs, loop.train(epoch));
    if (loop.validate != nullptr) {
      ASSIGN_OR_RETURN(const Logs validation, loop.validate());
      for (const auto& [name, value] : validation) logs.emplace_back(absl::StrCat("val_", name), value);
    }
    const auto append = [](std::string* out, const auto& log) {
      absl::StrAppendFormat(out, "%s: %.4g", log.first, log.second);
    };
    LOG(INFO) << "Epoch " << epoch + 1 << "/" << loop.end << " - " << absl::StrJoin(logs, " - ", append);
    for (const auto& callback : loop.callbacks) RETURN_IF_ERROR(callback->OnEpochEnd(epoch, logs, training));
    history.epochs.push_back(epoch);
    history.logs.push_back(std::move(logs));
  }
  for (const auto& callback : loop.callbacks) RETURN_IF_ERROR(callback->OnTrainEnd(training));
  return history;
}

absl::Status CheckSteps(absl::string_view argument, std::optional<int64_t> steps) {
  if (steps.value_or(1) >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(argument, "=", *steps, "; give at least 1, or leave it unset for one pass over the data"));
}

}  // namespace official::keras
