#include "utils/train/checkpoint/linked_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/files/link_or_copy.h"
#include "utils/misc/run_files.h"
#include "utils/train/checkpoint/state_file.h"

namespace official::train {
namespace {

std::string NameOf(int64_t step) { return absl::StrCat(misc::kCheckpointPrefix, step); }

// Removes data without an index: of a link or a removal that was cut short.
absl::Status RemoveDataWithoutIndex(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(directory));
  for (absl::string_view name : names) {
    if (!absl::ConsumeSuffix(&name, misc::kDataSuffix) || !StepOf(name)) continue;
    const std::string path = files::JoinPath(directory, name);
    if (!files::Exists(absl::StrCat(path, misc::kIndexSuffix)))
      RETURN_IF_ERROR(RemoveCheckpoint(directory, std::string(name)));
  }
  return absl::OkStatus();
}

// Gives the directory the checkpoint of model_dir, with its graph if there is one. The index is last: it makes the
// checkpoint.
absl::Status LinkCheckpoint(const std::string& model_dir, const std::string& directory, const std::string& name) {
  const std::string from = files::JoinPath(model_dir, name), to = files::JoinPath(directory, name);
  const auto is_same = [&](absl::string_view suffix) {
    std::error_code error;
    return std::filesystem::equivalent(absl::StrCat(from, suffix), absl::StrCat(to, suffix), error);
  };
  if (is_same(misc::kDataSuffix) && is_same(misc::kIndexSuffix)) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveCheckpoint(directory, name));
  for (const absl::string_view suffix : {misc::kDataSuffix, misc::kMetaSuffix, misc::kIndexSuffix}) {
    if (suffix == misc::kMetaSuffix && !files::Exists(absl::StrCat(from, suffix))) continue;
    RETURN_IF_ERROR(files::LinkOrCopy(absl::StrCat(from, suffix), absl::StrCat(to, suffix)));
    RETURN_IF_ERROR(files::SyncDirectory(directory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::set<int64_t>> LinkedSteps(const std::string& directory) {
  if (!files::Exists(directory)) return std::set<int64_t>();
  return StepsInDirectory(directory);
}

absl::Status LinkCheckpoints(const std::string& model_dir, const std::string& directory,
                             const std::vector<int64_t>& steps, int64_t present) {
  RETURN_IF_ERROR(files::MakeDirectories(directory));
  RETURN_IF_ERROR(RemoveDataWithoutIndex(directory));
  if (std::find(steps.begin(), steps.end(), present) != steps.end()) {
    RETURN_IF_ERROR(LinkCheckpoint(model_dir, directory, NameOf(present)));
  }
  std::vector<std::string> surplus, kept;
  ASSIGN_OR_RETURN(const std::set<int64_t> there, StepsInDirectory(directory));
  for (const int64_t step : there) {
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) surplus.push_back(NameOf(step));
  }
  for (const int64_t step : steps) kept.push_back(NameOf(step));
  // The latest is in the state file before another one, which may have been the latest, is removed.
  RETURN_IF_ERROR(WriteStateFile(directory, kept));
  for (const std::string& name : surplus) RETURN_IF_ERROR(RemoveCheckpoint(directory, name));
  return files::SyncDirectory(directory);
}

}  // namespace official::train
