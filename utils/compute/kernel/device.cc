#include "utils/compute/kernel/device.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::compute {
namespace {

std::map<std::string, DeviceKind>& Kinds() {
  static auto* const kinds = new std::map<std::string, DeviceKind>;
  return *kinds;
}

class CopiedFeeds : public FeedBuffers {
 public:
  explicit CopiedFeeds(Device& device) : device_(device) {}
  absl::Status Add(int64_t bytes) {
    absl::StatusOr<std::shared_ptr<void>> memory = device_.Allocate(bytes);
    if (memory.ok()) feeds_.push_back({*std::move(memory), bytes});
    return memory.status();
  }
  void* data(int i) const override { return feeds_[i].memory.get(); }
  absl::Status Fill(absl::Span<const void* const> feeds) override {
    absl::Status status;
    for (size_t i = 0; i < feeds.size(); ++i) {
      status.Update(device_.CopyToDevice(feeds_[i].memory.get(), feeds[i], feeds_[i].bytes));
    }
    return status;
  }

 private:
  struct Feed {
    std::shared_ptr<void> memory;
    int64_t bytes;
  };
  Device& device_;
  std::vector<Feed> feeds_;
};

class CopiedValue : public HostBuffer {
 public:
  CopiedValue(Device& device, int64_t bytes) : device_(device), value_(bytes) {}
  absl::Status StartCopy(const void* device) override {
    return device_.CopyToHost(value_.data(), device, static_cast<int64_t>(value_.size()));
  }
  absl::StatusOr<const void*> Wait() override { return value_.data(); }

 private:
  Device& device_;
  std::vector<char> value_;
};

class HostTimer : public DeviceTimer {
 public:
  explicit HostTimer(Device& device) : device_(device) {}

  absl::Status Mark() override {
    marks_.push_back(std::chrono::steady_clock::now());
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<int64_t>> Read() override {
    if (absl::Status status = device_.Synchronize(); !status.ok()) return status;
    std::vector<int64_t> times;
    for (const auto& mark : marks_) {
      times.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(mark - marks_[0]).count());
    }
    return times;
  }

 private:
  Device& device_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTimer>> Device::MakeTimer() { return std::make_unique<HostTimer>(*this); }

absl::StatusOr<std::unique_ptr<FeedBuffers>> Device::MakeFeedBuffers(absl::Span<const int64_t> bytes) {
  auto feeds = std::make_unique<CopiedFeeds>(*this);
  for (const int64_t b : bytes) {
    if (const absl::Status status = feeds->Add(b); !status.ok()) return status;
  }
  return feeds;
}

absl::StatusOr<std::unique_ptr<HostBuffer>> Device::MakeHostBuffer(int64_t bytes) {
  return std::make_unique<CopiedValue>(*this, bytes);
}

bool RegisterDeviceKind(DeviceKind kind) {
  std::string name = kind.name;
  Kinds()[std::move(name)] = std::move(kind);
  return true;
}

const DeviceKind* FindDeviceKind(absl::string_view name) {
  const auto it = Kinds().find(std::string(name));
  return it == Kinds().end() ? nullptr : &it->second;
}

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, const DeviceOptions& options) {
  const DeviceKind* const found = FindDeviceKind(kind);
  if (found == nullptr) {
    const std::string kinds = absl::StrJoin(DeviceKinds(), ", ");
    const bool is_gpu = kind == kCudaKind || kind == "gpu";
    return absl::NotFoundError(
        absl::StrCat("no device of kind ", kind,
                     "; there are: ", kinds.empty() ? "none (a program links //utils/compute/cpu:cpu_device)" : kinds,
                     is_gpu ? "; GPUs are of kind cuda, once compute::LoadCudaBackend() has found them" : ""));
  }
  return found->make_device(options);
}

std::vector<std::string> DeviceKinds() {
  std::vector<std::string> kinds;
  for (const auto& [name, kind] : Kinds()) kinds.push_back(name);
  return kinds;
}

}  // namespace official::compute
