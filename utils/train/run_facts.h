// Facts of a run that are not in its model's variables, such as the data that it trains on: kept in the checkpoints as
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
  std::string value;  // text; empty: not known to this run, which keeps the checkpoint's
  // Returns the message for a checkpoint with the different value `before`.
  std::function<std::string(absl::string_view before)> difference;
  bool must_match = false;  // true: the message is an error, not a warning
  std::string before = "";  // the checkpoint's value, once compared; empty: none
};

// Compares facts with a checkpoint's. Logs the messages that are warnings; InvalidArgument with the first that is an
// error. A fact that the checkpoint does not have (TensorFlow's, or of an earlier version) is no difference. Facts
// without a value take the checkpoint's. DataLoss if the checkpoint's value for a fact is not a string.
absl::Status CompareFacts(const BundleReader& checkpoint, std::vector<RunFact>& facts);

// Adds the facts to the strings of a checkpoint.
void AddFacts(const std::vector<RunFact>& facts, std::map<std::string, std::string>& strings);

}  // namespace official::train
