#include "utils/train/checkpoint/checkpoint_dir.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"
#include "utils/misc/text.h"
#include "utils/protos/bundle.pb.h"
#include "utils/train/checkpoint/state_file.h"

namespace official::train {
namespace {

absl::StatusOr<std::unique_ptr<BundleReader>> OpenVerified(const std::string& prefix) {
  ASSIGN_OR_RETURN(std::unique_ptr<BundleReader> reader, BundleReader::Open(prefix));
  RETURN_IF_ERROR(reader->VerifyChecksums());
  return reader;
}

// Returns the same text for all paths of a checkpoint whose directory exists: TensorFlow's Saver lists absolute ones,
// and the user may name the directory by another one.
std::string CanonicalPrefix(const std::string& prefix) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::canonical(files::DirectoryOf(prefix), error);
  return error ? prefix : files::JoinPath(directory.string(), BaseName(prefix));
}

// The names of all checkpoints in a directory that have an index, whatever they are: "model.ckpt-600", "ckpt-5".
std::vector<std::string> NamesInDirectory(const std::string& directory) {
  std::vector<std::string> there;
  if (const auto names = files::ListDirectory(directory); names.ok()) {
    for (absl::string_view name : *names) {
      if (absl::ConsumeSuffix(&name, misc::kIndexSuffix)) there.emplace_back(name);
    }
  }
  return there;
}

// The error for a prefix without an index: names the checkpoints that may be meant.
absl::Status NoCheckpoint(const std::string& prefix) {
  const std::vector<std::string> nearest =
      misc::NearestNames(BaseName(prefix), NamesInDirectory(files::DirectoryOf(prefix)));
  std::string message = absl::StrCat("there is no checkpoint ", prefix, ": ", prefix, ".index does not exist");
  if (!nearest.empty()) absl::StrAppend(&message, "; did you mean ", absl::StrJoin(nearest, " or "), "?");
  return absl::NotFoundError(message);
}

// What to do with a file that is given in place of a directory or a checkpoint, if it is an archive; else `otherwise`.
std::string HowToName(const std::string& path, absl::string_view otherwise) {
  const bool is_archive = data::KindOfFile(path) == "a tar archive" || absl::StrContains(BaseName(path), ".tar.") ||
                          absl::EndsWith(path, ".tgz");
  if (!is_archive) return absl::StrCat("; ", otherwise);
  return absl::StrCat("; unpack it, tar xf ", path, ", and name the directory that it holds");
}

// The checkpoint with a prefix; `named` is what the user has written.
absl::StatusOr<LatestCheckpoint> OpenOne(const std::string& named, const std::string& prefix) {
  const std::string index = absl::StrCat(prefix, misc::kIndexSuffix);
  std::error_code error;
  if (!files::Exists(index)) {
    if (!std::filesystem::exists(named, error)) return NoCheckpoint(prefix);
    if (named != prefix) return absl::NotFoundError(absl::StrCat(named, " has no ", index, " with it"));
    const absl::string_view kind = data::KindOfFile(named);
    return absl::DataLossError(absl::StrCat(named, " is ", kind.empty() ? "no checkpoint" : kind,
                                            kind.empty() ? "" : ", not a checkpoint",
                                            HowToName(named,
                                                      "name the directory of a run, a checkpoint (run/model.ckpt-600) "
                                                      "or its .index")));
  }
  absl::StatusOr<std::unique_ptr<BundleReader>> reader = BundleReader::Open(prefix);
  if (absl::IsDataLoss(reader.status())) {
    return absl::DataLossError(absl::StrCat(reader.status().message(), data::KindNoteOfFile(index)));
  }
  RETURN_IF_ERROR(reader.status());
  return LatestCheckpoint{prefix, *std::move(reader), ""};
}

}  // namespace

std::optional<std::string> LatestCheckpointName(const std::string& model_dir) {
  const absl::StatusOr<tensorflow::CheckpointState> state = ReadStateFile(model_dir);
  if (!state.ok()) return std::nullopt;
  return BaseName(state->model_checkpoint_path());
}

