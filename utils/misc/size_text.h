// Sizes in bytes, in messages.
#pragma once

#include <string>

namespace official::misc {

// Returns "1.5 GB", "12.0 MB" or "0.3 kB".
std::string SizeText(double bytes);

}  // namespace official::misc
