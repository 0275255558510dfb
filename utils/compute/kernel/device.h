// Device: where programs run and variables live. A backend registers its kind of device ("cpu"; "cuda" is loaded at run
// time) with all that programs and Strategy must know of it. Which kind a run uses is the choice of
// utils/run/usable_gpus.h; the kernels of a kind are in the folders of the ops.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/kernel/peer_streams.h"

namespace official::compute {

// A sequence of kernels that a device has recorded.
class Recording {
 public:
  virtual ~Recording() = default;
  // Gives the device the same work again, on the same addresses.
  virtual absl::Status Replay() = 0;
};

// Tells a device that makes recordings what becomes of them.
enum class Recordings {
  kMust,  // a program that cannot be recorded ends the run
  kAuto,  // such a program says why, and from then on the device's programs run without
  kOff,
};

// Device memory that the feeds of a program are copied to. A program frees it before the rest of its memory, so that
// the device can wait here until nothing uses any of it.
class FeedBuffers {
 public:
  virtual ~FeedBuffers() = default;
  // The address of feed i for the program's kernels.
  virtual void* data(int i) const = 0;
  // Copies the feeds of the next run, from addresses in the host's memory, ordered after all work given to the device
  // before. Returns when the host's memory has been read. It may return the error of an earlier run.
  virtual absl::Status Fill(absl::Span<const void* const> feeds) = 0;
};

// Memory of the host that a value of the device is copied to.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  // Begins to copy the buffer's bytes from `device`, ordered after all work given to the device before. The copy before
  // it must have been waited for.
  virtual absl::Status StartCopy(const void* device) = 0;
  // Waits for the copy, but not for what was given to the device after it. Returns the bytes, which stay until the next
  // copy, or an error of the work before it.
  virtual absl::StatusOr<const void*> Wait() = 0;
};

// Takes the times at which a device gets through its work.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  // Marks the end of the work given to the device so far, without waiting for it.
  virtual absl::Status Mark() = 0;
  // Waits until the device has reached all marks. Returns the nanoseconds from the first of them to each, in order, or
  // the first error of the work.
  virtual absl::StatusOr<std::vector<int64_t>> Read() = 0;
};

// The number of runs by which a device with memory of its own may lag behind: the error of a run is returned at the
// latest by the run that comes this number of runs later.
inline constexpr int kMaxRunsBehind = 3;

class Device {
 public:
  virtual ~Device() = default;
  // The kind, such as "cpu" or "cuda", which determines the kernels that run here.
  virtual absl::string_view kind() const = 0;
  // TensorFlow's short name, "cpu:0" or "gpu:1".
  virtual absl::string_view name() const = 0;
  // The text for the first log line: "cpu:0 (2 threads, AVX-512)".
  virtual std::string Description() const = 0;
  // The hardware on which the times of kernels depend, the same text for all devices of a kind that are alike: "AMD
  // EPYC (2 threads, AVX-512)".
  virtual std::string Hardware() const = 0;
  // Allocates zeroed memory, aligned to at least 64 bytes; ResourceExhausted with the number of bytes if there is not
  // enough.
  virtual absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) = 0;
  // True if the device computes in host memory, so that host tensors can be used as they are.
  virtual bool uses_host_memory() const = 0;
  // The copies are ordered after all work given to the device before.
  virtual absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) = 0;
  virtual absl::Status CopyToHost(void* host, const void* device, int64_t bytes) = 0;
  // Makes buffers for feeds of these sizes, by default with Allocate, filled by CopyToDevice. Programs ask only devices
  // with memory of their own.
  virtual absl::StatusOr<std::unique_ptr<FeedBuffers>> MakeFeedBuffers(absl::Span<const int64_t> bytes);
  // Makes a buffer for values of this size, by default one whose StartCopy is CopyToHost.
  virtual absl::StatusOr<std::unique_ptr<HostBuffer>> MakeHostBuffer(int64_t bytes);
  // Makes the device current on the calling thread, which is about to run kernels here.
  virtual void MakeCurrent() = 0;
  // Waits for the work given so far and returns its first error, if any.
  virtual absl::Status Synchronize() = 0;
  // Makes a timer of this device, by default one that takes the host's time at each mark, which is right for devices
  // whose kernels have computed when they return.
  virtual absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeTimer();
  // Records the kernels that `run` gives the device, without running them. Returns nullptr without calling `run` if the
  // device gains nothing by it. After an error the device goes on as if it had not been called.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> run) { return nullptr; }
  // To be called within `run`, after each kernel: the error if that kernel cannot be recorded.
  virtual absl::Status CheckRecording() { return absl::OkStatus(); }

  Recordings recordings() const { return recordings_; }
  void set_recordings(Recordings recordings) { recordings_ = recordings; }

  // Tells people what they should know about the device, or not, if no one has asked for it.
  void Warn(const std::string& text) const {
    if (warn_) warn_(text);
  }
  // `warn` is called on any thread.
  void set_warn(std::function<void(const std::string& text)> warn) { warn_ = std::move(warn); }

  // Ends the process with this error, where a call that uses the device may never return; or does nothing, if no one
  // has said how.
  void EndProcess(const absl::Status& error) const {
    if (end_process_) end_process_(error);
  }
  // `end_process` is called on any thread.
  void set_end_process(std::function<void(const absl::Status& error)> end_process) {
    end_process_ = std::move(end_process);
  }

  // False if what Allocate returns is no address but stands for memory as a whole. A program then asks the device for
  // each buffer by itself.
  virtual bool has_addresses() const { return true; }

  // True if the device finds reads of memory that nobody wrote and accesses outside of buffers. A program then asks it
  // for each buffer by itself, and calls Forget for the outputs and the scratch memory of each kernel before it runs.
  virtual bool checks_memory() const { return false; }
  // Makes the memory as if nobody had written it, after all work given to the device before.
  virtual absl::Status Forget(void* data, int64_t bytes) { return absl::OkStatus(); }

  // The group that this device trains in; nullptr if it trains alone. It must outlive the device's programs and
  // HostBuffers.
  Communicator* communicator() const { return communicator_; }
  void set_communicator(Communicator* communicator) { communicator_ = communicator; }

 private:
  Communicator* communicator_ = nullptr;
  Recordings recordings_ = Recordings::kMust;
  std::function<void(const std::string& text)> warn_;
  std::function<void(const absl::Status& error)> end_process_;
};

