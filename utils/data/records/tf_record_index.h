// Where the records of TFRecord files begin, so that any of them can be read at any time. For files that are not
// compressed.
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

// Appends the offset of each record of a file, and where the last one ends. Reads nothing but the records' headers. At
// the first record whose header is damaged, or that the file does not hold wholly: DataLoss with file, number of the
// record (from 0), offset and what is wrong; what lies before it is in `offsets` all the same.
absl::Status FindTFRecords(const files::RandomAccessFile& file, std::vector<int64_t>* offsets);

// The data of record `number` (from 0), which lies in [begin, end) as FindTFRecords found it. It is a part of `buffer`.
// DataLoss if a checksum does not hold.
absl::StatusOr<absl::string_view> ReadTFRecord(const files::RandomAccessFile& file, int64_t number, int64_t begin,
                                               int64_t end, std::string* buffer);

class TFRecordIndex {
 public:
  // Finds the records of all files, many files at a time: that is one small read for each record, and waiting for the
  // disk. What was found is kept in the file `cache`, if one is named, and taken from there the next time, for files
  // whose size and time of change are the same. A cache that is missing or damaged is made anew; one that cannot be
  // written is warned of. Errors as FindTFRecords, those of the first bad file; of the file system as in utils/files.
  // With `bad` a record whose end cannot be found is left out, and all that follows in its file.
  static absl::StatusOr<TFRecordIndex> Build(const std::vector<std::string>& paths, const std::string& cache = "",
                                             BadRecords* bad = nullptr);

  int64_t num_records() const { return first_records_.back(); }
  // The names of the files, and where their records begin.
  void AddTo(Fingerprint& fingerprint) const;
  // The data of record `i` of all, counted in the order of the files; a part of `buffer`. Threads may call it at once.
  absl::StatusOr<absl::string_view> Read(int64_t i, std::string* buffer) const;
  // "<path>: record <number> at offset <offset>", for messages about what is in it.
  std::string Describe(int64_t i) const;

 private:
  struct File {
    std::string path;
    int64_t modified_ns = 0;
    std::vector<int64_t> offsets;  // of the records, and of the end
  };
  struct Place {
    const File& file;
    int64_t number;  // of the record in its file
  };
  Place Find(int64_t i) const;

  static absl::StatusOr<std::vector<File>> ReadCache(const std::string& cache);
  absl::Status WriteCache(const std::string& cache) const;

  std::vector<File> files_;
  std::vector<int64_t> first_records_;  // number, among all, of each file's first; at the end, the number of all
};

}  // namespace official::data
