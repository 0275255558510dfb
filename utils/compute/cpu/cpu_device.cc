// The CPU as a device: host memory, a number of threads.

#include <cpuid.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/start_threads.h"
#include "utils/compute/cpu/team.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {
namespace {

std::string ProcessorName() {
  uint32_t brand[12] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002 + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2], &brand[4 * i + 3]);
  }
  const auto* const text = reinterpret_cast<const char*>(brand);
  return std::string(absl::StripAsciiWhitespace({text, strnlen(text, sizeof(brand))}));
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : name_(absl::StrCat("cpu:", options.index)),
        num_threads_(std::min(options.num_threads > 0 ? options.num_threads : NumThreads(), Team::kMostThreads)) {}

  int num_threads() const { return num_threads_; }
  absl::string_view kind() const override { return "cpu"; }
  absl::string_view name() const override { return name_; }
  std::string Description() const override { return absl::StrCat(name_, " (", Threads(), ")"); }
  std::string Hardware() const override { return absl::StrCat(ProcessorName(), " (", Threads(), ")"); }

  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override {
    // Large blocks on huge pages: a training step touches all of its arena, and page faults and TLB misses cost more
    // than the memory left over at the end.
    constexpr int64_t kHugePage = int64_t{2} << 20;
    const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
    const int64_t size = (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* data = std::aligned_alloc(alignment, size);
    if (data == nullptr) return absl::ResourceExhaustedError(absl::StrCat("out of memory: ", bytes, " bytes needed"));
    if (alignment == kHugePage) madvise(data, size, MADV_HUGEPAGE);
    std::memset(data, 0, size);
    return std::shared_ptr<void>(data, std::free);
  }

  bool uses_host_memory() const override { return true; }
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, bytes);
    return absl::OkStatus();
  }
  void MakeCurrent() override {
    SetNumThreads(num_threads_);
    FlushDenormals();  // also for kernels that are too small for a parallel loop
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  std::string Threads() const {
    return absl::StrCat(num_threads_, num_threads_ == 1 ? " thread, " : " threads, ", IsaName(CpuIsa()));
  }

  std::string name_;
  int num_threads_;
};

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(const DeviceOptions& options) {
  auto device = std::make_unique<CpuDevice>(options);
  StartThreads(device->num_threads());
  return device;
}

const bool registered = RegisterDeviceKind({.name = "cpu", .make_device = MakeCpuDevice});

}  // namespace
}  // namespace official::compute