struct DeviceOptions {
  int index = 0;
  int num_threads = 0;      // for a CPU device; 0: one per core
  bool allow_tf32 = false;  // for a CUDA device: float32 matrix products and convolutions may round inputs to 10 bits
};

using DeviceFactory = std::function<absl::StatusOr<std::unique_ptr<Device>>(const DeviceOptions&)>;

// The place of a group's devices among those of several processes, which sum together.
struct WorldRanks {
  int first;  // rank of the first device; those of the others follow
  int count;  // of the devices of all processes
  // Returns what the process with rank 0 gives, or its error. All processes call it once, at the same point.
  std::function<absl::StatusOr<std::string>(absl::StatusOr<std::string> own)> from_first;
  // Returns an error once another process has failed or is lost; called now and then while a device waits.
  std::function<absl::Status()> check;
};

// A way to sum over several devices of a kind that its backend brings along. `devices` must outlive the group; the rank
// of each is its index there, or, with other processes, follows from `world`. The error is DeadlineExceeded if they do
// not connect within the deadline, or when one of them has waited that long in a step.
struct AllReduceAlgorithm {
  std::string name;  // value of --all_reduce_alg, one of the flag's choices (utils/flags/performance.cc): "nccl"
  std::function<absl::StatusOr<std::unique_ptr<CommunicatorGroup>>(
      absl::Span<Device* const> devices, std::chrono::seconds deadline, const std::optional<WorldRanks>& world)>
      make_group;
};

struct DeviceKind {
  std::string name;  // "cpu"
  DeviceFactory make_device;
  // The backend's own way to sum, which is then the default.
  std::optional<AllReduceAlgorithm> all_reduce = std::nullopt;
  // The packs in which several devices sum gradients; without, there are as many packs as devices.
  std::optional<PackSizes> pack_sizes = std::nullopt;
  // Makes the streams on which devices with memory of their own copy to each other; null for devices that use the
  // host's memory. `devices` must outlive them.
  std::function<absl::StatusOr<std::unique_ptr<PeerStreams>>(absl::Span<Device* const> devices)> make_peer_streams =
      nullptr;
  // Returns the versions of what the devices compute with, for the log, once a device is there: "CUDA 13.0 with a
  // driver for 13.1, cuDNN 9.19.0"; null if there is nothing to say.
  std::function<std::string()> library_versions = nullptr;
  // Makes the graph of a program, its feeds, fetches and variables kept, into one whose nodes have kernels, for devices
  // that compile whole graphs; null if the nodes of any graph have kernels of this kind.
  std::function<absl::StatusOr<RewrittenGraph>(const RewrittenGraph& program)> merge = nullptr;
};
// The text attribute of a node that DeviceKind::merge has made: the KernelLine of each node that it was made of.
inline constexpr char kMergedNodes[] = "merged_nodes";

// The name of the kind whose backend is libofficial_cuda.so (utils/compute/cuda_backend).
inline constexpr char kCudaKind[] = "cuda";

bool RegisterDeviceKind(DeviceKind kind);
// Returns nullptr if there is no such kind.
const DeviceKind* FindDeviceKind(absl::string_view name);

// The device `index` of a kind. The error NotFound names the kinds there are.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, const DeviceOptions& options = {});
// The kinds of device that can be used in this process.
std::vector<std::string> DeviceKinds();

}  // namespace official::compute
