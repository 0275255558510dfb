#include "utils/flags/predict.h"

#include <algorithm>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

ABSL_FLAG(
    std::vector<std::string>, predict, {},
    "Image files to classify with the latest checkpoint in --model_dir, instead of training; - reads the names of the "
    "files from standard input, a line each, and prints the results of a line as soon as they are computed.");

namespace official::flags {

FlagSpec PredictFlag() { return {.name = "predict", .key = true}; }

absl::Status CheckPredictWords(const CommandLine& command_line) {
  const std::vector<std::string> files = FilesToPredict(command_line);
  if (files.size() > 1 && std::find(files.begin(), files.end(), "-") != files.end()) {
    return FlagError("predict", "needs to be - alone, or names of files without it; name the file ./-");
  }
  if (!files.empty()) return absl::OkStatus();
  // In a flag file the empty value is the default.
  if (command_line.given("predict")) return FlagError("predict", "names no file; without the flag, the program trains");
  if (command_line.words().empty()) return absl::OkStatus();
  RETURN_IF_ERROR(command_line.CheckFirstWord());
  return absl::InvalidArgumentError(
      absl::StrCat("'", command_line.words()[0], "' is not a flag; to classify image files, use --predict=FILE"));
}

std::vector<std::string> FilesToPredict(const CommandLine& command_line) {
  std::vector<std::string> files = absl::GetFlag(FLAGS_predict);
  if (!files.empty()) files.insert(files.end(), command_line.words().begin(), command_line.words().end());
  return files;
}

}  // namespace official::flags
