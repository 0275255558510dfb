#include "utils/data/records/tf_record_index.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/tf_record.h"
#include "utils/data/records/tf_record_format.h"
#include "utils/data/worker_pool.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"

namespace official::data {
namespace {

constexpr int64_t kHeaderBytes = kTFRecordHeaderBytes, kTrailerBytes = kTFRecordTrailerBytes;
// More than there are cores: threads that read headers wait for the disk.
constexpr size_t kFilesAtOnce = 32;

// Whether these are offsets of records and of the end of a file.
bool AreOffsets(const std::vector<int64_t>& offsets) {
  if (offsets.empty() || offsets[0] != 0) return false;
  for (size_t i = 1; i < offsets.size(); ++i) {
    const int64_t bytes = offsets[i] - offsets[i - 1] - kHeaderBytes - kTrailerBytes;
    if (bytes < 0 || bytes > static_cast<int64_t>(kMaxTFRecordBytes)) return false;
  }
  return true;
}

}  // namespace

absl::Status FindTFRecords(const files::RandomAccessFile& file, std::vector<int64_t>* offsets) {
  int64_t offset = 0;
  for (int64_t number = 0; offset < file.size(); ++number) {
    offsets->push_back(offset);
    const int64_t left = file.size() - offset - kHeaderBytes;
    if (left < 0) {
      return DamagedRecord(
          file.path(), number, offset,
          absl::StrFormat("truncated record: %d of the %d bytes of its header", left + kHeaderBytes, kHeaderBytes));
    }
    char header[kHeaderBytes];
    RETURN_IF_ERROR(file.Read(offset, kHeaderBytes, header));
    const absl::string_view header_bytes(header, kHeaderBytes);
    const std::string bad_header = CheckTFRecordHeader(header_bytes, number, file.path());
    if (!bad_header.empty()) return DamagedRecord(file.path(), number, offset, bad_header);
    const uint64_t length = GetFixed<uint64_t>(header_bytes);
    if (left < kTrailerBytes || length > static_cast<uint64_t>(left - kTrailerBytes)) {
      return DamagedRecord(file.path(), number, offset, LongerThanFile(length, left));
    }
    if (length > kMaxTFRecordBytes) return DamagedRecord(file.path(), number, offset, LongerThanLimit(length));
    offset += kHeaderBytes + static_cast<int64_t>(length) + kTrailerBytes;
  }
  offsets->push_back(offset);
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> ReadTFRecord(const files::RandomAccessFile& file, int64_t number, int64_t begin,
                                               int64_t end, std::string* buffer) {
  buffer->resize(end - begin);
  RETURN_IF_ERROR(file.Read(begin, end - begin, buffer->data()));
  const absl::string_view bytes = *buffer;
  const absl::string_view data = bytes.substr(kHeaderBytes, bytes.size() - kHeaderBytes - kTrailerBytes);
  std::string bad = CheckTFRecordHeader(bytes, number, file.path());
  if (bad.empty()) bad = CheckTFRecordData(data, bytes.substr(kHeaderBytes + data.size()));
  if (!bad.empty()) return DamagedRecord(file.path(), number, begin, bad);
  return data;
}

absl::StatusOr<TFRecordIndex> TFRecordIndex::Build(const std::vector<std::string>& paths, const std::string& cache,
                                                   BadRecords* bad) {
  std::vector<File> known;
  if (!cache.empty()) {
    known = ReadCache(cache).value_or(std::vector<File>());
    if (known.size() != paths.size()) {
      known.clear();
      LOG(INFO) << "finding where the records of " << paths.size() << " files begin, once: " << cache << " keeps it";
    }
  }
  known.resize(paths.size());
  std::vector<File> files(paths.size());
  std::vector<absl::Status> statuses(paths.size());
  std::atomic<bool> has_news = false;
  const auto find = [&](int64_t i) -> absl::Status {
    ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(paths[i]));
    File& indexed = files[i];
    indexed = std::move(known[i]);
    if (indexed.path == paths[i] && indexed.modified_ns == file->modified_ns() &&
        indexed.offsets.back() == file->size()) {
      return absl::OkStatus();
    }
    has_news = true;
    indexed = {paths[i], file->modified_ns(), {}};
    const absl::Status status = FindTFRecords(*file, &indexed.offsets);
    if (!absl::IsDataLoss(status) || bad == nullptr) return status;
    return bad->Skip(absl::StrCat(paths[i], ": record ", indexed.offsets.size() - 1),
                     absl::DataLossError(absl::StrCat(status.message(), "; what follows in the file cannot be read")));
  };
  logs::TaskProgress progress(
      {.title = "finding records", .total = static_cast<int64_t>(paths.size()), .unit = "files"});
  WorkerPool(static_cast<int>(std::clamp<size_t>(paths.size(), 1, kFilesAtOnce))).ForEach(paths.size(), [&](int64_t i) {
    statuses[i] = find(i);
    progress.Add(1);
  });
  TFRecordIndex index;
  for (size_t i = 0; i < paths.size(); ++i) {
    RETURN_IF_ERROR(statuses[i]);
    index.Add(std::move(files[i]));
  }
  if (!cache.empty() && has_news) {
    const absl::Status written = index.WriteCache(cache);
    if (!written.ok()) {
      LOG(WARNING) << "the index of the records is not kept, so the next start makes it again: " << written.message();
    }
  }
  return index;
}

void TFRecordIndex::Add(File file) {
  first_records_.push_back(num_records() + static_cast<int64_t>(file.offsets.size()) - 1);
  files_.push_back(std::move(file));
}

TFRecordIndex TFRecordIndex::Shard(int num_shards, int index) const {
  TFRecordIndex shard;
  for (int i = index; i < num_files(); i += num_shards) shard.Add(files_[i]);
  return shard;
}

void TFRecordIndex::AddTo(Fingerprint& fingerprint) const {
  for (const File& file : files_) {
    fingerprint.AddFile(file.path);
    fingerprint.AddContent(file.offsets.data(), static_cast<int64_t>(file.offsets.size() * sizeof(int64_t)));
  }
}

// The cache is a TFRecord file itself, so that its checksums tell damage. It has two records for each file: the path,
// and 64-bit numbers, the time of change before the offsets.
absl::StatusOr<std::vector<TFRecordIndex::File>> TFRecordIndex::ReadCache(const std::string& cache) {
  ASSIGN_OR_RETURN(const auto reader, TFRecordReader::Open(cache));
  std::vector<File> files;
  for (std::string path, numbers;;) {
    ASSIGN_OR_RETURN(const bool more, reader->Next(&path));
    if (!more) return files;
    ASSIGN_OR_RETURN(const bool whole, reader->Next(&numbers));
    File file{path, 0, std::vector<int64_t>(numbers.size() / sizeof(int64_t))};
    if (!file.offsets.empty()) {
      std::memcpy(file.offsets.data(), numbers.data(), file.offsets.size() * sizeof(int64_t));
      file.modified_ns = file.offsets[0];
      file.offsets.erase(file.offsets.begin());
    }
    if (!whole || !AreOffsets(file.offsets))
      return absl::DataLossError(absl::StrCat(cache, " is not an index of records"));
    files.push_back(std::move(file));
  }
}

absl::Status TFRecordIndex::WriteCache(const std::string& cache) const {
  ASSIGN_OR_RETURN(const auto cache_file, files::AtomicFile::Create(cache));
  TFRecordWriter writer(cache_file->writer());
  for (const File& file : files_) {
    std::vector<int64_t> numbers = {file.modified_ns};
    numbers.insert(numbers.end(), file.offsets.begin(), file.offsets.end());
    RETURN_IF_ERROR(writer.Write(file.path));
    RETURN_IF_ERROR(writer.Write({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)}));
  }
  RETURN_IF_ERROR(writer.Close());
  RETURN_IF_ERROR(cache_file->Finish());
  return cache_file->Publish();
}

TFRecordIndex::Place TFRecordIndex::Find(int64_t i) const {
  const auto after = std::upper_bound(first_records_.begin(), first_records_.end(), i);
  const int64_t file = after - first_records_.begin() - 1;
  return {files_[file], i - first_records_[file]};
}

absl::StatusOr<absl::string_view> TFRecordIndex::Read(int64_t i, std::string* buffer) const {
  const auto [indexed, number] = Find(i);
  // Opened each time, which costs microseconds: a thousand files would exceed what many systems let a process keep
  // open.
  ASSIGN_OR_RETURN(const auto file, files::RandomAccessFile::Open(indexed.path));
  return ReadTFRecord(*file, number, indexed.offsets[number], indexed.offsets[number + 1], buffer);
}

std::string TFRecordIndex::Describe(int64_t i) const {
  const auto [file, number] = Find(i);
  return absl::StrCat(file.path, ": record ", number, " at offset ", file.offsets[number]);
}

}  // namespace official::data
