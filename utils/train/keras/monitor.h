// What callbacks that look at a metric share.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/train/keras/callbacks.h"

namespace official::keras {

inline constexpr char kLearningRate[] = "learning_rate";

// Returns the value of a metric. InvalidArgument, naming the callback, if there is no such metric.
absl::StatusOr<double> ValueOf(const Logs& logs, const std::string& monitor, absl::string_view callback);
// Gives a metric a value; it comes last if it is new.
void SetLog(Logs& logs, const std::string& name, double value);

// Returns true if `value` is better than another by more than min_delta.
bool IsBetter(double value, double than, Mode mode, double min_delta);
// Returns a value than which every number is better.
double WorstOf(Mode mode);

}  // namespace official::keras