absl::Status NoLatestCheckpoint(const std::string& directory) {
  constexpr size_t kMostNamed = 3;
  std::vector<std::string> prefixes;
  for (const std::string& name : NamesInDirectory(directory)) {
    prefixes.push_back(files::JoinPath(directory, misc::Printable(name)));
  }
  if (prefixes.empty()) return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", directory));
  const bool are_more = prefixes.size() > kMostNamed;
  prefixes.resize(std::min(prefixes.size(), kMostNamed));
  return absl::NotFoundError(absl::StrCat(directory, " has no state file that names its latest checkpoint; name one: ",
                                          absl::StrJoin(prefixes, ", "), are_more ? ", ..." : ""));
}

absl::Status CheckModelDir(const std::string& model_dir) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(model_dir, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(model_dir, " is a file, not the directory of a run",
                                                    HowToName(model_dir, "name the directory of a run")));
}

std::string CheckpointNamed(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return path;
  if (BaseName(path) == misc::kStateFile) return files::DirectoryOf(path);
  absl::string_view name = path;
  if (absl::ConsumeSuffix(&name, misc::kIndexSuffix) || absl::ConsumeSuffix(&name, misc::kMetaSuffix)) {
    return std::string(name);
  }
  const std::string base = BaseName(path);
  const size_t data = base.rfind(".data-");
  return data == base.npos ? path : path.substr(0, path.size() - base.size() + data);
}

absl::StatusOr<LatestCheckpoint> FindLatestCheckpoint(const std::string& model_dir) {
  if (!files::Exists(model_dir)) return LatestCheckpoint();
  RETURN_IF_ERROR(CheckModelDir(model_dir));
  std::vector<std::string> problems;
  std::set<std::string> tried;  // canonical prefixes
  // A copied state file may name the original's directory, in which this user may not even look.
  const std::string own_directory =
      files::DirectoryOf(CanonicalPrefix(files::JoinPath(model_dir, misc::kCheckpointPrefix)));
  const auto is_elsewhere = [&](const std::string& prefix) {
    return files::DirectoryOf(CanonicalPrefix(prefix)) != own_directory;
  };
  const auto try_prefix = [&](const std::string& prefix) -> absl::StatusOr<LatestCheckpoint> {
    if (!tried.insert(CanonicalPrefix(prefix)).second) return LatestCheckpoint();
    absl::StatusOr<std::unique_ptr<BundleReader>> reader = OpenVerified(prefix);
    if (!reader.ok()) {
      if (!IsDamage(reader.status()) && !(absl::IsPermissionDenied(reader.status()) && is_elsewhere(prefix))) {
        return reader.status();
      }
      problems.emplace_back(reader.status().message());
      return LatestCheckpoint();
    }
    std::string note;
    if (!problems.empty()) {
      note = absl::StrCat("using ", prefix, ", the latest intact checkpoint: ", absl::StrJoin(problems, "; "));
    }
    return LatestCheckpoint{prefix, *std::move(reader), std::move(note)};
  };

  const absl::StatusOr<tensorflow::CheckpointState> state = ReadStateFile(model_dir);
  if (state.ok()) {
    ASSIGN_OR_RETURN(LatestCheckpoint latest, try_prefix(files::JoinPath(model_dir, state->model_checkpoint_path())));
    if (latest.reader != nullptr) return latest;
  } else if (!IsDamage(state.status())) {
    return state.status();
  } else {
    problems.emplace_back(state.status().message());
  }

  // From here on the order is that of the steps: a lost state file has taken the order of saving with it. Names without
  // a step, such as the ckpt-5 of tf.train.CheckpointManager, come last, in the order of saving.
  std::vector<std::string> others;
  std::map<int64_t, std::string> prefixes;
  ASSIGN_OR_RETURN(const std::set<int64_t> steps, StepsInDirectory(model_dir));
  for (const int64_t step : steps)
    prefixes[step] = files::JoinPath(model_dir, absl::StrCat(misc::kCheckpointPrefix, step));
  if (state.ok()) {
    for (const std::string& path : state->all_model_checkpoint_paths()) {
      others.push_back(files::JoinPath(model_dir, path));
      if (const auto step = StepOf(BaseName(path))) prefixes.emplace(*step, others.back());
    }
  }
  for (const auto& [step, prefix] : prefixes) others.push_back(prefix);
  for (auto prefix = others.rbegin(); prefix != others.rend(); ++prefix) {
    ASSIGN_OR_RETURN(LatestCheckpoint latest, try_prefix(*prefix));
    if (latest.reader != nullptr) return latest;
  }
  if (tried.empty()) {
    // Nothing was ever saved here. An empty state file may be left of a first save that lost its power.
    return LatestCheckpoint{"", nullptr, absl::IsNotFound(state.status()) ? "" : problems[0]};
  }
  return absl::DataLossError(absl::StrCat("no checkpoint in ", model_dir, " is intact: ", absl::StrJoin(problems, "; "),
                                          ". Restore one of them, or remove the directory to start again"));
}

