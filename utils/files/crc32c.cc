#include "utils/files/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace official::files {

uint32_t Crc32c(absl::string_view data, uint32_t crc) {
  // crc32_iscsi leaves the inversions before and after to its caller, and takes an int as length.
  crc = ~crc;
  while (!data.empty()) {
    const size_t size = std::min<size_t>(data.size(), std::numeric_limits<int>::max());
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(data.data())), static_cast<int>(size), crc);
    data.remove_prefix(size);
  }
  return ~crc;
}

}  // namespace official::files
