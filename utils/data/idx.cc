#include "utils/data/idx.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/data/gzip.h"
#include "utils/data/worker_pool.h"
#include "utils/files/files.h"

namespace official::data {
namespace {

using compute::DType;
using compute::Tensor;

// Deflate cannot shrink data by more than this factor (258 bytes from 2 bits, zlib's technical notes).
constexpr int64_t kMaxDeflateRatio = 1032;
constexpr int64_t kReadChunk = 4 << 20;
constexpr int kReadThreads = 2;

uint32_t BigEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// The bytes of an IDX file from its beginning, whether or not they are stored compressed.
class IdxFile {
 public:
  static absl::StatusOr<IdxFile> Open(const std::string& path) {
    ASSIGN_OR_RETURN(std::unique_ptr<files::RandomAccessFile> file, files::RandomAccessFile::Open(path));
    IdxFile result;
    char magic[2];
    ASSIGN_OR_RETURN(const int64_t size, file->ReadSome(0, sizeof(magic), magic));
    if (IsGzip(absl::string_view(magic, size))) {
      ASSIGN_OR_RETURN(std::string compressed, files::ReadFile(path, kMaxGzipBytes));
      result.compressed_ = std::make_unique<std::string>(std::move(compressed));
      result.gzip_ = std::make_unique<GzipReader>(*result.compressed_, path);
    }
    result.file_ = std::move(file);
    return result;
  }

  // Bytes of the file itself, compressed or not.
  int64_t stored_size() const { return file_->size(); }

  // The next bytes of the header; fewer than `size` only at the end of the file.
  absl::StatusOr<int64_t> ReadHeader(int64_t size, uint8_t* out) {
    if (gzip_) return gzip_->Read(size, out);
    ASSIGN_OR_RETURN(const int64_t read, file_->ReadSome(header_bytes_, size, out));
    header_bytes_ += read;
    return read;
  }

  // Checks that exactly `size` bytes follow the header.
  absl::Status CheckSize(const std::string& description, int64_t header_bytes, int64_t size) {
    const int64_t expected = header_bytes + size;
    int64_t found = file_->size();
    if (gzip_) {
      if (expected / kMaxDeflateRatio > found) {
        return absl::DataLossError(
            absl::StrFormat("%s: expected %d bytes (%s), found a gzip file of %d bytes, which cannot hold them",
                            file_->path(), expected, description, found));
      }
      // The last four bytes are the inflated size modulo 2^32, little-endian. If they do not agree, count.
      uint32_t claimed = 0;
      for (size_t i = 1; i <= 4; ++i)
        claimed = claimed << 8 | static_cast<uint8_t>((*compressed_)[compressed_->size() - i]);
      if (claimed == static_cast<uint32_t>(expected)) return absl::OkStatus();
      ASSIGN_OR_RETURN(found, CountInflated(expected));
    }
    if (found == expected) return absl::OkStatus();
    return absl::DataLossError(absl::StrFormat("%s: expected %d bytes (%s), found %d%s", file_->path(), expected,
                                               description, found, gzip_ ? " inflated" : ""));
  }

  absl::Status ReadData(int64_t header_bytes, int64_t size, uint8_t* out) {
    return gzip_ ? Inflate(size, out) : ReadPlain(header_bytes, size, out);
  }

 private:
  // Inflated bytes in the file, given up beyond `limit`.
  absl::StatusOr<int64_t> CountInflated(int64_t limit) const {
    GzipReader reader(*compressed_, file_->path());
    std::vector<uint8_t> scratch(1 << 16);
    for (;;) {
      ASSIGN_OR_RETURN(const int64_t size, reader.Read(scratch.size(), scratch.data()));
      if (size == 0 || reader.position() > limit) return reader.position();
    }
  }

  absl::Status Inflate(int64_t size, uint8_t* out) {
    ASSIGN_OR_RETURN(const int64_t found, gzip_->Read(size, out));
    uint8_t extra;
    ASSIGN_OR_RETURN(const int64_t left_over, gzip_->Read(1, &extra));
    if (found == size && left_over == 0) return absl::OkStatus();
    return absl::DataLossError(absl::StrFormat("%s: expected %d inflated bytes after the header, found %s%d",
                                               file_->path(), size, left_over ? "more than " : "", found));
  }