absl::StatusOr<LatestCheckpoint> OpenCheckpoint(const std::string& named) {
  const std::string path = CheckpointNamed(named);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return OpenOne(named, path);
  ASSIGN_OR_RETURN(LatestCheckpoint latest, FindLatestCheckpoint(path));
  if (latest.reader == nullptr) return NoLatestCheckpoint(path);
  return latest;
}

absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& model_dir) {
  const absl::StatusOr<tensorflow::CheckpointState> state = ReadStateFile(model_dir);
  if (!state.ok() && !IsDamage(state.status())) return state.status();
  std::vector<std::string> listed;
  if (state.ok()) {
    for (const std::string& path : state->all_model_checkpoint_paths()) {
      if (path != state->model_checkpoint_path()) listed.push_back(files::JoinPath(model_dir, path));
    }
    listed.push_back(files::JoinPath(model_dir, state->model_checkpoint_path()));
  }
  ASSIGN_OR_RETURN(const std::set<int64_t> steps, StepsInDirectory(model_dir));
  std::set<std::string> canonical;
  for (const std::string& prefix : listed) canonical.insert(CanonicalPrefix(prefix));
  std::vector<std::string> prefixes;
  for (const int64_t step : steps) {
    std::string prefix = files::JoinPath(model_dir, absl::StrCat(misc::kCheckpointPrefix, step));
    if (canonical.count(CanonicalPrefix(prefix)) == 0) prefixes.push_back(std::move(prefix));
  }
  for (std::string& prefix : listed) {
    if (files::Exists(absl::StrCat(prefix, misc::kIndexSuffix))) prefixes.push_back(std::move(prefix));
  }
  return prefixes;
}

absl::StatusOr<std::unique_ptr<CheckpointSaver>> CheckpointSaver::Open(const std::string& model_dir, int keep_max,
                                                                       std::string meta_graph) {
  OFFICIAL_CHECK(keep_max >= 0) << keep_max;
  RETURN_IF_ERROR(files::MakeDirectories(model_dir));
  // A directory in which nothing can be saved is better found now than after an hour of training.
  const std::string state_file = files::JoinPath(model_dir, misc::kStateFile);
  RETURN_IF_ERROR(files::CheckRegularOrMissing(state_file));
  RETURN_IF_ERROR(files::AtomicFile::Create(state_file).status());
  std::unique_ptr<CheckpointSaver> saver(new CheckpointSaver(model_dir, keep_max, std::move(meta_graph)));
  RETURN_IF_ERROR(saver->FinishInterruptedSaves());
  const absl::StatusOr<tensorflow::CheckpointState> state = ReadStateFile(model_dir);
  if (state.ok()) {
    const auto& paths = state->all_model_checkpoint_paths();
    // The latest is the last, once, also where the list lacks it or has it among the others.
    std::remove_copy(paths.begin(), paths.end(), std::back_inserter(saver->kept_), state->model_checkpoint_path());
    saver->kept_.push_back(state->model_checkpoint_path());
  } else {
    if (!IsDamage(state.status())) return state.status();
    ASSIGN_OR_RETURN(const std::set<int64_t> steps, StepsInDirectory(model_dir));
    for (const int64_t step : steps) saver->kept_.push_back(absl::StrCat(misc::kCheckpointPrefix, step));
  }
  RETURN_IF_ERROR(saver->FinishInterruptedRemovals());
  return saver;
}

