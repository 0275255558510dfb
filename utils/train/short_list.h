// Long lists of names, for messages of one line.
#pragma once

#include <string>
#include <vector>

namespace official::train {

// Returns the first two names, and the number of the others: "a, b and 7 more".
std::string ShortList(const std::vector<std::string>& names);

}  // namespace official::train
