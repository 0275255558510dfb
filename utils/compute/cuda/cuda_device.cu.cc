#include "utils/compute/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

// Names the call in the error: CALL(cudaStreamSynchronize(stream)).
#define CALL(expression) RETURN_IF_ERROR(CudaStatus((expression), #expression))

// The status of a call that failed while a graph was made. The error is forgotten, or it would be the next launch's.
absl::Status GraphStatus(cudaError_t error, absl::string_view call) {
  cudaGetLastError();
  return CudaStatus(error, call);
}

class EventTimer : public DeviceTimer {
 public:
  explicit EventTimer(CudaDevice& device) : device_(device) {}

  absl::Status Mark() override {
    device_.MakeCurrent();
    ASSIGN_OR_RETURN(CudaEvent mark, MakeEvent(cudaEventDefault));
    CALL(cudaEventRecord(mark.get(), device_.stream()));
    marks_.push_back(std::move(mark));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<int64_t>> Read() override {
    RETURN_IF_ERROR(device_.Synchronize());
    std::vector<int64_t> times;
    for (const CudaEvent& mark : marks_) {
      float milliseconds = 0;
      CALL(cudaEventElapsedTime(&milliseconds, marks_[0].get(), mark.get()));
      times.push_back(static_cast<int64_t>(1e6 * milliseconds));
    }
    return times;
  }

 private:
  CudaDevice& device_;
  std::vector<CudaEvent> marks_;
};

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

CudaDevice::CudaDevice(const DeviceOptions& options, int ordinal)
    : ordinal_(ordinal), name_(absl::StrCat("gpu:", options.index)), allow_tf32_(options.allow_tf32) {}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Make(const DeviceOptions& options, int ordinal) {
  return Ready(std::unique_ptr<CudaDevice>(new CudaDevice(options, ordinal)));
}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Ready(std::unique_ptr<CudaDevice> device) {
  if (const absl::Status status = device->Init(); !status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(device->name_, " cannot be used: ", status.message()));
  }
  return device;
}

absl::Status CudaDevice::Init() {
  CALL(cudaSetDevice(ordinal_));
  CALL(cudaGetDeviceProperties(&properties_, ordinal_));
  ASSIGN_OR_RETURN(stream_, MakeStream());
  ASSIGN_OR_RETURN(copy_stream_, MakeStream());
  for (Staging& staging : staging_) {
    CALL(cudaMallocHost(&staging.data, kStagingBytes));
    ASSIGN_OR_RETURN(staging.copied, MakeEvent());
  }
  ASSIGN_OR_RETURN(copied_, MakeEvent());
  for (CudaEvent& filled : filled_) {
    ASSIGN_OR_RETURN(filled, MakeEvent());
  }
  CALL(cudaMallocHost(&host_data_error_, sizeof(*host_data_error_)));
  *host_data_error_ = kNoDataError;
  CALL(cudaMalloc(&data_error_, sizeof(*data_error_)));
  CALL(cudaMemsetAsync(data_error_, 0xff, sizeof(*data_error_), stream()));
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  MakeCurrent();
  for (const CudaStream* stream : {&stream_, &copy_stream_}) {
    if (*stream != nullptr) cudaStreamSynchronize(stream->get());
  }
  if (cudnn_ != nullptr) cudnnDestroy(cudnn_);
  if (cublas_lt_ != nullptr) cublasLtDestroy(cublas_lt_);
  for (const Staging& staging : staging_) cudaFreeHost(staging.data);
  cudaFreeHost(host_data_error_);
  cudaFree(data_error_);
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
    return absl::ResourceExhaustedError(absl::StrCat("out of memory on ", name_, ": ", bytes, " bytes needed, ", free,
                                                     " of ", total, " are free; try a smaller batch"));
  } else {
    RETURN_IF_ERROR(CudaStatus(error, "cudaMalloc"));
  }
  std::shared_ptr<void> memory(data, cudaFree);
  CALL(cudaMemsetAsync(data, 0, size, stream()));
  return memory;
}

absl::Status CudaDevice::StatusOf(cudaError_t error, absl::string_view call) {
  const absl::Status status = CudaStatus(error, call);
  if (!status.ok() && communicator() != nullptr) communicator()->DeviceFailed(status);
  return status;
}