// Removes the temporary files of a save that was cut short. If its data file has got its name already, the index, which
// was complete by then, gets its own too: another index of the same name would belong to data that is gone.
absl::Status CheckpointSaver::FinishInterruptedSaves() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files::ListDirectory(model_dir_));
  std::set<std::string> unnamed;  // the files that have a temporary name only
  for (const std::string& name : names) {
    if (const auto final_name = files::FinalNameOf(name)) unnamed.insert(*final_name);
  }
  // Backwards, so that an index goes before its data: killed in between, the next start must not take the data for
  // named.
  std::reverse(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::optional<std::string> final_name = files::FinalNameOf(name);
    if (!final_name) continue;
    absl::string_view base = *final_name;
    const bool is_index = absl::ConsumeSuffix(&base, misc::kIndexSuffix);
    const bool is_data = !is_index && absl::ConsumeSuffix(&base, misc::kDataSuffix);
    const bool is_meta = !is_index && !is_data && absl::ConsumeSuffix(&base, misc::kMetaSuffix);
    const bool is_ours =
        *final_name == misc::kStateFile || ((is_index || is_data || is_meta) && StepOf(base).has_value());
    if (!is_ours) continue;
    const std::string path = files::JoinPath(model_dir_, name);
    if (is_index && unnamed.count(absl::StrCat(base, misc::kDataSuffix)) == 0) {
      RETURN_IF_ERROR(files::Rename(path, files::JoinPath(model_dir_, *final_name)));
    } else {
      RETURN_IF_ERROR(files::RemoveFile(path));
    }
  }
  return files::SyncDirectory(model_dir_);
}

// The state file lists a checkpoint until all its files are removed, and the index goes first: what is listed without
// an index, before the latest, was being removed by a saver that was killed. Data without an index that no state file
// lists may be the same, of a saver that had another order, or what somebody is copying at this moment, the index being
// next. It is removed at the next save if it is older than all that is kept and still has no index then.
absl::Status CheckpointSaver::FinishInterruptedRemovals() {
  const auto has_index = [&](const std::string& path) {
    return files::Exists(absl::StrCat(files::JoinPath(model_dir_, path), misc::kIndexSuffix));
  };
  std::vector<std::string> kept;
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (i + 1 == kept_.size() || has_index(kept_[i])) {
      kept.push_back(kept_[i]);
    } else {
      RETURN_IF_ERROR(RemoveCheckpoint(model_dir_, kept_[i]));
    }
  }
  kept_ = std::move(kept);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(model_dir_));
  for (absl::string_view name : names) {
    if (!absl::ConsumeSuffix(&name, misc::kDataSuffix) || !StepOf(name) || has_index(std::string(name))) continue;
    data_without_index_.emplace(name);
  }
  return absl::OkStatus();
}

// A checkpoint of the same step that was replaced may have had more shards, and a graph.
absl::Status CheckpointSaver::RemoveReplaced(const std::string& name) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, files::ListDirectory(model_dir_));
  for (const std::string& file : files) {
    const bool is_other_shard =
        absl::StartsWith(file, name + ".data-") && file != absl::StrCat(name, misc::kDataSuffix);
    const bool is_other_graph = meta_graph_.empty() && file == absl::StrCat(name, misc::kMetaSuffix);
    if (is_other_shard || is_other_graph) RETURN_IF_ERROR(files::RemoveFile(files::JoinPath(model_dir_, file)));
  }
  return absl::OkStatus();
}

absl::Status CheckpointSaver::RemoveOldDataWithoutIndex() {
  if (keep_max_ == 0) return absl::OkStatus();
  int64_t oldest_kept = std::numeric_limits<int64_t>::max();
  for (const std::string& path : kept_) oldest_kept = std::min(oldest_kept, StepOf(BaseName(path)).value_or(0));
  for (const std::string& name : std::exchange(data_without_index_, {})) {
    const std::string path = files::JoinPath(model_dir_, name);
    if (*StepOf(name) >= oldest_kept || files::Exists(absl::StrCat(path, misc::kIndexSuffix))) continue;
    RETURN_IF_ERROR(files::RemoveFile(absl::StrCat(path, misc::kDataSuffix)));
  }
  return absl::OkStatus();
}

