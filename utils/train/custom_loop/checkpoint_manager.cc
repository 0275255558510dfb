#include "utils/train/custom_loop/checkpoint_manager.h"

#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::train {

using compute::Tensor;

namespace {

// Returns the step at the end of a checkpoint's name: 600 of "run/model.ckpt-600".
absl::StatusOr<int64_t> StepOfCheckpoint(const std::string& prefix) {
  const std::string name = std::filesystem::path(prefix).filename().string();
  const size_t dash = name.rfind('-');
  int64_t step;
  if (dash != name.npos && absl::SimpleAtoi(name.substr(dash + 1), &step)) return step;
  return absl::InvalidArgumentError(
      absl::StrCat("the name of the latest checkpoint, ", prefix,
                   ", does not end in its step; rename its files and its entry in the state file as model.ckpt-600, or "
                   "train in another directory"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointManager>> CheckpointManager::Open(distribute::Trackable& variables,
                                                                           const std::string& directory,
                                                                           int max_to_keep) {
  std::unique_ptr<CheckpointManager> manager(new CheckpointManager(variables, directory));
  const auto open = [&]() -> absl::StatusOr<std::string> {
    if (!variables.is_chief()) return "";
    ASSIGN_OR_RETURN(manager->saver_, CheckpointSaver::Open(directory, max_to_keep));
    return "";
  };
  RETURN_IF_ERROR(variables.FromChief(open()).status());
  return manager;
}

absl::StatusOr<std::optional<int64_t>> CheckpointManager::RestoreLatest(const RestoreOptions& options) {
  std::shared_ptr<BundleReader> reader;
  const auto find = [&]() -> absl::StatusOr<std::string> {
    if (!variables_.is_chief()) return "";
    ASSIGN_OR_RETURN(LatestCheckpoint latest, FindLatestCheckpoint(directory_));
    if (!latest.note.empty()) {
      LOG(WARNING) << latest.note;
    }
    if (latest.reader == nullptr) return "";
    reader = std::move(latest.reader);
    ASSIGN_OR_RETURN(const int64_t step, StepOfCheckpoint(latest.prefix));
    return absl::StrCat(step);
  };
  ASSIGN_OR_RETURN(const std::string step, variables_.FromChief(find()));
  int64_t number;
  if (!absl::SimpleAtoi(step, &number)) return std::nullopt;
  constexpr char kAdvice[] = "; restore it with the program that has trained it, or train in another directory";
  // Those that are made later may be new ones.
  const auto must_have = std::make_shared<bool>(options.assert_existing_objects_matched);
  const auto read = [=](const compute::VariableSpec& spec) -> absl::StatusOr<std::optional<Tensor>> {
    const std::optional<StoredTensor> found = reader->Find(spec.name);
    if (!found && !*must_have) return std::nullopt;
    if (!found) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint ", reader->prefix(), " has no variable ", spec.name,
                                                     ", and this program has one", kAdvice));
    }
    if (found->dtype != spec.type.dtype || found->shape != spec.type.shape) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint ", reader->prefix(), " has variable ", spec.name,
                                                     " as ", found->dtype_name, found->shape.ToString(),
                                                     ", and this program as ", spec.type.ToString(), kAdvice));
    }
    ASSIGN_OR_RETURN(Tensor value, reader->Read(spec.name));
    return value;
  };
  RETURN_IF_ERROR(variables_.RestoreVariables(read));
  *must_have = false;
  return number;
}

absl::Status CheckpointManager::Save(int64_t step) {
  std::map<std::string, Tensor> values;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, variables_.TrackedNames());
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(values[name], variables_.ReadTracked(name));
  }
  const auto save = [&]() -> absl::StatusOr<std::string> {
    if (saver_ != nullptr) RETURN_IF_ERROR(saver_->Save(step, values));
    return "";
  };
  return variables_.FromChief(save()).status();
}

}  // namespace official::train
