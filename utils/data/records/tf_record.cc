#include "utils/data/records/tf_record.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/tf_record_format.h"
#include "utils/files/crc32c.h"

namespace official::data {
namespace {

constexpr int64_t kHeaderBytes = kTFRecordHeaderBytes, kTrailerBytes = kTFRecordTrailerBytes;
constexpr size_t kBufferBytes = 1 << 18;
// Expanded records have no file size to be held against: they grow piece by piece, as far as their bytes really come.
constexpr size_t kGrowthBytes = 1 << 20;

template <typename T>
void PutFixed(T value, char* destination) {
  for (size_t i = 0; i < sizeof(T); ++i) destination[i] = static_cast<char>(value >> (8 * i));
}

}  // namespace

// ---- Writing ----

class Deflater {
 public:
  Deflater() {
    // 15 + 16: the largest window, gzip's header and trailer.
    OFFICIAL_CHECK(deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  }
  ~Deflater() { deflateEnd(&stream_); }

  // Compresses `data` into `file`. `flush` is zlib's: Z_NO_FLUSH, Z_SYNC_FLUSH or Z_FINISH.
  absl::Status Write(absl::string_view data, int flush, files::FileWriter& file) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      OFFICIAL_CHECK(deflate(&stream_, flush) != Z_STREAM_ERROR);
      RETURN_IF_ERROR(file.Append(absl::string_view(buffer_.data(), buffer_.size() - stream_.avail_out)));
    } while (stream_.avail_out == 0);
    return absl::OkStatus();
  }

 private:
  z_stream stream_ = {};
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
};

absl::StatusOr<std::unique_ptr<TFRecordWriter>> TFRecordWriter::Open(const std::string& path, Compression compression,
                                                                     files::FileWriter::Mode mode) {
  ASSIGN_OR_RETURN(std::unique_ptr<files::FileWriter> file, files::FileWriter::Open(path, mode));
  auto deflater = compression == Compression::kGzip ? std::make_unique<Deflater>() : nullptr;
  return std::unique_ptr<TFRecordWriter>(new TFRecordWriter(std::move(file), std::move(deflater)));
}

TFRecordWriter::TFRecordWriter(std::unique_ptr<files::FileWriter> file, std::unique_ptr<Deflater> deflater)
    : owned_file_(std::move(file)), file_(owned_file_.get()), deflater_(std::move(deflater)) {}

TFRecordWriter::TFRecordWriter(files::FileWriter& file) : file_(&file) {}

TFRecordWriter::~TFRecordWriter() = default;

absl::Status TFRecordWriter::Append(absl::string_view data) {
  if (deflater_ == nullptr) return file_->Append(data);
  // zlib counts its input in 32 bits.
  while (!data.empty()) {
    const size_t size = std::min<size_t>(data.size(), 1 << 30);
    RETURN_IF_ERROR(deflater_->Write(data.substr(0, size), Z_NO_FLUSH, *file_));
    data.remove_prefix(size);
  }
  return absl::OkStatus();
}

absl::Status TFRecordWriter::Write(absl::string_view record) {
  char header[kHeaderBytes];
  PutFixed<uint64_t>(record.size(), header);
  PutFixed<uint32_t>(files::MaskCrc(files::Crc32c(absl::string_view(header, 8))), header + 8);
  char trailer[kTrailerBytes];
  PutFixed<uint32_t>(files::MaskCrc(files::Crc32c(record)), trailer);
  RETURN_IF_ERROR(Append(absl::string_view(header, sizeof(header))));
  RETURN_IF_ERROR(Append(record));
  return Append(absl::string_view(trailer, sizeof(trailer)));
}

absl::Status TFRecordWriter::Flush() {
  if (deflater_ != nullptr) RETURN_IF_ERROR(deflater_->Write("", Z_SYNC_FLUSH, *file_));
  return file_->Flush();
}

absl::Status TFRecordWriter::Close() {
  if (deflater_ != nullptr) RETURN_IF_ERROR(deflater_->Write("", Z_FINISH, *file_));
  return owned_file_ == nullptr ? file_->Flush() : file_->Close();
}

// ---- Reading ----

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Up to `size` bytes into `destination`; less only at the end of the stream.
  virtual absl::StatusOr<size_t> Read(char* destination, size_t size) = 0;
  // Bytes that are still to come, where that is known.
  virtual std::optional<uint64_t> BytesLeft() const = 0;
};

namespace {

class FileStream : public ByteStream {
 public:
  explicit FileStream(std::unique_ptr<files::RandomAccessFile> file) : file_(std::move(file)) {}

  absl::StatusOr<size_t> Read(char* destination, size_t size) override {
    size_t done = 0;
    while (done < size) {
      if (begin_ == end_) {
        // What is larger than the buffer goes straight to its place.
        const bool direct = size - done >= kBufferBytes;
        ASSIGN_OR_RETURN(const int64_t got, file_->ReadSome(offset_, direct ? size - done : kBufferBytes,
                                                            direct ? destination + done : buffer_.data()));
        if (got == 0) break;
        offset_ += got;
        if (direct) {
          done += got;
          continue;
        }
        begin_ = 0;
        end_ = got;
      }
      const size_t part = std::min(size - done, end_ - begin_);
      std::memcpy(destination + done, buffer_.data() + begin_, part);
      begin_ += part;
      done += part;
    }
    return done;
  }

  std::optional<uint64_t> BytesLeft() const override {
    return std::max<int64_t>(file_->size() - offset_, 0) + (end_ - begin_);
  }

  const std::string& path() const { return file_->path(); }

