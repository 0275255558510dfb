// libjpeg reports errors by longjmp, which runs no destructors. The functions that call setjmp therefore own nothing:
// what they fill is made outside.
#include "utils/data/jpeg.h"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"

namespace official::data {
namespace {

constexpr int kChannels = 3;
constexpr int64_t kMaxValues = int64_t{1} << 29;
// A progressive image costs a pass over all of it for each scan. Real ones have about ten.
constexpr int kMaxScans = 100;
// A block of 8 x 8 pixels takes at least one bit, but for arithmetic coding.
constexpr int64_t kMaxPixelsPerByte = 64 * 8;
constexpr int kMaxRowsAtOnce = 16;

}  // namespace

struct JpegReader::Decompressor {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = "";
  bool out_of_memory = false;
  std::vector<uint8_t> cmyk;  // a row of an image for print

  static Decompressor& Of(j_common_ptr info) { return *static_cast<Decompressor*>(info->client_data); }

  // jpeg_create_decompress clears `info` but for err and client_data.
  bool Create() {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      common->err->format_message(common, Of(common).message);
      Of(common).out_of_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
      std::longjmp(Of(common).jump, 1);
    };
    // Damage that can be repaired is no error in TensorFlow either.
    errors.output_message = [](j_common_ptr) {};
    if (setjmp(jump)) return false;
    jpeg_create_decompress(&info);
    progress.progress_monitor = [](j_common_ptr common) {
      if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= kMaxScans) return;
      std::snprintf(Of(common).message, JMSG_LENGTH_MAX, "it has more than %d scans", kMaxScans);
      std::longjmp(Of(common).jump, 1);
    };
    info.progress = &progress;
    return true;
  }

  bool ReadHeader(absl::string_view bytes) {
    if (setjmp(jump)) return false;
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    // libjpeg would go on with grey pixels.
    info.src->fill_input_buffer = [](j_decompress_ptr decompress) -> boolean {
      ERREXIT(decompress, JERR_FILE_READ);
      return FALSE;
    };
    jpeg_read_header(&info, TRUE);
    info.out_color_space = IsForPrint() ? JCS_CMYK : JCS_RGB;
    info.dct_method = JDCT_IFAST;
    info.do_fancy_upsampling = TRUE;
    jpeg_calc_output_dimensions(&info);
    return true;
  }

  bool IsForPrint() const { return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK; }

  // Leaves in info.output_width how wide the rows are that now come: those of a window begin at a block's edge, to its
  // left.
  bool Start(const ImageWindow* window) {
    if (setjmp(jump)) return false;
    jpeg_start_decompress(&info);
    if (window != nullptr) {
      JDIMENSION left = window->left, width = window->width;
      jpeg_crop_scanline(&info, &left, &width);
      jpeg_skip_scanlines(&info, window->top);
    }
    return true;
  }

  // Reads `height` rows of info.output_width pixels, and finishes.
  bool ReadRows(uint8_t* pixels, int64_t height) {
    if (setjmp(jump)) return false;
    ReadRowsOrJump(pixels, height);
    return true;
  }

  // Apart from the function with setjmp, which must not keep variables in registers.
  __attribute__((noinline)) void ReadRowsOrJump(uint8_t* pixels, int64_t height) {
    const JDIMENSION end = info.output_scanline + height;
    const int64_t stride = static_cast<int64_t>(info.output_width) * kChannels;
    while (info.output_scanline < end) {
      if (info.out_color_space == JCS_CMYK) {
        JSAMPROW row = cmyk.data();
        jpeg_read_scanlines(&info, &row, 1);
        ConvertRow(pixels);
        pixels += stride;
      } else {
        JSAMPROW rows[kMaxRowsAtOnce];
        const JDIMENSION wanted = std::min<JDIMENSION>(kMaxRowsAtOnce, end - info.output_scanline);
        for (JDIMENSION i = 0; i < wanted; ++i) rows[i] = pixels + i * stride;
        pixels += jpeg_read_scanlines(&info, rows, wanted) * stride;
      }
    }
    // Rows below a window are not decoded, and not missed if they are not there.
    if (info.output_scanline < info.output_height) {
      jpeg_skip_scanlines(&info, info.output_height - info.output_scanline);
    }
    jpeg_finish_decompress(&info);
  }

  // Adobe stores the complement of each ink.
  void ConvertRow(uint8_t* rgb) const {
    for (JDIMENSION x = 0; x < info.output_width; ++x) {
      const uint8_t* inks = &cmyk[4 * x];
      for (int c = 0; c < kChannels; ++c) {
        rgb[kChannels * x + c] =
            info.saw_Adobe_marker ? inks[3] * inks[c] / 255 : (255 - inks[3]) * (255 - inks[c]) / 255;
      }
    }
  }
};

