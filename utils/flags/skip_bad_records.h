// The flag of programs that read TFRecord files for the number of damaged records that they may leave out.
#pragma once

#include <cstdint>

#include "utils/flags/flag_group.h"

namespace official::flags {

FlagSpec SkipBadRecordsFlag();

int64_t SkipBadRecords();

}  // namespace official::flags
