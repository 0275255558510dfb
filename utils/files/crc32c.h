// CRC-32C (Castagnoli), and the masked form in which TFRecord files and checkpoints store it.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace official::files {

// Returns the checksum of `data`, or of bytes with the checksum `crc` followed by `data`.
uint32_t Crc32c(absl::string_view data, uint32_t crc = 0);

// A stored checksum is masked, since a checksum over bytes that contain checksums is weak. Source: LevelDB's log
// format.
constexpr uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace official::files
