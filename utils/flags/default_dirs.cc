#include "utils/flags/default_dirs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/files/user_dirs.h"

namespace official::flags {
namespace {

constexpr std::array<absl::string_view, 3> kDirectoryFlags = {"model_dir", "data_dir", "raw_dir"};

// Flags and their values.
std::vector<std::pair<std::string, std::string>> DirectoriesNotGiven(const CommandLine& command_line) {
  std::vector<std::pair<std::string, std::string>> directories;
  for (const CommandLine::Group& group : command_line.groups()) {
    for (const CommandLine::Flag& flag : group.flags) {
      const absl::string_view name = flag.spec.name;
      if (flag.given || std::find(kDirectoryFlags.begin(), kDirectoryFlags.end(), name) == kDirectoryFlags.end())
        continue;
      const std::string directory = flag.flag->CurrentValue();
      if (!directory.empty()) directories.emplace_back(name, directory);
    }
  }
  return directories;
}

}  // namespace

absl::Status CheckDefaultDirs(const CommandLine& command_line) {
  for (const auto& [flag, directory] : DirectoriesNotGiven(command_line)) {
    const absl::Status status = files::CheckOwner(directory);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat(status.message(), "; name one of your own with --", flag));
  }
  return absl::OkStatus();
}

std::vector<std::string> NotesOnFormerDefaults(const CommandLine& command_line) {
  std::vector<std::string> notes;
  for (const auto& [flag, directory] : DirectoriesNotGiven(command_line)) {
    const std::string former = files::FormerDefaultDir(directory);
    if (former.empty()) continue;
    notes.push_back(absl::StrCat("--", flag, " is ", directory, " now; to use what is in ", former,
                                 ", its former default, give --", flag, "=", former));
  }
  return notes;
}

}  // namespace official::flags
