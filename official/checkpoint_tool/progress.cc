#include "official/checkpoint_tool/progress.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "utils/compute/core/status.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

int64_t BytesOf(const std::vector<Checkpoint*>& checkpoints) {
  int64_t bytes = 0;
  for (const Checkpoint* const checkpoint : checkpoints) {
    for (const StoredTensor& tensor : checkpoint->reader->ListTensors()) bytes += tensor.num_bytes;
  }
  return bytes;
}

// Reads from another reader, and counts the bytes.
class CountingReader : public train::TensorReader {
 public:
  CountingReader(const TensorReader& reader, logs::TaskProgress& progress) : reader_(reader), progress_(progress) {}

  std::vector<StoredTensor> ListTensors() const override { return reader_.ListTensors(); }
  std::optional<StoredTensor> Find(const std::string& name) const override { return reader_.Find(name); }

  absl::StatusOr<compute::Tensor> Read(const std::string& name) const override {
    return Count(name, reader_.Read(name));
  }
  absl::StatusOr<std::vector<std::string>> ReadStrings(const std::string& name) const override {
    return Count(name, reader_.ReadStrings(name));
  }
  absl::Status Verify(const std::string& name) const override { return Count(name, reader_.Verify(name)); }

 private:
  // Counts the bytes of the tensor that has given `result`, and returns that.
  template <typename T>
  T Count(const std::string& name, T result) const {
    if (const std::optional<StoredTensor> tensor = reader_.Find(name)) progress_.Add(tensor->num_bytes);
    return result;
  }

  const TensorReader& reader_;
  logs::TaskProgress& progress_;
};

}  // namespace

ReadingProgress::ReadingProgress(const std::string& title, const std::vector<Checkpoint*>& checkpoints)
    : checkpoints_(checkpoints), progress_({.title = title, .total = BytesOf(checkpoints), .unit = "B"}) {
  for (Checkpoint* const checkpoint : checkpoints_) {
    readers_.push_back(std::move(checkpoint->reader));
    checkpoint->reader = std::make_unique<CountingReader>(*readers_.back(), progress_);
  }
}

ReadingProgress::~ReadingProgress() {
  for (size_t i = 0; i < checkpoints_.size(); ++i) checkpoints_[i]->reader = std::move(readers_[i]);
}

}  // namespace official::checkpoint_tool
