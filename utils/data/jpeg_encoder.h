// JPEG images of all kinds, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace official::data {

struct JpegSettings {
  int height = 0, width = 0;
  int channels = 3;        // 1 grey, 3 RGB, 4 inks (CMYK)
  bool subsampled = true;  // half as many colour values each way, as most photographs have
  bool progressive = false;
  bool adobe_marker = true;  // with 4 channels: as most programs write them, the inks are stored complemented
};

// `pixels`: [height, width, channels].
std::string EncodeJpeg(const JpegSettings& settings, const std::vector<uint8_t>& pixels);

// A picture without sharp edges, which survives compression nearly unchanged; the corners differ.
std::vector<uint8_t> SmoothPicture(int height, int width, int channels);

// EncodeJpeg of it.
std::string SmoothJpeg(const JpegSettings& settings);

}  // namespace official::data
