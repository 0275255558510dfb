// The flags of a network: those that decide which variables it has, or what they mean. A training keeps all its flags
// in flags.txt in --model_dir, since programs that use what it trained need the same network.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace official::flags {

struct NetworkFlag {
  std::string name;
  // Returns the part of a value that concerns the network, in one spelling for all values of the same network. Unset:
  // the part is the value, and an empty value is left to the data.
  std::function<std::string(absl::string_view value)> part = nullptr;
  // True: the value is a list in which later items take precedence; a given one is appended to that of the training.
  bool appends = false;

  // True if the value says nothing about the network.
  bool IsLeftToData(absl::string_view value) const { return part == nullptr && value.empty(); }
  std::string Part(absl::string_view value) const { return part == nullptr ? std::string(value) : part(value); }
};

// Values of flags by name.
using FlagValues = std::map<std::string, std::string, std::less<>>;

// Returns all flags of the last training in `model_dir`, from flags.txt. Empty if there is no checkpoint in
// `model_dir`, or no flags.txt that can be read and is a text of less than a megabyte. Lines that are not flags are
// left out.
FlagValues FlagsOfTraining(const std::string& model_dir);

// Returns InvalidArgument, naming the flags with both values, if `present` describes another network than `trained`.
// Flags are compared if both have them and neither leaves them to the data.
absl::Status CheckSameNetwork(const std::string& model_dir, absl::Span<const NetworkFlag> network,
                              const FlagValues& present, const FlagValues& trained);

}  // namespace official::flags
