// ServedRun: what the servable of a model is opened with.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "official/serve/servable/servable.h"
#include "utils/flags/network.h"
#include "utils/run/config.h"

namespace official::serve {

struct ServedRun {
  run::Config config;         // model_dir, devices, precision
  flags::FlagValues trained;  // the flags of the last training in model_dir
  int top_k = 10;             // the number of items for a user
  flags::FlagValues moved;    // flags for files that are no longer where the training had them

  // Returns the value that a flag had in the training; `otherwise` if flags.txt does not have it.
  std::string Trained(absl::string_view flag, absl::string_view otherwise = "") const {
    const auto found = trained.find(flag);
    return std::string(found == trained.end() ? otherwise : absl::string_view(found->second));
  }

  // Returns the file that a flag names now; empty if it never did.
  std::string File(absl::string_view flag) const {
    const auto found = moved.find(flag);
    return found == moved.end() ? Trained(flag) : found->second;
  }
  // Returns the error to report where opening a run failed with `error`: where that is that the training's file is not
  // found, it names the flag. The name may be relative to the directory in which the training was started.
  absl::Status FileError(absl::string_view flag, const absl::Status& error) const;
};

}  // namespace official::serve
