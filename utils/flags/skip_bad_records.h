// The flag of programs that read TFRecord files: how many damaged records they may leave out.
#pragma once

#include <cstdint>

#include "utils/flags/flag_group.h"

namespace official::flags {

FlagSpec SkipBadRecordsFlag();

int64_t SkipBadRecords();

}  // namespace official::flags
