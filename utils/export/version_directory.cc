#include "utils/export/version_directory.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/misc/stop_signals.h"

namespace official::exporting {
namespace {

// A directory that is removed with all in it unless it is renamed.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  absl::Status RenameTo(const std::string& path) {
    RETURN_IF_ERROR(files::Rename(path_, path));
    path_.clear();
    return absl::OkStatus();
  }

 private:
  std::string path_;
};

}  // namespace

absl::Status CheckNotStopped() {
  if (misc::StopSignalReceived() == 0) return absl::OkStatus();
  return absl::CancelledError(
      "stopped before the export was complete, so it is removed; the same command exports again");
}

absl::StatusOr<std::string> WriteVersion(const std::string& export_dir,
                                         const std::function<absl::Status(const std::string& directory)>& write) {
  RETURN_IF_ERROR(files::MakeDirectories(export_dir));
  int64_t version =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto final_path = [&] { return files::JoinPath(export_dir, absl::StrCat(version)); };
  const auto temporary_path = [&] { return files::JoinPath(export_dir, absl::StrCat("temp-", version)); };
  absl::Status made;
  do {
    while (files::Exists(final_path())) ++version;
    made = files::MakeNewDirectory(temporary_path());
  } while (absl::IsAlreadyExists(made) && ++version > 0);
  RETURN_IF_ERROR(made);
  TemporaryDirectory directory(temporary_path());
  RETURN_IF_ERROR(write(directory.path()));
  RETURN_IF_ERROR(CheckNotStopped());
  // All that is in it, before it has its name.
  RETURN_IF_ERROR(files::SyncDirectory(directory.path()));
  RETURN_IF_ERROR(directory.RenameTo(final_path()));
  RETURN_IF_ERROR(files::SyncDirectory(export_dir));
  return final_path();
}

}  // namespace official::exporting
