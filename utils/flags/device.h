// The flags that choose a TPU in TensorFlow. There are none here, so --tpu is refused and the others have no effect.
#pragma once

#include "utils/flags/flag_group.h"

namespace official::flags {

FlagGroup DeviceFlags();

}  // namespace official::flags
