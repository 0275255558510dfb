// JPEG images of all kinds, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace official::data {

struct JpegSettings {
  int height = 0, width = 0;
  int channels = 3;        // 1 grey, 3 RGB, 4 inks (CMYK)
  bool subsampled = true;  // half as many colour values each way, as in most photographs
  bool progressive = false;
  bool adobe_marker = true;  // with 4 channels: the inks are stored complemented, as most programs do
};

// Returns the JPEG file of `pixels` [height, width, channels].
std::string EncodeJpeg(const JpegSettings& settings, const std::vector<uint8_t>& pixels);

// Returns a picture without sharp edges, which compression leaves nearly unchanged; the corners differ.
std::vector<uint8_t> SmoothPicture(int height, int width, int channels);

// Returns EncodeJpeg of a SmoothPicture.
std::string SmoothJpeg(const JpegSettings& settings);

}  // namespace official::data
