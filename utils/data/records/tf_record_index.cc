#include "utils/data/records/tf_record_index.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/tf_record_format.h"
#include "utils/data/worker_pool.h"

namespace official::data {
namespace {

constexpr int64_t kHeaderBytes = kTFRecordHeaderBytes, kTrailerBytes = kTFRecordTrailerBytes;

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
    const std::string bad_header = CheckTFRecordHeader(header_bytes, number == 0);
    if (!bad_header.empty()) return DamagedRecord(file.path(), number, offset, bad_header);
    const uint64_t length = GetFixed<uint64_t>(header_bytes);
    if (left < kTrailerBytes || length > static_cast<uint64_t>(left - kTrailerBytes)) {
      return DamagedRecord(file.path(), number, offset, LongerThanFile(length, left));
    }
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
  std::string bad = CheckTFRecordHeader(bytes, number == 0);
  if (bad.empty()) bad = CheckTFRecordData(data, bytes.substr(kHeaderBytes + data.size()));
  if (!bad.empty()) return DamagedRecord(file.path(), number, begin, bad);
  return data;
}

absl::StatusOr<TFRecordIndex> TFRecordIndex::Build(const std::vector<std::string>& paths, int num_threads) {
  TFRecordIndex index;
  index.files_.resize(paths.size());
  std::vector<absl::Status> statuses(paths.size());
  WorkerPool(num_threads).ForEach(paths.size(), [&](int64_t i) {
    index.files_[i].path = paths[i];
    const auto file = files::RandomAccessFile::Open(paths[i]);
    statuses[i] = file.ok() ? FindTFRecords(**file, &index.files_[i].offsets) : file.status();
  });
  index.first_records_ = {0};
  for (size_t i = 0; i < paths.size(); ++i) {
    RETURN_IF_ERROR(statuses[i]);
    index.first_records_.push_back(index.num_records() + static_cast<int64_t>(index.files_[i].offsets.size()) - 1);
  }
  return index;
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
