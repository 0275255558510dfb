// The flag of programs that can predict from files: --predict=a.png,b.png, or --predict a.png b.png.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/flags/command_line.h"

namespace official::flags {

FlagSpec PredictFlag();

// A validator: words that are not flags may only follow --predict, which names a file if it is on the command line.
absl::Status CheckPredictWords(const CommandLine& command_line);

// Returns the files that the flag and the words after it name; none if the program is not to predict.
std::vector<std::string> FilesToPredict(const CommandLine& command_line);

}  // namespace official::flags
