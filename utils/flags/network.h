// The flags of a network: those that decide which variables it has, or what they mean. A training keeps all its flags
// in flags.txt in --model_dir, and whoever uses what it trained needs the same network.
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
  // The part of a value that concerns the network, in one spelling for all values of the same network; unset: the
  // value, and an empty one is left to the data.
  std::function<std::string(absl::string_view value)> part = nullptr;
  // The value is a list of which later items win: one that is given is appended to that of the training.
  bool appends = false;

  // Whether the value says nothing of the network.
  bool IsLeftToData(absl::string_view value) const { return part == nullptr && value.empty(); }
  std::string Part(absl::string_view value) const { return part == nullptr ? std::string(value) : part(value); }
};

// Values of flags by name.
using FlagValues = std::map<std::string, std::string, std::less<>>;

// All flags of the last training in `model_dir`, from flags.txt. Empty if there is no checkpoint in `model_dir`, or no
// flags.txt that can be read and is a text of less than a megabyte. Lines that are no flags are left out.
FlagValues FlagsOfTraining(const std::string& model_dir);

// InvalidArgument, naming the flags with both values, if `present` describes another network than `trained`. Compared
// are the flags that both have, and that neither leaves to the data.
absl::Status CheckSameNetwork(const std::string& model_dir, absl::Span<const NetworkFlag> network,
                              const FlagValues& present, const FlagValues& trained);

}  // namespace official::flags