 private:
  std::unique_ptr<files::RandomAccessFile> file_;
  int64_t offset_ = 0;  // in the file, behind the buffer
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  size_t begin_ = 0;  // unread bytes of the buffer: [begin_, end_)
  size_t end_ = 0;
};

class InflateStream : public ByteStream {
 public:
  explicit InflateStream(std::unique_ptr<FileStream> file) : file_(std::move(file)) {
    OFFICIAL_CHECK(inflateInit2(&stream_, 15 + 32) == Z_OK);  // 15 + 32: the largest window, gzip or zlib header
  }
  ~InflateStream() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* destination, size_t size) override {
    size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) {
        ASSIGN_OR_RETURN(const size_t got, file_->Read(buffer_.data(), buffer_.size()));
        if (got == 0) {
          if (at_member_end_) break;
          return absl::DataLossError(absl::StrCat(file_->path(), ": the compressed data is cut off after ", done_,
                                                  " expanded bytes; the file is incomplete"));
        }
        stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
        stream_.avail_in = static_cast<uInt>(got);
      }
      if (at_member_end_) {  // another gzip member follows, as `cat a.gz b.gz` makes them
        OFFICIAL_CHECK(inflateReset(&stream_) == Z_OK);
        at_member_end_ = false;
      }
      const uInt room = static_cast<uInt>(std::min<size_t>(size - done, 1 << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(destination + done);
      stream_.avail_out = room;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      done_ += room - stream_.avail_out;
      if (result == Z_STREAM_END) {
        at_member_end_ = true;
      } else if (result != Z_OK) {
        return absl::DataLossError(absl::StrCat(file_->path(), ": the compressed data is damaged after ", done_,
                                                " expanded bytes: ", stream_.msg ? stream_.msg : zError(result),
                                                " (is the file gzip-compressed at all?)"));
      }
    }
    return done;
  }

  std::optional<uint64_t> BytesLeft() const override { return std::nullopt; }

 private:
  std::unique_ptr<FileStream> file_;
  z_stream stream_ = {};
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  bool at_member_end_ = true;  // an empty file is an empty stream
  uint64_t done_ = 0;          // bytes expanded so far
};

}  // namespace

absl::StatusOr<std::unique_ptr<TFRecordReader>> TFRecordReader::Open(const std::string& path, Compression compression) {
  ASSIGN_OR_RETURN(std::unique_ptr<files::RandomAccessFile> file, files::RandomAccessFile::Open(path));
  auto file_stream = std::make_unique<FileStream>(std::move(file));
  std::unique_ptr<ByteStream> stream;
  if (compression == Compression::kGzip) {
    stream = std::make_unique<InflateStream>(std::move(file_stream));
  } else {
    stream = std::move(file_stream);
  }
  return std::unique_ptr<TFRecordReader>(new TFRecordReader(path, std::move(stream)));
}

TFRecordReader::TFRecordReader(std::string path, std::unique_ptr<ByteStream> stream)
    : path_(std::move(path)), stream_(std::move(stream)) {}

TFRecordReader::~TFRecordReader() = default;

absl::Status TFRecordReader::Damaged(absl::string_view what) const {
  return DamagedRecord(path_, record_number_, offset_, what);
}

absl::StatusOr<bool> TFRecordReader::Next(std::string* record) {
  RETURN_IF_ERROR(broken_);
  const int64_t number = last_number_ = record_number_;
  last_offset_ = offset_;
  absl::StatusOr<bool> more = ReadNext(record);
  if (!more.ok() && record_number_ == number) broken_ = more.status();
  return more;
}

absl::StatusOr<bool> TFRecordReader::ReadNext(std::string* record) {
  char header[kHeaderBytes];
  ASSIGN_OR_RETURN(const size_t got, stream_->Read(header, kHeaderBytes));
  if (got == 0) return false;
  if (got < kHeaderBytes) {
    return Damaged(absl::StrFormat("truncated record: %d of the %d bytes of its header", got, kHeaderBytes));
  }
  ASSIGN_OR_RETURN(const std::string bad_data, ReadRecord(absl::string_view(header, kHeaderBytes), record));
  const absl::Status damaged = bad_data.empty() ? absl::OkStatus() : Damaged(bad_data);
  ++record_number_;
  offset_ += kHeaderBytes + record->size() + kTrailerBytes;
  RETURN_IF_ERROR(damaged);
  return true;
}

absl::StatusOr<std::string> TFRecordReader::ReadRecord(absl::string_view header, std::string* record) {
  const uint64_t length = GetFixed<uint64_t>(header);
  const std::string bad_header = CheckTFRecordHeader(header, record_number_, stream_->BytesLeft() ? path_ : "");
  if (!bad_header.empty()) return Damaged(bad_header);
  const std::optional<uint64_t> left = stream_->BytesLeft();
  if (left.has_value() && (*left < kTrailerBytes || length > *left - kTrailerBytes)) {
    return Damaged(LongerThanFile(length, *left));
  }
  if (length > kMaxTFRecordBytes) return Damaged(LongerThanLimit(length));
  record->clear();
  while (record->size() < length) {
    const size_t begin = record->size();
    const size_t part = left.has_value() ? length : std::min<size_t>(length - begin, kGrowthBytes);
    record->resize(begin + part);
    ASSIGN_OR_RETURN(const size_t got, stream_->Read(record->data() + begin, part));
    if (got < part) {
      return Damaged(absl::StrFormat("truncated record: %d of its %d bytes", begin + got, length));
    }
  }
  char trailer[kTrailerBytes];
  ASSIGN_OR_RETURN(const size_t got, stream_->Read(trailer, kTrailerBytes));
  if (got < kTrailerBytes) {
    return Damaged(absl::StrFormat("truncated record: %d of the 4 bytes of its checksum", got));
  }
  return CheckTFRecordData(*record, absl::string_view(trailer, kTrailerBytes));
}

}  // namespace official::data
