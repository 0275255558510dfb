#include "utils/flags/skip_bad_records.h"

#include "absl/flags/flag.h"

ABSL_FLAG(int64_t, skip_bad_records, 0,
          "Go on without up to this many records that are damaged or cannot be decoded, each told in the log.");

namespace official::flags {

FlagSpec SkipBadRecordsFlag() { return {.name = "skip_bad_records", .range = AtLeast(0)}; }

int64_t SkipBadRecords() { return absl::GetFlag(FLAGS_skip_bad_records); }

}  // namespace official::flags
