// The commit that the program was built from.
#pragma once

namespace official::misc {

// The commit: "f88c437d4c2a", "f88c437d4c2a+changes" if the sources differ from it, "unknown" outside of a git clone
// and in tests.
extern const char kBuildCommit[];

}  // namespace official::misc
