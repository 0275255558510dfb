// The names of flags in older official models and in other training programs.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace official::flags {

// Returns what to write instead of `name`, which a program does not know: its first flag of the same meaning, e.g.
// "--num_gpus=-1 (all GPUs)" for "multi_gpu"; "" if there is none. `has` tells which flags the program has.
std::string InPlaceOf(absl::string_view name, const std::function<bool(absl::string_view)>& has);

// Returns the value of --dtype for a type's name in TensorFlow or PyTorch, e.g. "fp16" for "half"; "" if there is none.
absl::string_view DTypeInPlaceOf(absl::string_view name);

}  // namespace official::flags
