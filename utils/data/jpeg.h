// JPEG images, decoded to the same bytes as TensorFlow's tf.image.decode_jpeg and decode_and_crop_jpeg: the fast
// integer DCT, fancy upsampling, and decoding of only a window.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/data/image.h"

namespace official::data {

// True if `bytes` begin as every JPEG file does.
bool IsJpeg(absl::string_view bytes);

// Reads one image. Grey images become RGB; so do those for print (CMYK), by TensorFlow's formula. Errors are DataLoss
// and say what is wrong with the image, but do not name it.
class JpegReader {
 public:
  // `bytes` must stay alive.
  explicit JpegReader(absl::string_view bytes);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Returns the image's size; called once, first. An image of 2^29 values or more is refused, as in TensorFlow, and so
  // is one with more pixels than its bytes can hold.
  absl::StatusOr<ImageSize> ReadSize();

  // Decodes at 1 / `denominator` (1, 2, 4, 8) of the size, which costs less; returns the size then, rounded up.
  ImageSize SetScale(int denominator);

  // Decodes the whole image. This or DecodeWindow is called once, after ReadSize(). The pixels lie in `buffer`. A
  // truncated file is an error if a part of the image, or of the window, is missing.
  absl::StatusOr<RgbImage> Decode(std::vector<uint8_t>* buffer);
  // Decodes a window (within the image, not empty) as decode_and_crop_jpeg does. Only the blocks that it touches are
  // transformed: at its left and right edge the colours may differ from those of Decode(), since upsampling does not
  // see the pixels beyond.
  absl::StatusOr<RgbImage> DecodeWindow(const ImageWindow& window, std::vector<uint8_t>* buffer);

 private:
  struct Decompressor;
  absl::Status Error() const;
  absl::StatusOr<RgbImage> Decode(const ImageWindow* window, std::vector<uint8_t>* buffer);

  absl::string_view bytes_;
  std::unique_ptr<Decompressor> decompressor_;
  const bool created_;  // false if there was no memory for it
};

}  // namespace official::data
