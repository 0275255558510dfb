// The ids that every vocabulary begins with.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace official::transformer {

inline constexpr int32_t kPadId = 0;
inline constexpr int32_t kEosId = 1;
// What the ids 0 and 1 are called.
inline constexpr absl::string_view kReservedSubtokens[] = {"<pad>", "<EOS>"};

}  // namespace official::transformer
