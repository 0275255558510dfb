#include "utils/flags/skip_bad_records.h"

#include "absl/flags/flag.h"

ABSL_FLAG(int64_t, skip_bad_records, 0,
          "Number of records that may be damaged or impossible to decode: they are logged and left out. One more is an "
          "error.");

namespace official::flags {

FlagSpec SkipBadRecordsFlag() { return {.name = "skip_bad_records", .range = AtLeast(0)}; }

int64_t SkipBadRecords() { return absl::GetFlag(FLAGS_skip_bad_records); }

}  // namespace official::flags
