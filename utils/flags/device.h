// The flags that choose a TPU of a cloud in TensorFlow. A run uses the TPU of its own machine: --tpu may say so, and
// the others have no effect.
#pragma once

#include "utils/flags/flag_group.h"

namespace official::flags {

FlagGroup DeviceFlags();

}  // namespace official::flags
