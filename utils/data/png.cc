// libpng reports errors by longjmp, which runs no destructors. The functions that call setjmp therefore own nothing:
// what they fill is made outside.
#include "utils/data/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

using compute::Tensor;

constexpr int64_t kMaxBytes = 64 << 20;
constexpr int64_t kMaxPixels = 1 << 26;
constexpr int kSignatureBytes = 8;
// Deflate cannot shrink data by more than this factor (258 bytes from 2 bits, zlib's technical notes).
constexpr int64_t kMaxDeflateRatio = 1032;

struct Image {
  int64_t height = 0, width = 0, channels = 0;
  int64_t inflated_bytes = 0;  // at least so many are compressed in the file
};

class PngReader {
 public:
  explicit PngReader(absl::string_view bytes) : bytes_(bytes) {
    png_ = png_create_read_struct_2(
        PNG_LIBPNG_VER_STRING, this, OnError, [](png_structp, png_const_charp) {}, this, OnAllocate,
        [](png_structp, png_voidp memory) { std::free(memory); });
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // What went wrong in a call that returned false.
  const std::string& error() const { return error_; }
  bool out_of_memory() const { return out_of_memory_; }

  bool ReadHeader(Image* image) {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_read_fn(png_, this, OnRead);
    // What is beside the pixels, their palette and their transparency is passed over: for some of that libpng takes as
    // much memory as it claims to have, before it is read.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png_, info_);
    const int64_t height = png_get_image_height(png_, info_), width = png_get_image_width(png_, info_);
    const int64_t inflated_bytes = height * static_cast<int64_t>(png_get_rowbytes(png_, info_));
    png_set_expand(png_);
    png_set_scale_16(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    *image = {height, width, png_get_channels(png_, info_), inflated_bytes};
    return true;
  }

  bool ReadRows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  static void OnError(png_structp png, png_const_charp message) {
    static_cast<PngReader*>(png_get_error_ptr(png))->error_ = message;
    png_longjmp(png, 1);
  }
  static png_voidp OnAllocate(png_structp png, png_alloc_size_t size) {
    void* const memory = std::malloc(size);
    if (memory == nullptr) static_cast<PngReader*>(png_get_mem_ptr(png))->out_of_memory_ = true;
    return memory;
  }
  static void OnRead(png_structp png, png_bytep out, size_t size) {
    PngReader& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader.bytes_.size()) png_error(png, "the file is cut");
    std::memcpy(out, reader.bytes_.data(), size);
    reader.bytes_.remove_prefix(size);
  }

  absl::string_view bytes_;  // not yet read
  std::string error_;
  bool out_of_memory_ = false;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

absl::StatusOr<Tensor> ReadPng(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, files::ReadFile(path, kMaxBytes));
  return DecodePng(bytes, path);
}

bool IsPng(absl::string_view bytes) {
  return png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0,
                     std::min<size_t>(bytes.size(), kSignatureBytes)) == 0;
}

absl::StatusOr<Tensor> DecodePng(absl::string_view bytes, absl::string_view name) {
  if (!IsPng(bytes)) return absl::DataLossError(absl::StrFormat("%s is not a PNG image%s", name, FileKindNote(bytes)));
  PngReader reader(bytes);
  const auto damaged = [&]() -> absl::Status {
    if (reader.out_of_memory()) return absl::ResourceExhaustedError(absl::StrFormat("%s: out of memory", name));
    return absl::DataLossError(absl::StrFormat("%s: %s", name, reader.error()));
  };
  Image image;
  if (!reader.ReadHeader(&image)) return damaged();
  if (image.height * image.width > kMaxPixels) {
    return absl::DataLossError(absl::StrFormat("%s: %d x %d pixels are more than the limit of %d", name, image.width,
                                               image.height, kMaxPixels));
  }
  if (image.inflated_bytes / kMaxDeflateRatio > static_cast<int64_t>(bytes.size())) {
    return absl::DataLossError(absl::StrFormat("%s: %d x %d pixels are more than its %d bytes can hold", name,
                                               image.width, image.height, bytes.size()));
  }
  const Tensor pixels(compute::DType::kUInt8, {image.height, image.width, image.channels});
  std::vector<png_bytep> rows(image.height);
  for (int64_t y = 0; y < image.height; ++y) rows[y] = pixels.data<uint8_t>() + y * image.width * image.channels;
  if (!reader.ReadRows(rows.data())) return damaged();
  return pixels;
}

}  // namespace official::data
