#include <leveldb/env.h>
#include <leveldb/options.h>
#include <leveldb/status.h>
#include <leveldb/table_builder.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/files/crc32c.h"
#include "utils/misc/run_files.h"
#include "utils/protos/bundle.pb.h"
#include "utils/protos/tensor_conversion.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {
namespace {

// TensorFlow's block size; large entries get blocks of their own (tensorflow/core/lib/io/table_builder.cc).
constexpr size_t kBlockBytes = 262144;

template <typename T>
std::string FixedBytes(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

// Where leveldb writes the table: into memory, so that errors of the disk have one source.
class TableInMemory : public leveldb::WritableFile {
 public:
  leveldb::Status Append(const leveldb::Slice& data) override {
    bytes_.append(data.data(), data.size());
    return leveldb::Status::OK();
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string BuildTable(const std::map<std::string, std::string>& entries) {
  leveldb::Options options;
  options.block_size = kBlockBytes;
  options.block_restart_interval = 16;
  options.compression = leveldb::kNoCompression;
  TableInMemory table;
  leveldb::TableBuilder builder(options, &table);
  for (const auto& [key, value] : entries) {
    if (key.size() + value.size() >= 2 * kBlockBytes) builder.Flush();
    builder.Add(key, value);
  }
  OFFICIAL_CHECK(builder.Finish().ok()) << builder.status().ToString();
  return table.bytes();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BundleWriter>> BundleWriter::Create(const std::string& prefix) {
  ASSIGN_OR_RETURN(auto data, files::AtomicFile::Create(absl::StrCat(prefix, misc::kDataSuffix)));
  return std::unique_ptr<BundleWriter>(new BundleWriter(prefix, std::move(data)));
}

BundleWriter::BundleWriter(std::string prefix, std::unique_ptr<files::AtomicFile> data)
    : prefix_(std::move(prefix)), data_(std::move(data)) {
  tensorflow::BundleHeaderProto header;
  header.set_num_shards(1);
  header.mutable_version()->set_producer(1);
  entries_[""] = header.SerializeAsString();
}

BundleWriter::~BundleWriter() = default;

void BundleWriter::AddEntry(const std::string& name, int data_type, const compute::Shape& shape, int64_t offset,
                            uint32_t crc) {
  tensorflow::BundleEntryProto entry;
  entry.set_dtype(static_cast<tensorflow::DataType>(data_type));
  *entry.mutable_shape() = ToShapeProto(shape.dims());
  entry.set_offset(offset);
  entry.set_size(data_->size() - offset);
  entry.set_crc32c(files::MaskCrc(crc));
  const bool is_new = entries_.emplace(name, entry.SerializeAsString()).second;
  OFFICIAL_CHECK(is_new) << "tensor \"" << name << "\" is added twice, or has no name";
}

absl::Status BundleWriter::Add(const std::string& name, const compute::Tensor& tensor) {
  const absl::string_view bytes(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
  const int64_t offset = data_->size();
  RETURN_IF_ERROR(data_->Append(bytes));
  AddEntry(name, ToDataType(tensor.dtype()), tensor.shape(), offset, files::Crc32c(bytes));
  return absl::OkStatus();
}

absl::Status BundleWriter::AddStrings(const std::string& name, const compute::Shape& shape,
                                      absl::Span<const std::string> values) {
  OFFICIAL_CHECK(shape.num_elements() == values.size()) << values.size() << " strings for " << shape;
  // The lengths (varints), the masked checksum of the lengths, the strings. The checksums take a length as 4 bytes, or
  // 8 if it needs more, not as varint.
  const int64_t offset = data_->size();
  std::string lengths;
  uint32_t crc = 0;
  for (const std::string& value : values) {
    AppendVarint(value.size(), &lengths);
    const bool is_long = value.size() > UINT32_MAX;
    crc = files::Crc32c(is_long ? FixedBytes<uint64_t>(value.size()) : FixedBytes<uint32_t>(value.size()), crc);
  }
  const std::string lengths_crc = FixedBytes(files::MaskCrc(crc));
  crc = files::Crc32c(lengths_crc, crc);
  RETURN_IF_ERROR(data_->Append(absl::StrCat(lengths, lengths_crc)));
  for (const std::string& value : values) {
    RETURN_IF_ERROR(data_->Append(value));
    crc = files::Crc32c(value, crc);
  }
  AddEntry(name, tensorflow::DT_STRING, shape, offset, crc);
  return absl::OkStatus();
}

absl::Status BundleWriter::Finish() {
  ASSIGN_OR_RETURN(const auto index, files::AtomicFile::Create(absl::StrCat(prefix_, misc::kIndexSuffix)));
  RETURN_IF_ERROR(index->Append(BuildTable(entries_)));
  // Both files are on the disk before either gets its name, so that whoever finds the names after a crash finds the
  // bytes.
  RETURN_IF_ERROR(data_->Finish());
  RETURN_IF_ERROR(index->Finish());
  RETURN_IF_ERROR(data_->Publish());
  if (const absl::Status status = index->Publish(); !status.ok()) {
    // If there was an index of this name, it does not fit the data any more; CheckpointSaver::Open can finish this.
    index->KeepTemporary();
    return status;
  }
  return files::SyncDirectory(files::DirectoryOf(prefix_));
}

}  // namespace official::train
