// Device: where programs run and variables live. A backend registers a factory for its kind ("cpu"; "cuda" is loaded
// at run time), so a new kind of device edits no existing file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/communicator.h"

namespace official::compute {

// A sequence of kernels that a device has taken down.
class Recording {
 public:
  virtual ~Recording() = default;
  // Gives the device the same work again, on the same addresses.
  virtual absl::Status Replay() = 0;
};

// Memory of a device that the feeds of a program are copied to.
class FeedBuffers {
 public:
  virtual ~FeedBuffers() = default;
  // Where feed i is for the program's kernels.
  virtual void* data(int i) const = 0;
  // Copies the feeds of the next run, from addresses in the host's memory, ordered after all work given to the device
  // before. Returns when the host's memory has been read. The error of an earlier run may come out here.
  virtual absl::Status Fill(absl::Span<const void* const> feeds) = 0;
};

// How many runs of programs a device with memory of its own may be behind: the error of a run comes out before or with
// that of this number of runs later.
inline constexpr int kMaxRunsBehind = 3;

class Device {
 public:
  virtual ~Device() = default;
  // "cpu" or "cuda": which kernels run here.
  virtual absl::string_view kind() const = 0;
  // TensorFlow's short name, "cpu:0" or "gpu:1".
  virtual absl::string_view name() const = 0;
  // What the first log line says: "cpu:0 (2 threads, AVX-512)".
  virtual std::string Description() const = 0;
  // What the times of kernels depend on, the same for all devices of a kind that are alike: "AMD EPYC (2 threads,
  // AVX-512)".
  virtual std::string Hardware() const = 0;
  // Zeroed memory, aligned to at least 64 bytes. ResourceExhausted with the number of bytes if there is not enough.
  virtual absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) = 0;
  // True if the device computes in host memory, so that host tensors can be used as they are.
  virtual bool uses_host_memory() const = 0;
  // Copies that are ordered after all work given to the device before.
  virtual absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* device, int64_t bytes) = 0;
  // For feeds of so many bytes. Not for devices that use the host's memory.
  virtual absl::StatusOr<std::unique_ptr<FeedBuffers>> MakeFeedBuffers(absl::Span<const int64_t> bytes);
  // Called on the thread that is about to run kernels here.
  virtual void MakeCurrent() = 0;
  // Waits for the work given so far; its first error, if any.
  virtual absl::Status Synchronize() = 0;
  // Takes down the kernels that `run` gives the device, without running them. nullptr, `run` not called, if the device
  // gains nothing by it.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> run) { return nullptr; }

  // The group that this device trains in; nullptr alone. Must outlive the programs that use it.
  Communicator* communicator() const { return communicator_; }
  void set_communicator(Communicator* communicator) { communicator_ = communicator; }

 private:
  Communicator* communicator_ = nullptr;
};

struct DeviceOptions {
  int index = 0;
  int num_threads = 0;      // of a CPU device; 0: all cores
  bool allow_tf32 = false;  // of a CUDA device: float32 matrix products and convolutions may round inputs to 10 bits
};

using DeviceFactory = std::function<absl::StatusOr<std::unique_ptr<Device>>(const DeviceOptions&)>;
bool RegisterDeviceKind(absl::string_view kind, DeviceFactory factory);

// The device `index` of a kind. NotFound names the kinds there are.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, const DeviceOptions& options = {});
// The kinds of device that can be used in this process.
std::vector<std::string> DeviceKinds();

}  // namespace official::compute
