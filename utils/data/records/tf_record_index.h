// The places of the records in uncompressed TFRecord files, so that any of them can be read at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/data/fingerprint.h"
#include "utils/data/records/bad_records.h"
#include "utils/files/files.h"

namespace official::data {

// Appends the offset of each record of a file, and of the end of the last one. Reads only the records' headers.
// DataLoss, at the first record that is truncated, has a damaged header or more than 1 GiB of data, with file, number
// of the record (from 0), offset and what is wrong; the offsets up to it are in `offsets` all the same.
absl::Status FindTFRecords(const files::RandomAccessFile& file, std::vector<int64_t>* offsets);

// Returns the data of record `number` (from 0), which lies in [begin, end) as FindTFRecords found it, as a part of
// `buffer`. DataLoss if a checksum does not match.
absl::StatusOr<absl::string_view> ReadTFRecord(const files::RandomAccessFile& file, int64_t number, int64_t begin,
                                               int64_t end, std::string* buffer);

class TFRecordIndex {
 public:
  // Finds the records of all files, many files at a time, since it takes one small read for each record. The result is
  // kept in the file `cache`, if one is named, and taken from there the next time for files whose size and time of
  // change are the same. A cache that is missing or damaged is made again; one that cannot be written causes a warning.
  // Errors are those of FindTFRecords for the first bad file, and of the file system as in utils/files. With `bad` a
  // record whose end cannot be found is left out, with all that follow in its file.
  static absl::StatusOr<TFRecordIndex> Build(const std::vector<std::string>& paths, const std::string& cache = "",
                                             BadRecords* bad = nullptr);

  int64_t num_records() const { return first_records_.back(); }
  int num_files() const { return static_cast<int>(files_.size()); }
  // Returns the index of files `index`, `index` + num_shards, ..., 0 <= index < num_shards.
  TFRecordIndex Shard(int num_shards, int index) const;
  // Adds the names of the files and the offsets of their records.
  void AddTo(Fingerprint& fingerprint) const;
  // Returns the data of record `i` of all, counted in the order of the files, as a part of `buffer`. Several threads
  // may call it at once.
  absl::StatusOr<absl::string_view> Read(int64_t i, std::string* buffer) const;
  // Returns "<path>: record <number> at offset <offset>", for messages about the record's contents.
  std::string Describe(int64_t i) const;

 private:
  struct File {
    std::string path;
    int64_t modified_ns = 0;
    std::vector<int64_t> offsets;  // offsets of the records, and of the end
  };
  struct Place {
    const File& file;
    int64_t number;  // number of the record in its file
  };
  Place Find(int64_t i) const;

  // Appends a file whose offsets are known.
  void Add(File file);
  static absl::StatusOr<std::vector<File>> ReadCache(const std::string& cache);
  absl::Status WriteCache(const std::string& cache) const;

  std::vector<File> files_;
  std::vector<int64_t> first_records_ = {0};  // number, among all, of each file's first; last the number of all
};

}  // namespace official::data
