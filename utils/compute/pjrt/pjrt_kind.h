// The name of the kind of device that PJRT plugins have.
#pragma once

namespace official::compute {

inline constexpr char kPjrtKind[] = "pjrt";

}  // namespace official::compute
