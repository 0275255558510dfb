// Image files of a few bytes that claim to have 65500 x 65500 pixels, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "utils/data/jpeg_encoder.h"

namespace official::data {

// Returns the signature, IHDR with its checksum, and the beginning of IDAT.
inline std::string HugePng() {
  constexpr char kBytes[] =
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xdc\0\0\xff\xdc\x08\x02\0\0\0\x1c\x35\x81\x4c\0\0\0\x04IDAT";
  return std::string(kBytes, sizeof(kBytes) - 1) + std::string(100, '\0');
}

inline std::string HugeJpeg() {
  std::string jpeg = SmoothJpeg({.height = 16, .width = 16});
  // The marker SOF0, its length, the bits of a value; then height and width.
  const size_t at = jpeg.find("\xff\xc0") + 5;
  return jpeg.replace(at, 4, "\xff\xdc\xff\xdc");
}

}  // namespace official::data