std::map<std::string, SavedStrings> Scalars(const std::map<std::string, std::string>& strings) {
  std::map<std::string, SavedStrings> scalars;
  for (const auto& [name, text] : strings) scalars[name] = {{}, {text}};
  return scalars;
}

absl::Status CheckpointSaver::Save(int64_t step, const std::map<std::string, compute::Tensor>& tensors,
                                   const std::map<std::string, std::string>& strings) {
  std::map<std::string, SavedTensor> in_turn;
  for (const auto& [name, tensor] : tensors) {
    in_turn[name] = {tensor.num_bytes(), [&tensor = tensor] { return tensor; }};
  }
  return SaveInTurn(step, in_turn, Scalars(strings));
}

absl::Status CheckpointSaver::SaveInTurn(int64_t step, const std::map<std::string, SavedTensor>& tensors,
                                         const std::map<std::string, SavedStrings>& strings) {
  const std::string name = absl::StrCat(misc::kCheckpointPrefix, step);
  absl::Status unread;
  const auto write = [&]() -> absl::Status {
    // Complete before the checkpoint is, so that a full disk does not leave one without the other.
    std::unique_ptr<files::AtomicFile> meta;
    if (!meta_graph_.empty()) {
      ASSIGN_OR_RETURN(meta,
                       files::AtomicFile::Create(files::JoinPath(model_dir_, absl::StrCat(name, misc::kMetaSuffix))));
      RETURN_IF_ERROR(meta->Append(meta_graph_));
      RETURN_IF_ERROR(meta->Finish());
    }
    ASSIGN_OR_RETURN(const auto bundle, BundleWriter::Create(files::JoinPath(model_dir_, name)));
    // All in the order of their names, tensors and strings alike, as TensorFlow's Saver does.
    auto string = strings.begin();
    const auto add_strings_before = [&](const std::string* bound) -> absl::Status {
      for (; string != strings.end() && (bound == nullptr || string->first < *bound); ++string) {
        RETURN_IF_ERROR(bundle->AddStrings(string->first, string->second.shape, string->second.values));
      }
      return absl::OkStatus();
    };
    for (const auto& [tensor_name, saved] : tensors) {
      RETURN_IF_ERROR(add_strings_before(&tensor_name));
      const absl::StatusOr<compute::Tensor> tensor = saved.read();
      if (unread = tensor.status(); !unread.ok()) return unread;
      RETURN_IF_ERROR(bundle->Add(tensor_name, *tensor));
    }
    RETURN_IF_ERROR(add_strings_before(nullptr));
    RETURN_IF_ERROR(bundle->Finish());
    return meta == nullptr ? absl::OkStatus() : meta->Publish();
  };
  const absl::Status status = write();
  RETURN_IF_ERROR(unread);
  if (!status.ok()) {
    int64_t bytes = 0;
    for (const auto& [tensor_name, saved] : tensors) bytes += saved.bytes;
    return absl::Status(status.code(), absl::StrCat("the checkpoint of step ", step, ", which needs ", bytes,
                                                    " bytes, was not saved: ", status.message()));
  }

  kept_.erase(
      std::remove_if(kept_.begin(), kept_.end(), [&](const std::string& path) { return BaseName(path) == name; }),
      kept_.end());
  kept_.push_back(name);
  // If all are kept, the list holds the last alone, as TensorFlow's does.
  const size_t listed = std::min<size_t>(keep_max_ > 0 ? keep_max_ : 1, kept_.size());
  const std::vector<std::string> surplus(kept_.begin(), kept_.end() - listed);
  if (keep_max_ > 0 && !surplus.empty()) {
    // They stay listed until they are gone: a saver that is killed here tells the next one so what to remove.
    RETURN_IF_ERROR(WriteStateFile(model_dir_, kept_));
    for (const std::string& path : surplus) RETURN_IF_ERROR(RemoveCheckpoint(model_dir_, path));
    RETURN_IF_ERROR(files::SyncDirectory(model_dir_));
  }
  kept_.erase(kept_.begin(), kept_.end() - listed);
  RETURN_IF_ERROR(WriteStateFile(model_dir_, kept_));
  RETURN_IF_ERROR(RemoveReplaced(name));
  return RemoveOldDataWithoutIndex();
}

}  // namespace official::train
