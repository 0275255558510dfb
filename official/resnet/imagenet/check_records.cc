#include "official/resnet/imagenet/check_records.h"

#include <filesystem>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/imagenet/dataset.h"
#include "official/resnet/imagenet/example_record.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "official/resnet/imagenet/shards.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/tf_record_index.h"
#include "utils/data/worker_pool.h"
#include "utils/files/files.h"
#include "utils/logs/task_progress.h"

namespace official::resnet {
namespace {

absl::StatusOr<std::vector<std::string>> FilesOf(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      found.push_back(path);
      continue;
    }
    const size_t before = found.size();
    for (const char* split : {"train", "validation"}) {
      const absl::StatusOr<std::vector<std::string>> shards = FindShards(path, split);
      if (shards.ok()) found.insert(found.end(), shards->begin(), shards->end());
      if (!shards.ok() && !absl::IsNotFound(shards.status())) return shards.status();
    }
    if (found.size() == before) {
      return absl::NotFoundError(absl::StrFormat("%s has no files train-*-of-* or validation-*-of-*", path));
    }
  }
  return found;
}

absl::StatusOr<int64_t> NumClassesOf(const std::string& path) {
  ASSIGN_OR_RETURN(const ClassNames names, FindClassNames(files::DirectoryOf(path)));
  return names.empty() ? kImagenetClasses : static_cast<int64_t>(names.size());
}

// One thread's work; what it finds goes to the functions.
class FileChecker {
 public:
  FileChecker(int64_t num_classes, std::function<void(const std::string&)> report, logs::TaskProgress& progress)
      : num_classes_(num_classes), report_(std::move(report)), progress_(progress) {}

  absl::StatusOr<CheckResult> Check(const std::string& path) {
    CheckResult result{.num_files = 1};
    ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(path));
    std::vector<int64_t> offsets;
    const absl::Status status = data::FindTFRecords(*file, &offsets);
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const absl::Status record = CheckRecord(*file, static_cast<int64_t>(i), offsets[i], offsets[i + 1]);
      ++result.num_records;
      progress_.Add(offsets[i + 1] - offsets[i]);
      if (record.ok()) continue;
      if (!absl::IsDataLoss(record)) return record;
      ++result.num_bad;
      report_(std::string(record.message()));
    }
    if (status.ok()) return result;
    ++result.num_records;
    ++result.num_bad;
    report_(absl::StrCat(status.message(), "; what follows in the file cannot be read"));
    return result;
  }

 private:
  absl::Status CheckRecord(const files::RandomAccessFile& file, int64_t number, int64_t begin, int64_t end) {
    ASSIGN_OR_RETURN(const absl::string_view bytes, data::ReadTFRecord(file, number, begin, end, &buffer_));
    const absl::StatusOr<ImagenetRecord> record = ParseRecord(bytes, num_classes_);
    const absl::Status status = record.ok() ? CheckImage(record->encoded, scratch_).status() : record.status();
    if (status.ok()) return status;
    return absl::Status(
        status.code(), absl::StrFormat("%s: record %d at offset %d: %s", file.path(), number, begin, status.message()));
  }

  const int64_t num_classes_;
  const std::function<void(const std::string&)> report_;
  logs::TaskProgress& progress_;
  std::string buffer_;
  PreprocessingScratch scratch_;
};

}  // namespace

absl::StatusOr<CheckResult> CheckRecords(const CheckOptions& options,
                                         const std::function<void(const std::string&)>& report) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, FilesOf(options.paths));
  std::mutex mutex;
  const auto report_in_turn = [&](const std::string& line) {
    std::lock_guard<std::mutex> lock(mutex);
    report(line);
  };
  int64_t num_bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path, error);
    if (!error) num_bytes += static_cast<int64_t>(size);  // what cannot be read is told below
  }
  logs::TaskProgress progress({.title = "checking", .total = num_bytes, .unit = "B"});
  std::vector<absl::StatusOr<CheckResult>> results(paths.size());
  data::WorkerPool(options.num_threads).ForEach(paths.size(), [&](int64_t i) {
    const absl::StatusOr<int64_t> num_classes = options.num_classes ? *options.num_classes : NumClassesOf(paths[i]);
    results[i] =
        num_classes.ok() ? FileChecker(*num_classes, report_in_turn, progress).Check(paths[i]) : num_classes.status();
  });
  CheckResult total;
  for (const absl::StatusOr<CheckResult>& result : results) {
    RETURN_IF_ERROR(result.status());
    total.num_files += result->num_files;
    total.num_records += result->num_records;
    total.num_bad += result->num_bad;
  }
  return total;
}

}  // namespace official::resnet
