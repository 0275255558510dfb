// One GPU: "gpu:0" of kind "cuda". All work goes to one stream, in order: kernels, and copies in and out. Only feeds
// are copied on a second stream, for which the first one waits.
//
// Kernels must only give work to stream(): they must not wait, allocate, or copy from or to memory of the host. So a
// program's kernels can be recorded into one CUDA graph, which replays them with the addresses of the recorded run.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "utils/compute/cuda/data_error.h"
#include "utils/compute/cuda/stream.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

class CudaDevice : public Device {
 public:
  // Returns the GPU that has the number `ordinal` among those of the driver, as the device `options.index`;
  // FailedPrecondition if it cannot be used.
  static absl::StatusOr<std::unique_ptr<Device>> Make(const DeviceOptions& options, int ordinal);
  ~CudaDevice() override;

  absl::string_view kind() const override { return kCudaKind; }
  absl::string_view name() const override { return name_; }
  std::string Description() const override;
  std::string Hardware() const override;
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override;
  bool uses_host_memory() const override { return false; }
  // Returns when `host` has been read; the copy itself may still be under way.
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override;
  // Waits. An error of earlier work is returned here too: that of AddDataError if the data were at fault.
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override;
  // The buffers are filled by copies that run at the same time as the kernels of the previous run.
  absl::StatusOr<std::unique_ptr<FeedBuffers>> MakeFeedBuffers(absl::Span<const int64_t> bytes) override;
  // The buffers are pinned, and each waits for an event after its copy.
  absl::StatusOr<std::unique_ptr<HostBuffer>> MakeHostBuffer(int64_t bytes) override;
  void MakeCurrent() override;
  absl::Status Synchronize() override;
  // The marks are events on stream().
  absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeTimer() override;
  absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> run) override;
  absl::Status CheckRecording() override;

  // The driver's number of the GPU.
  int ordinal() const { return ordinal_; }
  // True if float32 matrix products and convolutions may be computed in TF32.
  bool allow_tf32() const { return allow_tf32_; }
  cudaStream_t stream() const { return stream_.get(); }
  const cudaDeviceProp& properties() const { return properties_; }
  // The handles are made at the first call; their work goes to stream().
  absl::StatusOr<cudnnHandle_t> cudnn();
  absl::StatusOr<cublasLtHandle_t> cublas_lt();

  // Registers the error that a kernel of `node` may report, with the message for a reported value and the code. Of
  // several reports the one of the kernel made first is kept.
  DataError AddDataError(const Node& node, std::function<std::string(int32_t value)> message,
                         absl::StatusCode code = absl::StatusCode::kInvalidArgument);
  // The argument of HasDataError.
  const unsigned long long* data_error_word() const { return data_error_; }

 protected:
  CudaDevice(const DeviceOptions& options, int ordinal);
  // Makes a device ready that was constructed with the options.
  static absl::StatusOr<std::unique_ptr<Device>> Ready(std::unique_ptr<CudaDevice> device);

 private:
  class Feeds;
  class PinnedBuffer;
  // A piece of pinned memory that input copies go through.
  struct Staging {
    void* data = nullptr;
    CudaEvent copied;
  };
  // Bytes of the host, and their place behind an address of the device.
  struct HostPiece {
    const void* data;
    int64_t offset, bytes;
  };
  static constexpr int kNumStaging = 8;
  static constexpr int64_t kStagingBytes = int64_t{4} << 20;

  absl::Status Init();
  absl::Status ReadDataError();
  // Returns the first piece that is not being copied from, which is the one most likely to be in the processor's cache.
  absl::StatusOr<Staging*> FreeStaging();
  // Gives `stream` copies of the pieces, which are in ascending order, and returns when they have been read. Pieces
  // that lie near each other go in one copy; what is between them on the device becomes anything.
  absl::Status CopyThroughStaging(cudaStream_t stream, void* device, absl::Span<const HostPiece> pieces);
  // Returns the status of a call that fails when the device has failed, of which it then tells the communicator.
  absl::Status StatusOf(cudaError_t error, absl::string_view call);
  // Returns when query() no longer says cudaErrorNotReady, or with the communicator's error if it gives up first.
  // `what` names the call in query() in its error.
  absl::Status Wait(absl::FunctionRef<cudaError_t()> query, absl::string_view what);
  // Returns when query() no longer says cudaErrorNotReady, which it does while the device may use memory that is to be
  // freed. The calls that free it wait as well, but for ever if the device waits for sums that no longer come: they do
  // not ask the communicator.
  void WaitToFree(absl::FunctionRef<cudaError_t()> query, absl::string_view what);

  const int ordinal_;
  const std::string name_;
  const bool allow_tf32_;
  cudaDeviceProp properties_ = {};
  CudaStream stream_, copy_stream_;  // copy_stream_: for feeds, at the same time as the kernels
  cudnnHandle_t cudnn_ = nullptr;
  cublasLtHandle_t cublas_lt_ = nullptr;
  Staging staging_[kNumStaging];
  CudaEvent copied_;     // on copy_stream_: the feeds of the next run
  CudaEvent filled_[2];  // on stream_: the feeds of the last two runs are in place, and the runs before are done
  int64_t num_fills_ = 0;
  unsigned long long* data_error_ = nullptr;                       // device memory
  unsigned long long* host_data_error_ = nullptr;                  // pinned: a copy of it
  std::vector<std::function<absl::Status(int32_t)>> data_errors_;  // indexed by DataError::id
};

// The device of a kernel of kind "cuda".
inline CudaDevice& CudaDeviceOf(const KernelSpec& spec) { return static_cast<CudaDevice&>(spec.device); }

// The part of AskForShared that does not depend on the kernel's type.
absl::Status AllowShared(const KernelSpec& spec, const void* kernel, int64_t bytes);
// Lets launches of `kernel`, which declares no shared memory of its own, give each block as many bytes of it as the GPU
// has. Returns Unimplemented, with the op and both numbers, if that is less than the `bytes` that the op needs.
template <typename F>
absl::Status AskForShared(const KernelSpec& spec, F* kernel, int64_t bytes) {
  return AllowShared(spec, reinterpret_cast<const void*>(kernel), bytes);
}

}  // namespace official::compute
