// The version in --version and in run records.
#pragma once

namespace official::misc {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace official::misc
