#include "utils/misc/size_text.h"

#include "absl/strings/str_format.h"

namespace official::misc {

std::string SizeText(double bytes) {
  if (bytes >= 1e9) return absl::StrFormat("%.1f GB", bytes * 1e-9);
  return bytes >= 1e6 ? absl::StrFormat("%.1f MB", bytes * 1e-6) : absl::StrFormat("%.1f kB", bytes * 1e-3);
}

}  // namespace official::misc
