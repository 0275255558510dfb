#include "utils/compute/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"

namespace official::compute {
namespace {

// Names the call in the error: CALL(cudaStreamSynchronize(stream)).
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

class CudaGraph : public Recording {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  absl::Status Replay() override { return CudaStatus(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

}  // namespace

CudaDevice::CudaDevice(int index) : index_(index), name_(absl::StrCat("gpu:", index)) {}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Make(const DeviceOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(options.index));
  if (const absl::Status status = device->Init(); !status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(device->name_, " cannot be used: ", status.message()));
  }
  return device;
}

absl::Status CudaDevice::Init() {
  CALL(cudaSetDevice(index_));
  CALL(cudaGetDeviceProperties(&properties_, index_));
  if (properties_.major < 9) {
    return absl::FailedPreconditionError(absl::StrFormat("%s has compute capability %d.%d, this program needs 9.0",
                                                         properties_.name, properties_.major, properties_.minor));
  }
  CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (Staging& staging : staging_) {
    CALL(cudaMallocHost(&staging.data, kStagingBytes));
    CALL(cudaEventCreateWithFlags(&staging.copied, cudaEventDisableTiming));
  }
  CALL(cudaMallocHost(&host_data_error_, sizeof(*host_data_error_)));
  CALL(cudaMalloc(&data_error_, sizeof(*data_error_)));
  CALL(cudaMemsetAsync(data_error_, 0xff, sizeof(*data_error_), stream_));
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  MakeCurrent();
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (cudnn_ != nullptr) cudnnDestroy(cudnn_);
  if (cublas_lt_ != nullptr) cublasLtDestroy(cublas_lt_);
  for (const Staging& staging : staging_) {
    if (staging.copied != nullptr) cudaEventDestroy(staging.copied);
    cudaFreeHost(staging.data);
  }
  cudaFreeHost(host_data_error_);
  cudaFree(data_error_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::string CudaDevice::Description() const {
  return absl::StrFormat("%s (%s, %.0f GiB)", name_, properties_.name, properties_.totalGlobalMem / 0x1p30);
}

std::string CudaDevice::Hardware() const { return properties_.name; }

absl::StatusOr<std::shared_ptr<void>> CudaDevice::Allocate(int64_t bytes) {
  MakeCurrent();
  const size_t size = std::max<int64_t>(bytes, 1);
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, size); error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or it would be the next launch's
    size_t free = 0, total = 0;
    CALL(cudaMemGetInfo(&free, &total));
    return absl::ResourceExhaustedError(absl::StrCat("out of memory on ", name_, ": ", bytes, " bytes wanted, ", free,
                                                     " of ", total, " are free; try a smaller batch"));
  } else {
    RETURN_IF_ERROR(CudaStatus(error, "cudaMalloc"));
  }
  std::shared_ptr<void> memory(data, cudaFree);
  CALL(cudaMemsetAsync(data, 0, size, stream_));
  return memory;
}

absl::Status CudaDevice::CopyToDevice(void* device, const void* host, int64_t bytes) {
  MakeCurrent();
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(bytes - done, kStagingBytes);
    Staging& staging = staging_[next_staging_];
    next_staging_ = (next_staging_ + 1) % kNumStaging;
    CALL(cudaEventSynchronize(staging.copied));
    std::memcpy(staging.data, static_cast<const char*>(host) + done, part);
    CALL(cudaMemcpyAsync(static_cast<char*>(device) + done, staging.data, part, cudaMemcpyHostToDevice, stream_));
    CALL(cudaEventRecord(staging.copied, stream_));
    done += part;
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::CopyToHost(void* host, const void* device, int64_t bytes) {
  MakeCurrent();
  if (bytes > 0) CALL(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
  return ReadDataError();
}

void CudaDevice::MakeCurrent() { cudaSetDevice(index_); }

absl::Status CudaDevice::Synchronize() {
  MakeCurrent();
  return ReadDataError();
}

absl::Status CudaDevice::ReadDataError() {
  CALL(cudaMemcpyAsync(host_data_error_, data_error_, sizeof(*data_error_), cudaMemcpyDeviceToHost, stream_));
  CALL(cudaStreamSynchronize(stream_));
  const unsigned long long report = *host_data_error_;
  if (report == kNoDataError) return absl::OkStatus();
  CALL(cudaMemsetAsync(data_error_, 0xff, sizeof(*data_error_), stream_));
  return data_errors_[report >> 32](static_cast<int32_t>(report));
}

DataError CudaDevice::AddDataError(const Node& node, std::function<std::string(int32_t)> message,
                                   absl::StatusCode code) {
  data_errors_.push_back([name = node.name(), message = std::move(message), code](int32_t value) {
    return absl::Status(code, absl::StrCat(name, ": ", message(value)));
  });
  return {data_error_, static_cast<uint32_t>(data_errors_.size() - 1)};
}

absl::StatusOr<std::unique_ptr<Recording>> CudaDevice::Record(absl::FunctionRef<absl::Status()> run) {
  MakeCurrent();
  // Other threads (the saver's) may go on calling CUDA meanwhile.
  CALL(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  const absl::Status status = run();
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)> owner(graph, cudaGraphDestroy);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CudaStatus(error, "cudaStreamEndCapture"));
  cudaGraphExec_t executable = nullptr;
  CALL(cudaGraphInstantiate(&executable, graph, 0));
  return std::make_unique<CudaGraph>(executable, stream_);
}

absl::StatusOr<cudnnHandle_t> CudaDevice::cudnn() {
  if (cudnn_ == nullptr) {
    MakeCurrent();
    CALL(cudnnCreate(&cudnn_));
    CALL(cudnnSetStream(cudnn_, stream_));
  }
  return cudnn_;
}

absl::StatusOr<cublasLtHandle_t> CudaDevice::cublas_lt() {
  if (cublas_lt_ == nullptr) {
    MakeCurrent();
    CALL(cublasLtCreate(&cublas_lt_));
  }
  return cublas_lt_;
}

}  // namespace official::compute
