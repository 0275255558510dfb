#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/checkpoint_tool/checkpoint.h"
#include "official/checkpoint_tool/commands.h"
#include "official/checkpoint_tool/values.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/flags/console.h"
#include "utils/logs/live_line.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/run_files.h"
#include "utils/misc/text.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

// The file is damaged or a part of it is missing, as opposed to a disk or rights that keep it from being read now.
bool IsBad(const absl::Status& status) { return absl::IsDataLoss(status) || absl::IsNotFound(status); }

// True if a checkpoint that had an index has none any more: that is removed first. A link that leads nowhere is one.
bool IsRemoved(const std::string& prefix) {
  std::error_code error;
  const auto index = std::filesystem::symlink_status(absl::StrCat(prefix, misc::kIndexSuffix), error);
  return index.type() == std::filesystem::file_type::not_found;
}

class Verifier {
 public:
  Verifier(const Options& options, std::ostream& out) : options_(options), out_(out) {}

  // Checks one checkpoint of several: that it cannot be opened is one of the things that may be bad. One that a
  // training has removed since it was listed does not count.
  absl::Status CheckOneOf(const std::string& prefix) {
    const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(prefix);
    if (checkpoint.ok()) return Check(*checkpoint);
    if (absl::IsNotFound(checkpoint.status()) && IsRemoved(prefix)) return absl::OkStatus();
    ++num_checkpoints_;
    if (!IsBad(checkpoint.status())) return checkpoint.status();
    PrintBad(checkpoint.status());
    return absl::OkStatus();
  }

  // Counts a checkpoint without an index, of which the message tells, as bad.
  void AddMissing(const std::string& message) {
    ++num_checkpoints_;
    PrintBad(absl::NotFoundError(message));
  }

  absl::Status Check(const Checkpoint& checkpoint) {
    ++num_checkpoints_;
    const std::vector<StoredTensor> variables = checkpoint.reader->ListTensors();
    int64_t num_bytes = 0;
    for (const StoredTensor& variable : variables) num_bytes += variable.num_bytes;
    logs::TaskProgress progress({.title = "verifying " + std::filesystem::path(checkpoint.path).filename().string(),
                                 .total = num_bytes,
                                 .unit = "B"});
    for (const StoredTensor& variable : variables) {
      const absl::Status status = CheckVariable(checkpoint, variable);
      if (!status.ok()) {
        if (!IsBad(status)) return status;
        PrintBad(status);
      }
      ++num_variables_;
      progress.Add(variable.num_bytes);
    }
    return absl::OkStatus();
  }

  absl::Status Summary() {
    if (options_.json) {
      flags::PrintJson(
          {{"event", "end"}, {"checkpoints", num_checkpoints_}, {"variables", num_variables_}, {"bad", num_bad_}},
          out_);
    }
    const std::string checked = absl::StrCat(num_variables_, " variables in ", num_checkpoints_,
                                             num_checkpoints_ == 1 ? " checkpoint" : " checkpoints");
    if (num_bad_ > 0) return absl::DataLossError(absl::StrCat(num_bad_, " errors in ", checked));
    if (!options_.json) out_ << checked << " are good\n";
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckVariable(const Checkpoint& checkpoint, const StoredTensor& variable) {
    if (!variable.dtype || !compute::IsFloating(*variable.dtype)) return checkpoint.reader->Verify(variable.name);
    ASSIGN_OR_RETURN(const compute::Tensor tensor, checkpoint.reader->Read(variable.name));
    const Statistics statistics = StatisticsOf(tensor);
    if (!statistics.first_nonfinite) return absl::OkStatus();
    const int64_t index = *statistics.first_nonfinite;
    const std::string place =
        variable.file.empty() ? ""
                              : absl::StrCat(" at offset ", variable.offset + index * compute::SizeOf(*variable.dtype));
    return absl::DataLossError(absl::StrFormat(
        "%s: variable %s (%s): %d of %d elements are not finite; the first, element %d%s, is %s",
        variable.file.empty() ? checkpoint.path : variable.file, misc::Printable(variable.name), TypeText(variable),
        statistics.num_nonfinite, tensor.num_elements(), index, place, ElementText(tensor, index)));
  }

  void PrintBad(const absl::Status& status) {
    ++num_bad_;
    const std::string message(status.message());
    logs::AboveLiveLine([&] {
      if (options_.json) {
        flags::PrintJson({{"event", "bad"}, {"message", message}}, out_);
      } else {
        out_ << message << std::endl;
      }
    });
  }

  const Options& options_;
  std::ostream& out_;
  int num_checkpoints_ = 0, num_variables_ = 0, num_bad_ = 0;
};

}  // namespace

absl::Status Verify(const Words& words, const Options& options, std::ostream& out) {
  const std::string path = train::CheckpointNamed(words[0]);
  Verifier verifier(options, out);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    ASSIGN_OR_RETURN(std::vector<std::string> prefixes, train::ListCheckpoints(path));
    const std::optional<std::string> latest = train::LatestCheckpointName(path);
    bool is_missing = latest && std::none_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
                        return std::filesystem::path(prefix).filename() == *latest;
                      });
    // It may have been saved since they were listed; or the state file is of another directory, from which all was
    // moved.
    if (is_missing && files::Exists(files::JoinPath(path, absl::StrCat(*latest, misc::kIndexSuffix)))) {
      prefixes.push_back(files::JoinPath(path, *latest));
      is_missing = false;
    }
    if (prefixes.empty() && !is_missing) return train::NoLatestCheckpoint(path);
    for (const std::string& prefix : prefixes) RETURN_IF_ERROR(verifier.CheckOneOf(prefix));
    if (is_missing) {
      const std::string name = misc::Printable(*latest);
      verifier.AddMissing(absl::StrCat(files::JoinPath(path, misc::kStateFile), " names ", name,
                                       " as the latest checkpoint, but ", files::JoinPath(path, name),
                                       ".index does not exist"));
    }
  } else {
    ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(words[0]));
    RETURN_IF_ERROR(verifier.Check(checkpoint));
  }
  return verifier.Summary();
}

}  // namespace official::checkpoint_tool
