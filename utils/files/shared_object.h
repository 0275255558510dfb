// Where the shared objects lie that a program loads only when it needs them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace official::files {

// Returns the path of a shared object beside the program or, for a program that lies where Bazel put it, in the
// object's own package. Empty if there is none.
std::string FindSharedObject(absl::string_view name, absl::string_view package);

// Returns the folder of the program.
std::string ProgramFolder();

}  // namespace official::files