bool IsJpeg(absl::string_view bytes) { return absl::StartsWith(bytes, "\xff\xd8\xff"); }

JpegReader::JpegReader(absl::string_view bytes)
    : bytes_(bytes), decompressor_(std::make_unique<Decompressor>()), created_(decompressor_->Create()) {}

JpegReader::~JpegReader() { jpeg_destroy_decompress(&decompressor_->info); }

absl::Status JpegReader::Error() const {
  if (decompressor_->out_of_memory) return absl::ResourceExhaustedError("out of memory while a JPEG image is decoded");
  return absl::DataLossError(absl::StrFormat("the JPEG image cannot be decoded: %s", decompressor_->message));
}

absl::StatusOr<ImageSize> JpegReader::ReadSize() {
  if (!created_ || !decompressor_->ReadHeader(bytes_)) return Error();
  const jpeg_decompress_struct& info = decompressor_->info;
  const int64_t height = info.output_height, width = info.output_width;
  if (height * width * info.num_components >= kMaxValues) {
    return absl::DataLossError(
        absl::StrFormat("the JPEG image has %d x %d pixels, more than the limit of 2^29 values", width, height));
  }
  if (!info.arith_code && height * width / kMaxPixelsPerByte > static_cast<int64_t>(bytes_.size())) {
    return absl::DataLossError(absl::StrFormat("the JPEG image has %d x %d pixels, more than its %d bytes can hold",
                                               width, height, bytes_.size()));
  }
  return ImageSize{height, width};
}

ImageSize JpegReader::SetScale(int denominator) {
  jpeg_decompress_struct& info = decompressor_->info;
  info.scale_num = 1;
  info.scale_denom = denominator;
  jpeg_calc_output_dimensions(&info);
  return {info.output_height, info.output_width};
}

absl::StatusOr<RgbImage> JpegReader::Decode(std::vector<uint8_t>* buffer) { return Decode(nullptr, buffer); }

absl::StatusOr<RgbImage> JpegReader::DecodeWindow(const ImageWindow& window, std::vector<uint8_t>* buffer) {
  const jpeg_decompress_struct& info = decompressor_->info;
  OFFICIAL_CHECK(window.top >= 0 && window.left >= 0 && window.height > 0 && window.width > 0 &&
                 window.top + window.height <= info.output_height && window.left + window.width <= info.output_width)
      << "a window outside of the image";
  return Decode(&window, buffer);
}

absl::StatusOr<RgbImage> JpegReader::Decode(const ImageWindow* window, std::vector<uint8_t>* buffer) {
  if (!decompressor_->Start(window)) return Error();
  const jpeg_decompress_struct& info = decompressor_->info;
  const int64_t height = window != nullptr ? window->height : info.output_height;
  const int64_t width = window != nullptr ? window->width : info.output_width;
  const int64_t stride = static_cast<int64_t>(info.output_width) * kChannels;
  buffer->resize(height * stride);
  if (info.out_color_space == JCS_CMYK) decompressor_->cmyk.resize(int64_t{4} * info.output_width);
  if (!decompressor_->ReadRows(buffer->data(), height)) return Error();
  return RgbImage{{height, width}, buffer->data() + (info.output_width - width) * kChannels, stride};
}

}  // namespace official::data
