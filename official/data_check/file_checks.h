// The checks of one file, by its format.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "official/data_check/check_files.h"

namespace official::data_check {

// The contents of one file, and what is wrong with them.
class Findings {
 public:
  Findings(std::string path, std::function<void(const BadRecord&)> report, std::function<void(int64_t)> add_progress)
      : file_{.path = std::move(path), .contents = ""},
        report_(std::move(report)),
        add_progress_(std::move(add_progress)) {}

  // Counts good records, or all whose bad ones are reported apart.
  void Count(int64_t num_records) { file_.num_records += num_records; }
  // Reports a record, which Count() has counted, or something else that is bad. `bad` needs no file.
  void Bad(BadRecord bad) {
    bad.file = file_.path;
    ++file_.num_bad;
    report_(bad);
  }
  // Says what the file holds.
  void SetContents(std::string contents) { file_.contents = std::move(contents); }
  // Counts bytes that have been read.
  void Progress(int64_t num_bytes) { add_progress_(num_bytes); }

  const std::string& path() const { return file_.path; }
  const CheckedFile& file() const { return file_; }

 private:
  CheckedFile file_;
  std::function<void(const BadRecord&)> report_;
  std::function<void(int64_t)> add_progress_;
};

// Each reads the file to its end. DataLoss becomes a finding; other errors are returned.
absl::Status CheckTFRecords(bool compressed, const CheckOptions& options, Findings& findings);
absl::Status CheckIdx(Findings& findings);
absl::Status CheckCifar10(Findings& findings);
absl::Status CheckRatings(Findings& findings);
absl::Status CheckVocabulary(Findings& findings);
absl::Status CheckText(Findings& findings);

// The kind of a TFRecord file, as CheckTFRecords says it.
inline constexpr absl::string_view kImageRecords = "TFRecord of images";
inline constexpr absl::string_view kSentenceRecords = "TFRecord of sentence pairs";
inline constexpr absl::string_view kText = "text";

}  // namespace official::data_check
