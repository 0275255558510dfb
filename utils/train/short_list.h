// Long lists of names, for messages of one line.
#pragma once

#include <string>
#include <vector>

namespace official::train {

// "a, b and 7 more": the first two names, and how many more there are.
std::string ShortList(const std::vector<std::string>& names);

}  // namespace official::train
