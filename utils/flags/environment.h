// The environment variables that the programs, and the libraries that they use, read.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace official::flags {

struct EnvironmentVariable {
  std::string name;
  std::string value;  // without secrets
};

// Returns those of `environment`, a list of "NAME=value" that ends with nullptr, sorted by name. In place of a value
// that may be a secret, by the name of the variable, stands "(not shown)", and in URLs "***" in place of user and
// password.
std::vector<EnvironmentVariable> VariablesThatAreRead(const char* const* environment);

// Returns those of them that change how a run computes: threads, instructions, GPUs and their libraries.
std::vector<EnvironmentVariable> VariablesThatChangeRuns(const char* const* environment);

}  // namespace official::flags