absl::Status CudaDevice::Wait(absl::FunctionRef<cudaError_t()> query, absl::string_view what) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (bool begins = true;; begins = false) {
    const cudaError_t state = query();
    if (state != cudaErrorNotReady) return StatusOf(state, what);
    if (communicator() != nullptr) RETURN_IF_ERROR(communicator()->CheckWait(begins));
    if (Clock::now() - start < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

void CudaDevice::WaitToFree(absl::FunctionRef<cudaError_t()> query, absl::string_view what) {
  MakeCurrent();
  // A communicator that gives up ends the work on the device, but not at once.
  if (!Wait(query, what).ok()) Wait(query, what).IgnoreError();
}

absl::StatusOr<CudaDevice::Staging*> CudaDevice::FreeStaging() {
  Staging* free = nullptr;
  const auto find = [&] {
    for (Staging& staging : staging_) {
      const cudaError_t state = cudaEventQuery(staging.copied.get());
      if (state == cudaSuccess) free = &staging;
      if (state != cudaErrorNotReady) return state;
    }
    return cudaErrorNotReady;
  };
  RETURN_IF_ERROR(Wait(find, "cudaEventQuery"));
  return free;
}

absl::Status CudaDevice::CopyThroughStaging(cudaStream_t stream, void* device, absl::Span<const HostPiece> pieces) {
  Staging* staging = nullptr;  // the one that is being filled with the bytes [begin, end) behind `device`
  int64_t begin = 0, end = 0;
  const auto send = [&]() -> absl::Status {
    CALL(cudaMemcpyAsync(static_cast<char*>(device) + begin, staging->data, end - begin, cudaMemcpyHostToDevice,
                         stream));
    CALL(cudaEventRecord(staging->copied.get(), stream));
    return absl::OkStatus();
  };
  for (const HostPiece& piece : pieces) {
    for (int64_t done = 0; done < piece.bytes;) {
      const int64_t offset = piece.offset + done;
      if (staging == nullptr || offset >= begin + kStagingBytes) {
        if (staging != nullptr) RETURN_IF_ERROR(send());
        ASSIGN_OR_RETURN(staging, FreeStaging());
        begin = offset;
      }
      const int64_t part = std::min(piece.bytes - done, begin + kStagingBytes - offset);
      std::memcpy(static_cast<char*>(staging->data) + (offset - begin), static_cast<const char*>(piece.data) + done,
                  part);
      end = offset + part;
      done += part;
    }
  }
  return staging == nullptr ? absl::OkStatus() : send();
}

absl::Status CudaDevice::CopyToDevice(void* device, const void* host, int64_t bytes) {
  MakeCurrent();
  return CopyThroughStaging(stream(), device, {{{host, 0, bytes}}});
}

absl::Status CudaDevice::CopyToHost(void* host, const void* device, int64_t bytes) {
  MakeCurrent();
  // The copy to memory that is not pinned may wait for the work before it, without asking the communicator.
  if (communicator() != nullptr) {
    RETURN_IF_ERROR(Wait([&] { return cudaStreamQuery(stream()); }, "cudaStreamQuery"));
  }
  if (bytes > 0) CALL(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream()));
  return ReadDataError();
}

void CudaDevice::MakeCurrent() { cudaSetDevice(ordinal_); }

absl::Status CudaDevice::Synchronize() {
  MakeCurrent();
  return ReadDataError();
}

absl::StatusOr<std::unique_ptr<DeviceTimer>> CudaDevice::MakeTimer() { return std::make_unique<EventTimer>(*this); }

absl::Status CudaDevice::ReadDataError() {
  RETURN_IF_ERROR(
      StatusOf(cudaMemcpyAsync(host_data_error_, data_error_, sizeof(*data_error_), cudaMemcpyDeviceToHost, stream()),
               "cudaMemcpyAsync"));
  RETURN_IF_ERROR(Wait([&] { return cudaStreamQuery(stream()); }, "cudaStreamQuery"));
  const unsigned long long report = std::exchange(*host_data_error_, kNoDataError);
  if (report == kNoDataError) return absl::OkStatus();
  CALL(cudaMemsetAsync(data_error_, 0xff, sizeof(*data_error_), stream()));
  return data_errors_[report >> 32](static_cast<int32_t>(report));
}

// The feeds of a run come, small ones in one piece, on the copy stream and beside the kernels of the runs before, to
// one of two landing places, and go from there in one copy, on the kernels' stream, to the place that the program
// knows.
class CudaDevice::Feeds : public FeedBuffers {
 public:
  Feeds(CudaDevice& device, absl::Span<const int64_t> bytes) : device_(device) {
    for (const int64_t b : bytes) {
      pieces_.push_back({nullptr, total_, b});
      total_ += (b + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  ~Feeds() override {
    if (device_.communicator() == nullptr) return;
    device_.WaitToFree([&] { return cudaStreamQuery(device_.stream()); }, "cudaStreamQuery");
  }
  absl::Status Init() {
    ASSIGN_OR_RETURN(memory_, device_.Allocate(3 * total_));
    return device_.Synchronize();  // the memory is zeroed before another stream writes to it
  }

  void* data(int i) const override { return At(0) + pieces_[i].offset; }

  absl::Status Fill(absl::Span<const void* const> feeds) override {
    device_.MakeCurrent();
    const int64_t fill = device_.num_fills_;
    const CudaEvent& filled = device_.filled_[fill % 2];
    // The landing place of two fills ago, of this program or another, has been read, and what the run before that fill
    // reported has come in.
    RETURN_IF_ERROR(device_.Wait([&] { return cudaEventQuery(filled.get()); }, "cudaEventQuery"));
    if (*static_cast<volatile unsigned long long*>(device_.host_data_error_) != kNoDataError) {
      return device_.ReadDataError();
    }
    ++device_.num_fills_;
    char* const landing = At(1 + fill % 2);
    for (size_t i = 0; i < feeds.size(); ++i) pieces_[i].data = feeds[i];
    RETURN_IF_ERROR(device_.CopyThroughStaging(device_.copy_stream_.get(), landing, pieces_));
    const cudaStream_t stream = device_.stream();
    RETURN_IF_ERROR(WaitFor(stream, device_.copy_stream_.get(), device_.copied_));
    CALL(cudaMemcpyAsync(device_.host_data_error_, device_.data_error_, sizeof(*device_.data_error_),
                         cudaMemcpyDeviceToHost, stream));
    if (total_ > 0) CALL(cudaMemcpyAsync(At(0), landing, total_, cudaMemcpyDeviceToDevice, stream));
    CALL(cudaEventRecord(filled.get(), stream));
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kAlignment = 256;

  char* At(int64_t copy) const { return static_cast<char*>(memory_.get()) + copy * total_; }

  CudaDevice& device_;
  std::vector<HostPiece> pieces_;  // by feed
  int64_t total_ = 0;
  std::shared_ptr<void> memory_;  // where the program reads, then the landing places
};

absl::StatusOr<std::unique_ptr<FeedBuffers>> CudaDevice::MakeFeedBuffers(absl::Span<const int64_t> bytes) {
  auto feeds = std::make_unique<Feeds>(*this, bytes);
  RETURN_IF_ERROR(feeds->Init());
  return feeds;
}

// A value, and behind it what the work before the copy has reported.
class CudaDevice::PinnedBuffer : public HostBuffer {
 public:
  PinnedBuffer(CudaDevice& device, int64_t bytes) : device_(device), bytes_(bytes) {}
  ~PinnedBuffer() override {
    if (pending_) device_.WaitToFree([&] { return cudaEventQuery(copied_.get()); }, "cudaEventQuery");
    cudaFreeHost(report_);
  }
  absl::Status Init() {
    device_.MakeCurrent();
    CALL(cudaMallocHost(&report_, sizeof(*report_) + bytes_));
    ASSIGN_OR_RETURN(copied_, MakeEvent());
    return absl::OkStatus();
  }

  absl::Status StartCopy(const void* device) override {
    device_.MakeCurrent();
    const cudaStream_t stream = device_.stream();
    pending_ = true;
    RETURN_IF_ERROR(device_.StatusOf(cudaMemcpyAsync(report_ + 1, device, bytes_, cudaMemcpyDeviceToHost, stream),
                                     "cudaMemcpyAsync"));
    CALL(cudaMemcpyAsync(report_, device_.data_error_, sizeof(*report_), cudaMemcpyDeviceToHost, stream));
    CALL(cudaEventRecord(copied_.get(), stream));
    return absl::OkStatus();
  }
  absl::StatusOr<const void*> Wait() override {
    device_.MakeCurrent();
    RETURN_IF_ERROR(device_.Wait([&] { return cudaEventQuery(copied_.get()); }, "cudaEventQuery"));
    pending_ = false;
    if (*report_ != kNoDataError) RETURN_IF_ERROR(device_.ReadDataError());
    return report_ + 1;
  }

 private:
  CudaDevice& device_;
  const int64_t bytes_;
  unsigned long long* report_ = nullptr;
  CudaEvent copied_;
  bool pending_ = false;
};

absl::StatusOr<std::unique_ptr<HostBuffer>> CudaDevice::MakeHostBuffer(int64_t bytes) {
  auto buffer = std::make_unique<PinnedBuffer>(*this, bytes);
  RETURN_IF_ERROR(buffer->Init());
  return buffer;
}

DataError CudaDevice::AddDataError(const Node& node, std::function<std::string(int32_t)> message,
                                   absl::StatusCode code) {
  data_errors_.push_back([name = node.name(), message = std::move(message), code](int32_t value) {
    return absl::Status(code, absl::StrCat(name, ": ", message(value)));
  });
  return {data_error_, static_cast<uint32_t>(data_errors_.size() - 1)};
}

absl::StatusOr<std::unique_ptr<Recording>> CudaDevice::Record(absl::FunctionRef<absl::Status()> run) {
  if (communicator() != nullptr && !communicator()->can_be_recorded()) return nullptr;
  MakeCurrent();
  // Other threads (the saver's) may go on calling CUDA meanwhile.
  RETURN_IF_ERROR(
      GraphStatus(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
  const absl::Status status = run();
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream(), &graph);
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)> owner(graph, cudaGraphDestroy);
  const absl::Status ended = GraphStatus(error, "cudaStreamEndCapture");
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ended);
  cudaGraphExec_t executable = nullptr;
  RETURN_IF_ERROR(GraphStatus(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate"));
  auto recording = std::make_unique<CudaGraph>(executable, stream());
  // Else the first replay would wait until the device has the graph.
  RETURN_IF_ERROR(GraphStatus(cudaGraphUpload(executable, stream()), "cudaGraphUpload"));
  return recording;
}

absl::Status CudaDevice::CheckRecording() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CALL(cudaStreamIsCapturing(stream(), &status));
  if (status != cudaStreamCaptureStatusInvalidated) return absl::OkStatus();
  return absl::FailedPreconditionError("it makes a call that a CUDA graph cannot hold");
}

absl::StatusOr<cudnnHandle_t> CudaDevice::cudnn() {
  if (cudnn_ == nullptr) {
    MakeCurrent();
    CALL(cudnnCreate(&cudnn_));
    CALL(cudnnSetStream(cudnn_, stream()));
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

absl::Status AllowShared(const KernelSpec& spec, const void* kernel, int64_t bytes) {
  constexpr int64_t kWithoutAsking = 48 << 10;
  if (bytes <= kWithoutAsking) return absl::OkStatus();
  const CudaDevice& device = CudaDeviceOf(spec);
  const auto most = static_cast<int64_t>(device.properties().sharedMemPerBlockOptin);
  if (bytes > most) {
    return absl::UnimplementedError(absl::StrCat(spec.node.op().name.text(), " of ", spec.node.name(), " needs ", bytes,
                                                 " bytes of shared memory in each block, ", device.name(), " (",
                                                 device.Hardware(), ") has ", most,
                                                 "; compute on a GPU that has more, or on CPUs"));
  }
  // All that there is: a program that needs less must not lower the limit of another one.
  return CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)),
                    "cudaFuncSetAttribute");
}

}  // namespace official::compute
