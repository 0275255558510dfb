// Reads TFRecord files of ImageNet's kind to the last pixel and reports every bad record.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::resnet {

struct CheckOptions {
  std::vector<std::string> paths;  // files, and directories with train-*-of-* or validation-*-of-* in them
  // Labels are 0 to one less than this. Unset: the number of names in the labels.txt next to a file, else that of
  // ImageNet.
  std::optional<int64_t> num_classes = std::nullopt;
  int num_threads = 1;
};

struct CheckResult {
  int64_t num_files = 0;
  int64_t num_records = 0;
  int64_t num_bad = 0;
};

// Calls `report` with "<file>: record <number> at offset <offset>: <what>" for each record whose checksums, features or
// image are bad. After a damaged length nothing can be found: that counts as one bad record, the last of its file.
// NotFound if a path is missing, or a directory holds no such files; DataLoss if some of its files are missing.
absl::StatusOr<CheckResult> CheckRecords(const CheckOptions& options,
                                         const std::function<void(const std::string&)>& report);

}  // namespace official::resnet
