// ServedRun: what the servable of a model is opened with.
#pragma once

#include <string>

#include "official/serve/servable/servable.h"
#include "utils/flags/network.h"
#include "utils/run/config.h"

namespace official::serve {

struct ServedRun {
  run::Config config;         // model_dir, devices, precision
  flags::FlagValues trained;  // the flags of the last training in model_dir
  int top_k = 10;             // the number of items for a user

  // Returns the value that a flag had in the training; `otherwise` if flags.txt does not have it.
  std::string Trained(absl::string_view flag, absl::string_view otherwise = "") const {
    const auto found = trained.find(flag);
    return std::string(found == trained.end() ? otherwise : absl::string_view(found->second));
  }
};

}  // namespace official::serve
