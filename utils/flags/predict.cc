#include "utils/flags/predict.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::vector<std::string>, predict, {},
          "Image files to classify with the latest checkpoint in --model_dir, instead of training.");

namespace official::flags {

FlagSpec PredictFlag() { return {.name = "predict", .key = true}; }

absl::Status CheckPredictWords(const CommandLine& command_line) {
  if (command_line.words().empty() || command_line.given("predict")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", command_line.words()[0], "' is not a flag; to classify image files, use --predict=FILE"));
}

std::vector<std::string> FilesToPredict(const CommandLine& command_line) {
  std::vector<std::string> files = absl::GetFlag(FLAGS_predict);
  if (!files.empty()) files.insert(files.end(), command_line.words().begin(), command_line.words().end());
  return files;
}

}  // namespace official::flags
