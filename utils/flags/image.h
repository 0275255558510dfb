// The flag of image models.
#pragma once

#include <optional>
#include <string>

#include "utils/flags/flag_group.h"

namespace official::flags {

struct ImageConfig {
  std::optional<std::string> data_format;  // channels_first or channels_last; unset: the best for the device
};

FlagGroup ImageFlags();

}  // namespace official::flags
