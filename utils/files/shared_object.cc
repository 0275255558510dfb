#include "utils/files/shared_object.h"

#include <filesystem>
#include <system_error>

namespace official::files {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string ProgramFolder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

std::string FindSharedObject(absl::string_view name, absl::string_view package) {
  std::error_code error;
  const fs::path folder = ProgramFolder();
  const fs::path beside = folder / std::string(name);
  if (fs::exists(beside, error)) return beside.string();
  for (fs::path dir = folder; dir.has_relative_path(); dir = dir.parent_path()) {
    if (dir.filename() != "bin") continue;
    const fs::path built = dir / std::string(package) / std::string(name);
    if (fs::exists(built, error)) return built.string();
  }
  return "";
}

}  // namespace official::files
