// safetensors: the file format in which most published weights are. A file is the size of the header (8 bytes,
// little-endian), the header (JSON), and the bytes of the tensors, row-major and little-endian:
//   {"__metadata__": {"format": "tf"}, "dense/bias": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
// The format has no strings: those of a checkpoint are entries "string:NAME" of __metadata__ here. It has no checksums
// either.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/files/files.h"
#include "utils/train/checkpoint/tensor_reader.h"

namespace official::train {

inline constexpr absl::string_view kSafetensorsSuffix = ".safetensors";

// True if a file that begins with `head`, at least 9 bytes, and has `file_size` bytes may be one of safetensors.
bool LooksLikeSafetensors(absl::string_view head, int64_t file_size);

// Files are not trusted: Open() checks the header against the file, as the library safetensors does. Each tensor must
// have the bytes that its type needs, and the tensors must follow each other without gaps from the end of the header to
// the end of the file; headers above 100 MB are refused. DataLoss if a file is damaged, NotFound if it is missing.
class SafetensorsReader final : public TensorReader {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  // The entries of __metadata__ that are not strings of a checkpoint.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  std::vector<StoredTensor> ListTensors() const override;
  std::optional<StoredTensor> Find(const std::string& name) const override;
  absl::StatusOr<compute::Tensor> Read(const std::string& name) const override;
  absl::StatusOr<std::vector<std::string>> ReadStrings(const std::string& name) const override;
  absl::Status Verify(const std::string& name) const override;

 private:
  explicit SafetensorsReader(std::unique_ptr<files::RandomAccessFile> file) : file_(std::move(file)) {}
  absl::Status ReadHeader();
  // The tensors must cover the bytes from `begin` to the end of the file.
  absl::Status CheckOffsets(int64_t begin) const;
  absl::Status Damaged(absl::string_view what) const;
  absl::Status NotThere(absl::string_view name) const;

  std::unique_ptr<files::RandomAccessFile> file_;
  std::map<std::string, StoredTensor> tensors_;  // strings too
  std::map<std::string, std::string> metadata_, strings_;
};

// A tensor that is made only when it is written, and freed right after.
struct SafetensorsTensor {
  compute::TensorType type;
  std::function<absl::StatusOr<compute::Tensor>()> read;
};

// Writes a file in one durable step, in the layout of the library safetensors: `strings` and `metadata` become
// __metadata__, which comes first; tensors are sorted by type, wide ones first, then by name; the header is padded to a
// multiple of 8 bytes. InvalidArgument if a name or text is not UTF-8, or a name is "__metadata__".
absl::Status WriteSafetensors(const std::string& path, const std::map<std::string, SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& strings,
                              const std::map<std::string, std::string>& metadata);

}  // namespace official::train
