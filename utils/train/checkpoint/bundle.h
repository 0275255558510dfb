// TensorBundle: TensorFlow's checkpoint format. A bundle with prefix P is P.index, a sorted table from tensor names to
// types, places and checksums, and P.data-00000-of-00001 (or several shards), the bytes of the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/files/files.h"
#include "utils/train/checkpoint/tensor_reader.h"

namespace official::train {

// Writes a bundle of one shard, byte for byte as TensorFlow's Saver does if the tensors are added in the order of their
// names. Both files appear, complete and durable, in Finish(); a writer destroyed before that leaves no files. Errors
// are those of the file system (utils/files).
class BundleWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BundleWriter>> Create(const std::string& prefix);
  ~BundleWriter();

  // Names must be unique and not empty. The bytes are written, not kept.
  absl::Status Add(const std::string& name, const compute::Tensor& tensor);
  // Adds a tensor of strings, as many as `shape` has elements.
  absl::Status AddStrings(const std::string& name, const compute::Shape& shape, absl::Span<const std::string> values);
  absl::Status Finish();

 private:
  BundleWriter(std::string prefix, std::unique_ptr<files::AtomicFile> data);
  // Records that the tensor `name` is in the data file from `offset` to its present end.
  void AddEntry(const std::string& name, int data_type, const compute::Shape& shape, int64_t offset, uint32_t crc);

  std::string prefix_;
  std::unique_ptr<files::AtomicFile> data_;
  std::map<std::string, std::string> entries_;  // name to serialized BundleEntryProto
};

// Reads bundles of any writer: several shards, variables saved in slices, strings. Files are not trusted: Open() finds
// every size, place and slice that does not fit the files, and nothing larger than what the files hold is allocated.
// Damage is DataLoss, a missing file NotFound. Unimplemented is an intact bundle that exceeds a limit of the reader:
// 2^20 tensors, 1024 slices of a variable, 64 MiB of strings in a tensor and 2^20 of them if they are read, none of
// them in slices. Messages name file and tensor.
class BundleReader final : public TensorReader {
 public:
  static absl::StatusOr<std::unique_ptr<BundleReader>> Open(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  // A variable saved in slices is one tensor.
  std::vector<StoredTensor> ListTensors() const override;
  std::optional<StoredTensor> Find(const std::string& name) const override;
  absl::StatusOr<compute::Tensor> Read(const std::string& name) const override;
  absl::StatusOr<std::vector<std::string>> ReadStrings(const std::string& name) const override;
  absl::Status Verify(const std::string& name) const override;

  // Reads every byte once and compares all checksums, in little memory.
  absl::Status VerifyChecksums() const;

 private:
  // The part of a dimension that a slice covers.
  struct Extent {
    int64_t start;
    int64_t length;  // -1: the whole dimension
  };
  using Slice = std::vector<Extent>;

  struct Entry {
    int data_type;  // tensorflow::DataType
    compute::Shape shape;
    int shard;
    int64_t offset;
    int64_t size;
    uint32_t crc;               // masked
    std::vector<Slice> slices;  // if any, the bytes are in the entries of the slices
  };

  struct Shard {
    std::unique_ptr<files::RandomAccessFile> file;
    int64_t bytes_left;  // not claimed by a tensor yet: no two share bytes, or a small file could hold endless ones
    int64_t end = 0;     // end of the last tensor
  };

  explicit BundleReader(std::string prefix);
  absl::Status ReadHeader(absl::string_view value);
  absl::Status AddEntry(absl::string_view key, absl::string_view value);
  absl::Status CheckExtent(absl::string_view key, const Entry& entry);
  absl::Status CheckShardSizes() const;
  absl::Status CheckSlices(const std::string& name, const Entry& entry) const;
  absl::Status Damaged(absl::string_view key, absl::string_view what) const;
  absl::Status Unsupported(absl::string_view key, absl::string_view what) const;
  absl::Status NotThere(absl::string_view name, absl::string_view what) const;
  absl::Status DamagedBytes(absl::string_view key, const Entry& entry, absl::string_view what) const;
  absl::Status WrongChecksum(absl::string_view key, const Entry& entry, uint32_t computed) const;

  absl::Status ReadBytes(absl::string_view key, const Entry& entry, void* destination) const;
  absl::Status ReadSlices(const std::string& name, const Entry& entry, const compute::Tensor& tensor) const;
  absl::StatusOr<std::string> ReadStringBytes(absl::string_view key, const Entry& entry) const;
  absl::Status VerifyBytes(absl::string_view key, const Entry& entry) const;
  absl::Status VerifyVariants(absl::string_view key, const Entry& entry) const;
  // Verifies the bytes of a tensor or a slice.
  absl::Status VerifyEntry(absl::string_view key, const Entry& entry) const;

  static std::string SliceKey(absl::string_view name, const Slice& slice);

  std::string prefix_;
  int num_shards_ = 0;
  // The shards, open from the start: a checkpoint that is deleted while it is being read stays readable.
  std::map<int, Shard> shards_;
  std::map<std::string, Entry> entries_;  // by key: names, and keys of slices, which begin with a zero byte
};

}  // namespace official::train
