// Facts of a run that no variable of its model tells, such as the data that it trains on: kept in the checkpoints as
// strings _run/NAME, which TensorFlow's Saver ignores, and compared when a run resumes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {

struct RunFact {
  std::string name;   // "train_data" is kept as _run/train_data
  std::string value;  // text; empty where this run does not know it, which keeps the checkpoint's
  // The message for a checkpoint with the value `before`, which is another.
  std::function<std::string(absl::string_view before)> difference;
  bool must_match = false;  // the message is an error and not a warning
  std::string before = "";  // what the checkpoint has, once it was compared; empty: nothing
};

// Logs the messages that are warnings; InvalidArgument with the first that is an error. A checkpoint without a fact
// (TensorFlow's, or of an earlier version) differs in nothing. Facts without a value take the checkpoint's. DataLoss if
// what the checkpoint has under the name of a fact is not a string.
absl::Status CompareFacts(const BundleReader& checkpoint, std::vector<RunFact>& facts);

// Adds the facts to the strings of a checkpoint.
void AddFacts(const std::vector<RunFact>& facts, std::map<std::string, std::string>& strings);

}  // namespace official::train
