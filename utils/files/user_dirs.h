// The default directories for a user's files.
//
// They lie below the home directory, by the rules of the XDG Base Directory Specification. TensorFlow's official models
// keep them in /tmp, where any other user can make a directory of that name first, and where files are removed after
// some days. Without a home directory they are in /tmp here, too, and files::CheckOwner checks whose they are.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace official::files {

// Returns ${XDG_DATA_HOME:-$HOME/.local/share}/official-models/<name>, for what must not be lost, such as trained
// models.
std::string DefaultModelDir(absl::string_view name);

// Returns ${XDG_CACHE_HOME:-$HOME/.cache}/official-models/<name>, for what can be downloaded or made again.
std::string DefaultDataDir(absl::string_view name);

// Returns the former default in /tmp for `directory`, a default one, if `directory` is missing and the user has files
// in the former; else "".
std::string FormerDefaultDir(const std::string& directory);

}  // namespace official::files
