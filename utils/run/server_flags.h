// Flags that are not for runs in which parameter servers update the variables.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "utils/run/config.h"

namespace official::run {

// Returns refused(flag, advice), the error of such a flag, for the first that is given: "--dtype=bf16" and "use
// --dtype=fp32".
absl::Status CheckServerFlags(
    const Config& config, absl::FunctionRef<absl::Status(absl::string_view flag, absl::string_view advice)> refused);

}  // namespace official::run
