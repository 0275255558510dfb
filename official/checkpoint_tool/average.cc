#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "official/checkpoint_tool/checkpoint.h"
#include "official/checkpoint_tool/commands.h"
#include "official/checkpoint_tool/progress.h"
#include "official/checkpoint_tool/values.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/flags/console.h"
#include "utils/misc/run_files.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/run_lock.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

absl::StatusOr<std::vector<std::string>> LastCheckpoints(const std::string& directory, int count) {
  const std::string path = train::CheckpointNamed(directory);
  if (!IsDirectory(path)) {
    return absl::NotFoundError(absl::StrCat("--last=", count, " needs the directory of a run; ", path, " is none"));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> prefixes, train::ListCheckpoints(path));
  if (static_cast<int>(prefixes.size()) < count) {
    return absl::NotFoundError(absl::StrFormat("--last=%d, but %s has %d checkpoints; a run keeps 5 by default", count,
                                               path, prefixes.size()));
  }
  prefixes.erase(prefixes.begin(), prefixes.end() - count);
  return prefixes;
}

absl::StatusOr<std::vector<Checkpoint>> OpenAll(const std::vector<std::string>& paths) {
  std::vector<Checkpoint> checkpoints;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(path));
    checkpoints.push_back(std::move(checkpoint));
  }
  return checkpoints;
}

// The mean is taken of floating variables; the state of a run (its loss scale, say) is one of a moment.
bool IsAveraged(const StoredTensor& variable) {
  return variable.dtype && compute::IsFloating(*variable.dtype) && !absl::StartsWith(variable.name, train::kRunPrefix);
}

absl::Status CheckSameVariables(const Checkpoint& checkpoint, const Checkpoint& last) {
  const auto variables_of = [](const Checkpoint& of) {
    std::vector<std::string> texts;
    for (const StoredTensor& variable : of.reader->ListTensors()) {
      if (!absl::StartsWith(variable.name, train::kRunPrefix)) {
        texts.push_back(absl::StrCat(misc::Printable(variable.name), " (", TypeText(variable), ")"));
      }
    }
    return texts;
  };
  const std::vector<std::string> here = variables_of(checkpoint), there = variables_of(last);
  const auto [a, b] = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
  if (a == here.end() && b == there.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(checkpoint.path, " and ", last.path, " do not have the same variables: the first that differs is ",
                   a == here.end() ? "missing" : *a, " and ", b == there.end() ? "missing" : *b,
                   "; \"checkpoint_tool diff\" shows all"));
}

absl::StatusOr<int64_t> GlobalStep(const Checkpoint& checkpoint) {
  const std::optional<StoredTensor> found = checkpoint.reader->Find("global_step");
  if (!found || found->dtype != compute::DType::kInt64 || found->shape.num_elements() != 1) return 0;
  ASSIGN_OR_RETURN(const compute::Tensor step, checkpoint.reader->Read("global_step"));
  return std::max<int64_t>(step.scalar<int64_t>(), 0);
}

absl::Status CheckOutputDirectory(const std::string& directory, const std::vector<Checkpoint>& sources,
                                  bool overwrite) {
  for (const Checkpoint& source : sources) {
    if (!IsSameFile(directory, files::DirectoryOf(source.path))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(directory, " is the directory of ", source.path, "; write the average to another one"));
  }
  if (!files::Exists(directory)) return files::CheckCanWriteIn(directory);
  if (!IsDirectory(directory)) {
    return absl::FailedPreconditionError(absl::StrCat(directory, " is no directory; name another one"));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(directory));
  if (names.empty() || overwrite) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(directory, " exists and is not empty; add --overwrite to write the average into it"));
}

// Writes the checkpoint last: until it is there, the directory has none.
absl::Status WriteAverage(std::vector<Checkpoint>& sources, int64_t step, const std::string& directory) {
  std::vector<Checkpoint*> all;
  for (Checkpoint& source : sources) all.push_back(&source);
  const ReadingProgress progress("averaging", all);
  const Checkpoint& last = sources.back();
  std::map<std::string, train::SavedTensor> tensors;
  std::map<std::string, train::SavedStrings> strings;
  for (const StoredTensor& variable : last.reader->ListTensors()) {
    const std::string& name = variable.name;
    RETURN_IF_ERROR(CheckVariableName(name));
    if (IsAveraged(variable)) {
      const auto mean = [&sources, name, type = compute::TensorType{*variable.dtype, variable.shape}] {
        return MeanOf(type, static_cast<int>(sources.size()), [&](int i) { return sources[i].reader->Read(name); });
      };
      tensors[name] = {variable.num_bytes, mean};
    } else if (variable.dtype_name == "string") {
      ASSIGN_OR_RETURN(std::vector<std::string> texts, last.reader->ReadStrings(name));
      strings[name] = {variable.shape, std::move(texts)};
    } else {
      tensors[name] = {variable.num_bytes, [&last, name] { return last.reader->Read(name); }};
    }
  }
  // All that are there already are kept.
  ASSIGN_OR_RETURN(const auto saver, train::CheckpointSaver::Open(directory, /*keep_max=*/0));
  RETURN_IF_ERROR(misc::CopyRunFiles(files::DirectoryOf(last.path), directory));
  return saver->SaveInTurn(step, tensors, strings);
}

void RemoveRunFiles(const std::string& directory) {
  for (const absl::string_view name : misc::kRunFiles) {
    files::RemoveFile(files::JoinPath(directory, name)).IgnoreError();
  }
}

}  // namespace

absl::Status Average(const Words& words, const Options& options, std::ostream& out) {
  const std::string& directory = words[0];
  std::vector<std::string> paths(words.begin() + 1, words.end());
  if (options.last) {
    if (paths.size() != 1)
      return absl::InvalidArgumentError("--last takes one directory: average --last=N OUT DIRECTORY");
    ASSIGN_OR_RETURN(paths, LastCheckpoints(paths[0], *options.last));
  }
  if (paths.size() < 2) {
    return absl::InvalidArgumentError(
        "an average needs two checkpoints or more: average OUT A B..., or average --last=N OUT DIRECTORY");
  }
  ASSIGN_OR_RETURN(std::vector<Checkpoint> sources, OpenAll(paths));
  for (const Checkpoint& source : sources) RETURN_IF_ERROR(CheckSameVariables(source, sources.back()));
  RETURN_IF_ERROR(CheckOutputDirectory(directory, sources, options.overwrite));
  ASSIGN_OR_RETURN(const int64_t step, GlobalStep(sources.back()));
  {
    const bool is_new = !files::Exists(directory);
    ASSIGN_OR_RETURN(const auto lock, train::RunLock::Acquire(directory));
    if (const absl::Status status = WriteAverage(sources, step, directory); !status.ok()) {
      if (is_new) RemoveRunFiles(directory);  // the lock removes the empty directory
      return status;
    }
  }
  const std::string prefix = files::JoinPath(directory, absl::StrCat(misc::kCheckpointPrefix, step));
  if (options.json) {
    logs::Json::Array averaged;
    for (const Checkpoint& source : sources) averaged.push_back(source.path);
    flags::PrintJson({{"event", "end"}, {"path", prefix}, {"averaged", std::move(averaged)}}, out);
    return absl::OkStatus();
  }
  for (const Checkpoint& source : sources) out << "averaged " << source.path << "\n";
  out << "wrote " << prefix << "\n";
  return absl::OkStatus();
}

}  // namespace official::checkpoint_tool
