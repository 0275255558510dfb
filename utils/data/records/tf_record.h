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

// Nothing in a file tells whether it is compressed: who opens it must know. kGzip reads zlib streams too.
enum class Compression { kNone, kGzip };

class Deflater;    // compresses what is written
class ByteStream;  // the bytes of a file, or what they expand to

class TFRecordWriter {
 public:
  // Errors of the file system as in utils/files.
  static absl::StatusOr<std::unique_ptr<TFRecordWriter>> Open(
      const std::string& path, Compression compression = Compression::kNone,
      files::FileWriter::Mode mode = files::FileWriter::Mode::kReplace);
  // Appends to a file of the caller's, which outlives the writer and which Close() leaves open.
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

  // Puts the next record into *record; false at the end of the file. A damaged or cut record is DataLoss with file,
  // number of the record (from 0), offset (in the expanded bytes) and what is wrong. A length is believed, and memory
  // for it taken, only when its checksum holds and the file is long enough.
  absl::StatusOr<bool> Next(std::string* record);

  // Whether Next(), after an error, gives the record behind the damaged one. Where the file goes on behind a damaged
  // length or a cut record is not known: then Next() repeats its error.
  bool can_go_on() const { return broken_.ok(); }

 private:
  TFRecordReader(std::string path, std::unique_ptr<ByteStream> stream);
  absl::StatusOr<bool> ReadNext(std::string* record);
  // What is wrong with the data of the record, which is read all the same.
  absl::StatusOr<std::string> ReadRecord(absl::string_view header, std::string* record);
  absl::Status Damaged(absl::string_view what) const;

  std::string path_;
  std::unique_ptr<ByteStream> stream_;
  int64_t record_number_ = 0;
  int64_t offset_ = 0;   // of the record to be read next
  absl::Status broken_;  // the error behind which nothing can be read
};

}  // namespace official::data
