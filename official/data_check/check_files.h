// Reads data files of all models to their ends, as training reads them, and reports everything that is bad.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::data_check {

struct CheckOptions {
  // Files, and directories, which are searched with all below them. In a directory, files that no program reads are
  // passed over, and so is text, but for files whose names differ in two-letter language codes (ISO 639-1) at their
  // ends; a file that is named must be one of the formats (data_format.h).
  std::vector<std::string> paths;
  // Labels of images in TFRecord files are 0 to one less than this. Unset: the number of names in the labels.txt next
  // to a file, else that of ImageNet.
  std::optional<int64_t> num_classes = std::nullopt;
  // Ids of subtokens in TFRecord files of sentences are 0 to one less than this. Unset: the size of the only vocabulary
  // vocab.* next to a file; without one any id will do.
  std::optional<int64_t> vocab_size = std::nullopt;
  int num_threads = 1;  // the number of files that are read at a time
};

// Something bad, at the place that is known.
struct BadRecord {
  std::string file = "";
  std::optional<int64_t> record = std::nullopt;  // its number, from 0
  std::optional<int64_t> line = std::nullopt;    // the number of the line, from 1
  std::optional<int64_t> offset = std::nullopt;  // bytes before the record, once decompressed
  std::string message;                           // one line that names all of these, and what is wrong
};

struct CheckedFile {
  std::string path;
  std::string contents;     // e.g. "TFRecord of images, gzip"
  int64_t num_records = 0;  // images, sentences, ratings or lines, with the bad ones
  int64_t num_bad = 0;
};

struct CheckResult {
  int64_t num_files = 0;
  int64_t num_records = 0;
  int64_t num_bad = 0;
};

// The functions that are called while files are read, by one thread at a time.
struct Reports {
  std::function<void(const BadRecord&)> bad;
  std::function<void(const CheckedFile&)> file;  // at the end of each file
};

// Checks all files. After damage behind which nothing can be found, that counts as the last bad record of its file. Of
// files that belong together, such as images and their labels, the numbers of records are compared; that a numbered
// file of a directory is missing is a bad record, too. Memory is bounded, whatever the files claim: a record has at
// most 1 GiB, a vocabulary 64 MiB, and an IDX file what it holds. NotFound if a path is missing, or a directory has no
// data; DataLoss if a file that is named is in no known format; other errors as in utils/files.
absl::StatusOr<CheckResult> CheckFiles(const CheckOptions& options, const Reports& reports);

}  // namespace official::data_check
