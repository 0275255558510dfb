#include "utils/data/jpeg_encoder.h"

#include <jpeglib.h>

#include <cmath>
#include <cstdlib>

namespace official::data {

std::string EncodeJpeg(const JpegSettings& settings, const std::vector<uint8_t>& pixels) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);  // ends the test at an error
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = settings.height;
  info.image_width = settings.width;
  info.input_components = settings.channels;
  info.in_color_space = settings.channels == 1 ? JCS_GRAYSCALE : settings.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (!settings.subsampled) info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  if (settings.progressive) jpeg_simple_progression(&info);
  if (!settings.adobe_marker) info.write_Adobe_marker = FALSE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(&pixels[info.next_scanline * settings.width * settings.channels]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const std::string result(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return result;
}

std::vector<uint8_t> SmoothPicture(int height, int width, int channels) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        pixels.push_back(static_cast<uint8_t>(128 + 60 * std::sin(0.02 * x + c) + 50 * std::cos(0.017 * y * (c + 1))));
      }
    }
  }
  return pixels;
}

std::string SmoothJpeg(const JpegSettings& settings) {
  return EncodeJpeg(settings, SmoothPicture(settings.height, settings.width, settings.channels));
}

}  // namespace official::data
