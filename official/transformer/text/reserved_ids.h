// The ids that every vocabulary begins with.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace official::transformer {

inline constexpr int32_t kEosId = 1;
// The subtokens of the ids 0 and 1.
inline constexpr absl::string_view kReservedSubtokens[] = {"<pad>", "<EOS>"};

}  // namespace official::transformer
