#include "utils/files/user_dirs.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::files {
namespace {

constexpr char kFormerParent[] = "/tmp";

// The value of a variable that names a directory; empty if it does not. The specification has relative paths ignored;
// the root is the home of users who have none; and flags, which these values become, have no control characters.
std::string DirectoryFrom(const char* variable) {
  const char* const value = std::getenv(variable);
  const std::string path = value == nullptr ? "" : value;
  const bool is_usable =
      path.size() > 1 && path[0] == '/' && std::none_of(path.begin(), path.end(), absl::ascii_iscntrl);
  return is_usable ? path : "";
}

std::string DefaultDir(const char* variable, absl::string_view below_home, absl::string_view name) {
  std::string parent = DirectoryFrom(variable);
  if (parent.empty()) {
    const std::string home = DirectoryFrom("HOME");
    if (home.empty()) return JoinPath(kFormerParent, name);
    parent = JoinPath(home, below_home);
  }
  return JoinPath(JoinPath(parent, "official-models"), name);
}

}  // namespace

std::string DefaultModelDir(absl::string_view name) { return DefaultDir("XDG_DATA_HOME", ".local/share", name); }

std::string DefaultDataDir(absl::string_view name) { return DefaultDir("XDG_CACHE_HOME", ".cache", name); }

std::string FormerDefaultDir(const std::string& directory) {
  const std::string former = JoinPath(kFormerParent, directory.substr(directory.rfind('/') + 1));
  const bool is_used = !Exists(directory) && CheckOwner(former).ok() &&
                       !ListDirectory(former).value_or(std::vector<std::string>()).empty();
  return is_used ? former : "";
}

}  // namespace official::files
