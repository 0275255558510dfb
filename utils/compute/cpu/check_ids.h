// The check of ids that kernels make before they use them to read rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace official::compute {

// Returns InvalidArgument if one of n ids is outside [0, limit); `what` is what the message calls it.
inline absl::Status CheckIds(absl::string_view what, const int32_t* ids, int64_t n, int64_t limit) {
  uint32_t largest = 0;  // negative numbers are larger than all others
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<uint32_t>(ids[i]));
  if (n == 0 || largest < limit) return absl::OkStatus();
  const int64_t bad = std::find_if(ids, ids + n, [&](int32_t id) { return id < 0 || id >= limit; }) - ids;
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", ids[bad], " at position ", bad, " is outside [0, ", limit, ")"));
}

}  // namespace official::compute
