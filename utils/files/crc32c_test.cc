#include "utils/files/crc32c.h"

#include <catch2/catch.hpp>
#include <string>

namespace official::files {
namespace {

TEST_CASE("Crc32c gives the known checksums, masked and not") {
  // RFC 3720 B.4 (123456789 is the check value of CRC-32C); masked by hand.
  CHECK(Crc32c("") == 0);
  CHECK(MaskCrc(Crc32c("")) == 0xa282ead8);
  CHECK(Crc32c("a") == 0xc1d04330);
  CHECK(MaskCrc(Crc32c("a")) == 0x28e46e78);
  CHECK(Crc32c("123456789") == 0xe3069283);
  CHECK(MaskCrc(Crc32c("123456789")) == 0xc78ab0e5);
  CHECK(Crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(Crc32c("6789", Crc32c("12345")) == 0xe3069283);
}

}  // namespace
}  // namespace official::files