  // In two threads: copying from the page cache into new pages is limited by the faults, which two threads share.
  absl::Status ReadPlain(int64_t header_bytes, int64_t size, uint8_t* out) {
    const int64_t num_chunks = (size + kReadChunk - 1) / kReadChunk;
    std::vector<absl::Status> results(num_chunks);
    WorkerPool(num_chunks > 1 ? kReadThreads : 1).ForEach(num_chunks, [&](int64_t i) {
      const int64_t begin = i * kReadChunk;
      results[i] = file_->Read(header_bytes + begin, std::min(kReadChunk, size - begin), out + begin);
    });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  std::unique_ptr<files::RandomAccessFile> file_;
  std::unique_ptr<std::string> compressed_;  // by pointer: the reader keeps its address
  std::unique_ptr<GzipReader> gzip_;
  int64_t header_bytes_ = 0;
};

// Memory that is not set to zero first: these bytes are written once, by the read itself. Large pages save a third of
// the time of that read, and later misses in the address translation when examples are picked at random.
absl::StatusOr<Tensor> UninitializedBytes(compute::Shape shape) {
  constexpr size_t kLargePage = 2 << 20;
  const size_t size = (std::max<size_t>(shape.num_elements(), 1) + kLargePage - 1) / kLargePage * kLargePage;
  std::shared_ptr<void> bytes(std::aligned_alloc(kLargePage, size), std::free);
  if (bytes == nullptr) return absl::ResourceExhaustedError(absl::StrFormat("no memory for %d bytes", size));
  if (shape.num_elements() >= static_cast<int64_t>(kLargePage)) madvise(bytes.get(), size, MADV_HUGEPAGE);
  void* const data = bytes.get();
  return Tensor({DType::kUInt8, std::move(shape)}, data, std::move(bytes));
}

}  // namespace

absl::StatusOr<Tensor> ReadIdx(const std::string& path, IdxHeaderCheck check) {
  ASSIGN_OR_RETURN(IdxFile file, IdxFile::Open(path));
  const auto cut = [&path](int64_t expected, int64_t found) {
    return absl::DataLossError(
        found == 0 ? absl::StrFormat("%s is empty: expected an IDX header", path)
                   : absl::StrFormat("%s: the IDX header is cut: expected %d bytes, found %d", path, expected, found));
  };
  uint8_t bytes[4 * 256];
  ASSIGN_OR_RETURN(int64_t found, file.ReadHeader(4, bytes));
  if (found < 4) return cut(4, found);
  IdxHeader header = {.magic = BigEndian32(bytes), .dims = {}};
  const int rank = bytes[3];
  if (header.magic >> 8 == 0x000008 && rank > 0) {
    ASSIGN_OR_RETURN(found, file.ReadHeader(4 * rank, bytes));
    if (found < 4 * rank) return cut(4 + 4 * rank, 4 + found);
    for (int i = 0; i < rank; ++i) header.dims.push_back(BigEndian32(bytes + 4 * i));
  }
  if (const absl::Status status = check(header); !status.ok()) {
    const std::string note = header.dims.empty() ? KindNoteOfFile(path) : "";
    return absl::Status(status.code(), absl::StrCat(status.message(), note));
  }
  if (header.dims.empty()) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected an IDX file of unsigned bytes (magic number 0x08nn with nn dimensions), found "
                        "magic number 0x%04x%s",
                        path, header.magic, KindNoteOfFile(path)));
  }
  const std::string description = absl::StrJoin(header.dims, " x ");
  int64_t size = 1;
  for (int64_t dim : header.dims) {
    if (__builtin_mul_overflow(size, dim, &size) || size > int64_t{1} << 62) {
      return absl::DataLossError(absl::StrFormat("%s: its header claims %s bytes, more than any file holds, found %d",
                                                 path, description, file.stored_size()));
    }
  }
  const int64_t header_bytes = 4 + 4 * rank;
  RETURN_IF_ERROR(file.CheckSize(description, header_bytes, size));
  ASSIGN_OR_RETURN(Tensor result, UninitializedBytes(compute::Shape(header.dims)));
  RETURN_IF_ERROR(file.ReadData(header_bytes, size, result.data<uint8_t>()));
  return result;
}

absl::StatusOr<Tensor> ReadIdx(const std::string& path) {
  return ReadIdx(path, [](const IdxHeader&) { return absl::OkStatus(); });
}

}  // namespace official::data
