#include "utils/train/checkpoint/state_file.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"

namespace official::train {
namespace {

constexpr int64_t kMaxStateFileBytes = 1 << 20;

class SilentErrors : public google::protobuf::io::ErrorCollector {
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

}  // namespace

std::optional<int64_t> StepOf(absl::string_view name) {
  int64_t step;
  if (!absl::ConsumePrefix(&name, misc::kCheckpointPrefix) || !absl::SimpleAtoi(name, &step)) return std::nullopt;
  // "007" is none, since the step would be looked for as "7".
  if (step < 0 || absl::StrCat(step) != name) return std::nullopt;
  return step;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

absl::StatusOr<std::set<int64_t>> StepsInDirectory(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(directory));
  std::set<int64_t> steps;
  for (absl::string_view name : names) {
    if (!absl::ConsumeSuffix(&name, misc::kIndexSuffix)) continue;
    if (const std::optional<int64_t> step = StepOf(name)) steps.insert(*step);
  }
  return steps;
}

absl::StatusOr<tensorflow::CheckpointState> ReadStateFile(const std::string& directory) {
  const std::string path = files::JoinPath(directory, misc::kStateFile);
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path, kMaxStateFileBytes));
  tensorflow::CheckpointState state;
  SilentErrors errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(8);
  if (!parser.ParseFromString(text, &state) || state.model_checkpoint_path().empty()) {
    return absl::DataLossError(absl::StrCat(path, ": ", text.empty() ? "is empty" : "is damaged or cut off"));
  }
  return state;
}

absl::Status WriteStateFile(const std::string& directory, const std::vector<std::string>& paths) {
  OFFICIAL_CHECK(!paths.empty());
  tensorflow::CheckpointState state;
  state.set_model_checkpoint_path(paths.back());
  for (const std::string& path : paths) state.add_all_model_checkpoint_paths(path);
  std::string text;
  OFFICIAL_CHECK(google::protobuf::TextFormat::PrintToString(state, &text));
  return files::WriteFileAtomically(files::JoinPath(directory, misc::kStateFile), text);
}

bool IsDamage(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsDataLoss(status); }

absl::Status RemoveCheckpoint(const std::string& directory, const std::string& path) {
  const std::string name = BaseName(path);
  std::error_code error;
  const std::string named = files::DirectoryOf(files::JoinPath(directory, path));
  if (!StepOf(name) || !std::filesystem::equivalent(named, directory, error)) return absl::OkStatus();
  // The index first: without it there is no checkpoint, whatever else is left.
  RETURN_IF_ERROR(files::RemoveFile(files::JoinPath(directory, absl::StrCat(name, misc::kIndexSuffix))));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files::ListDirectory(directory));
  for (const std::string& file : names) {
    if (file == absl::StrCat(name, misc::kMetaSuffix) || absl::StartsWith(file, name + ".data-")) {
      RETURN_IF_ERROR(files::RemoveFile(files::JoinPath(directory, file)));
    }
  }
  return absl::OkStatus();
}

}  // namespace official::train
