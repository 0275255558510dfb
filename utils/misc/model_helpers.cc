#include "utils/misc/model_helpers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"

namespace official::misc {
namespace {

namespace fs = std::filesystem;

constexpr int kIndex = 1;  // of a checkpoint, in the order of deletion

absl::Status FileError(absl::string_view what, const fs::path& path, const std::error_code& error) {
  const absl::Status status = files::ErrnoStatus(error.value(), what, path.string());
  return absl::Status(status.code(), absl::StrCat("--clean: ", status.message()));
}

absl::Status Refusal(const std::string& model_dir, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--clean would delete what is in --model_dir=", model_dir, ", but ", why, "; nothing was deleted"));
}

// Both are absolute, without links or dots.
bool IsSameOrInside(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

// Also true for what a run leaves that ends before its first checkpoint; but not for labels.txt, which data have, too.
bool IsWrittenByTraining(const std::string& file_name) {
  for (const absl::string_view name : {kStateFile, kFlagsFile, kMetricLog, kRunLog, absl::string_view("graph.pbtxt"),
                                       absl::string_view("algorithms.txt")}) {
    if (file_name == name) return true;
  }
  for (const absl::string_view prefix : {"model.ckpt", "events.out.tfevents.", "timeline-"}) {
    if (absl::StartsWith(file_name, prefix)) return true;
  }
  return absl::StartsWith(file_name, "records-") && absl::EndsWith(file_name, ".index");
}

// Returns what --clean deletes, or why it refuses to.
absl::StatusOr<std::vector<fs::path>> EntriesToDelete(const std::string& model_dir,
                                                      const std::vector<std::string>& keep) {
  std::vector<fs::path> entries;
  std::error_code error;
  const fs::file_status status = fs::status(model_dir, error);
  if (status.type() == fs::file_type::not_found) return entries;
  if (!fs::status_known(status)) return FileError("look at", model_dir, error);
  if (!fs::is_directory(status)) return Refusal(model_dir, "that is not a directory");
  const fs::path directory = fs::canonical(model_dir, error);
  if (error) return FileError("resolve", model_dir, error);

  if (directory == directory.root_path()) return Refusal(model_dir, "that is the root of the file system");
  if ((fs::status(directory, error).permissions() & fs::perms::sticky_bit) != fs::perms::none) {
    return Refusal(model_dir, "that directory is shared by all users");  // /tmp, /var/tmp, /dev/shm
  }
  const auto holds = [&directory](const fs::path& path) {
    std::error_code ignored;
    fs::path resolved = fs::canonical(path, ignored);
    if (ignored) {  // the prefix of a checkpoint is no file
      resolved = fs::canonical(absl::StrCat(path.string(), kIndexSuffix), ignored);
    }
    return !ignored && IsSameOrInside(resolved, directory);
  };
  if (const char* home = std::getenv("HOME"); home != nullptr && holds(home)) {
    return Refusal(model_dir, "your home directory is there");
  }
  if (holds(fs::current_path(error))) return Refusal(model_dir, "the working directory is there");
  for (const std::string& other : keep) {
    if (holds(other))
      return Refusal(model_dir,
                     absl::StrCat(other, ", which this run uses too, is there (to go on with the run, add --noclean)"));
  }

  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != "run.lock") entries.push_back(it->path());
  }
  if (error) return FileError("list", directory, error);
  if (entries.empty()) return entries;
  if (std::none_of(entries.begin(), entries.end(),
                   [](const fs::path& path) { return IsWrittenByTraining(path.filename().string()); })) {
    return Refusal(model_dir, absl::StrCat("nothing there looks like a training run (the first of ", entries.size(),
                                           " entries is ", entries.front().filename().string(),
                                           "); delete it by hand or choose another directory"));
  }
  return entries;
}

// Returns the key by which entries are deleted, the smallest first. What makes a checkpoint goes before all else, the
// oldest checkpoint first; what tells another --clean that this is a model_dir goes last.
std::tuple<int, size_t, std::string> OrderOfDeletion(const fs::path& entry) {
  const std::string name = entry.filename().string();
  const int kind = name == kStateFile                      ? 0
                   : absl::StrContains(name, kIndexSuffix) ? kIndex
                   : !IsWrittenByTraining(name)            ? kIndex + 1
                                                           : kIndex + 2;
  return {kind, name.size(), name};  // among names of the same form, the longer has the larger number
}

absl::Status Delete(const fs::path& entry) {
  std::error_code error;
  if (fs::symlink_status(entry, error).type() != fs::file_type::directory) {
    const absl::Status removed = files::RemoveFile(entry.string());
    return removed.ok() ? removed : absl::Status(removed.code(), absl::StrCat("--clean: ", removed.message()));
  }
  do {
    fs::remove_all(entry, error);
  } while (error == std::errc::interrupted);
  return error ? FileError("remove", entry, error) : absl::OkStatus();
}

}  // namespace

bool PastStopThreshold(std::optional<double> stop_threshold, double eval_metric) {
  // Metrics are floats: as such 0.95 is less than the double 0.95, which the threshold is.
  return stop_threshold.has_value() && static_cast<float>(eval_metric) >= static_cast<float>(*stop_threshold);
}

absl::StatusOr<bool> ApplyClean(const std::string& model_dir, const std::vector<std::string>& keep) {
  ASSIGN_OR_RETURN(std::vector<fs::path> entries, EntriesToDelete(model_dir, keep));
  std::sort(entries.begin(), entries.end(),
            [](const fs::path& a, const fs::path& b) { return OrderOfDeletion(a) < OrderOfDeletion(b); });
  const auto rest = std::find_if(entries.begin(), entries.end(),
                                 [](const fs::path& entry) { return std::get<0>(OrderOfDeletion(entry)) > kIndex; });
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry == rest) RETURN_IF_ERROR(files::SyncDirectory(model_dir));
    RETURN_IF_ERROR(Delete(*entry));
  }
  return !entries.empty();
}

absl::Status CheckClean(const std::string& model_dir, const std::vector<std::string>& keep) {
  return EntriesToDelete(model_dir, keep).status();
}

}  // namespace official::misc
