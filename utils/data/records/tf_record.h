// TFRecord files: records of any bytes, each with the checksums of its length and of its data.
//   record = length (8 bytes, little-endian), masked crc32c of these (4), data, masked crc32c of the data (4)
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/files/files.h"

namespace official::data {

// The compression of a file, which its reader must know, since nothing in the file tells. kGzip reads zlib streams too.
enum class Compression { kNone, kGzip };

class Deflater;    // compresses what is written
class ByteStream;  // the bytes of a file, decompressed

class TFRecordWriter {
 public:
  // Opens a file for writing. Errors of the file system as in utils/files.
  static absl::StatusOr<std::unique_ptr<TFRecordWriter>> Open(
      const std::string& path, Compression compression = Compression::kNone,
      files::FileWriter::Mode mode = files::FileWriter::Mode::kReplace);
  // Appends to the caller's file, which outlives the writer and which Close() leaves open.
  explicit TFRecordWriter(files::FileWriter& file);
  ~TFRecordWriter();

  absl::Status Write(absl::string_view record);
  // Makes the records so far visible to other processes.
  absl::Status Flush();
  // Must be called once for the file to be complete.
  absl::Status Close();

  const std::string& path() const { return file_->path(); }

 private:
  TFRecordWriter(std::unique_ptr<files::FileWriter> file, std::unique_ptr<Deflater> deflater);
  absl::Status Append(absl::string_view data);

  std::unique_ptr<files::FileWriter> owned_file_;  // null if the file is the caller's
  files::FileWriter* file_;
  std::unique_ptr<Deflater> deflater_;  // null without compression
};

class TFRecordReader {
 public:
  static absl::StatusOr<std::unique_ptr<TFRecordReader>> Open(const std::string& path,
                                                              Compression compression = Compression::kNone);
  ~TFRecordReader();

  // Puts the next record into *record; returns false at the end of the file. A damaged or truncated record is DataLoss
  // with file, number of the record (from 0), offset (in the decompressed bytes) and what is wrong. A length is
  // trusted, and memory allocated for it, only when its checksum matches, the file is long enough and it is at most 1
  // GiB.
  absl::StatusOr<bool> Next(std::string* record);

  // True if Next(), after an error, can return the record after the damaged one. After a damaged length or a truncated
  // record it cannot, since the next record's place is not known: then Next() repeats its error.
  bool can_go_on() const { return broken_.ok(); }

  // The number and the offset of the record that the last call of Next() returned or refused.
  int64_t record_number() const { return last_number_; }
  int64_t record_offset() const { return last_offset_; }

 private:
  TFRecordReader(std::string path, std::unique_ptr<ByteStream> stream);
  absl::StatusOr<bool> ReadNext(std::string* record);
  // Reads the data of the record and returns what is wrong with it.
  absl::StatusOr<std::string> ReadRecord(absl::string_view header, std::string* record);
  absl::Status Damaged(absl::string_view what) const;

  std::string path_;
  std::unique_ptr<ByteStream> stream_;
  int64_t record_number_ = 0;
  int64_t offset_ = 0;  // offset of the next record to read
  int64_t last_number_ = 0, last_offset_ = 0;
  absl::Status broken_;  // the error after which nothing can be read
};

}  // namespace official::data
