// The version that --version prints and run records carry.
#pragma once

namespace official::misc {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace official::misc
