// CUDA's runtime for emulated devices. The thread that gives a stream work does it at once, if nothing holds the stream
// up; a recording keeps it. What waits, for another stream or for another device's part in a sum, is done later, by
// whichever thread next calls the runtime: no call blocks but those that wait by their nature, and these do what others
// have left. Work is done one piece at a time. The error of a kernel stays, as on a device: every later call for that
// device returns it.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cub/device/device_radix_sort.cuh>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/cuda_emulation/library_algorithms.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"

namespace official::compute::cuda_emulation {
namespace {

using Clock = std::chrono::steady_clock;

// A place in a stream's work, where an event is recorded.
struct Mark {
  bool done = false;
  Clock::time_point at = {};
};

// A step of a stream: waits, works, then sets the mark; any of these may be missing.
struct Task {
  std::shared_ptr<const Mark> waits_for;
  WaitingWork work;
  std::shared_ptr<Mark> sets;
};

// The same in a graph, whose marks have numbers: each launch has its own.
struct Node {
  int branch;  // the first is the stream that the graph is launched on
  int waits_for = -1;
  WaitingWork work = nullptr;
  int sets = -1;
};

struct Nodes {
  std::vector<Node> nodes;
  int num_branches = 1, num_marks = 0;
};

// What streams record together: the first began, the others have waited for it since.
struct StreamRecording {
  Nodes graph;
  std::vector<CUstream_st*> streams;  // by branch
  std::thread::id thread;
  bool refused = false;  // what the recording cannot hold
};

}  // namespace
}  // namespace official::compute::cuda_emulation

namespace emulation = official::compute::cuda_emulation;

struct CUgraph_st {
  emulation::Nodes graph;
};
struct CUgraphExec_st {
  emulation::Nodes graph;
};
struct CUstream_st {
  int device = 0;
  std::deque<emulation::Task> tasks = {};
  bool ends = false;  // goes when it has nothing to do
  std::shared_ptr<emulation::StreamRecording> recording = nullptr;
  int branch = 0;  // of the recording
};
struct CUevent_st {
  int device = 0;
  std::shared_ptr<emulation::Mark> mark = nullptr;
  // Where it was last recorded in a recording: that, and the mark's number there.
  std::weak_ptr<emulation::StreamRecording> recording = {};
  int number = -1;
};

namespace official::compute::cuda_emulation {
namespace {

constexpr size_t kDefaultDynamicShared = 48 << 10;
constexpr size_t kMaxParameterBytes = 32764;

struct DeviceState {
  cudaError_t sticky = cudaSuccess;
  std::string text;  // of sticky
  std::map<const void*, size_t> dynamic_shared_limits;
  std::set<int> peers;  // whose memory its kernels may access
};

struct Runtime {
  std::mutex work_mutex;  // of the streams, the events and what they do
  std::vector<CUstream_st*> streams;
  Clock::duration pretended = {};  // time that work is said to have taken
  std::mutex mutex;                // of what follows; taken last
  std::array<DeviceState, kMaxDevices> devices;
};
Runtime& TheRuntime() {
  static auto* const runtime = new Runtime;
  return *runtime;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_text;
thread_local std::vector<std::shared_ptr<StreamRecording>> recordings;  // that this thread began

cudaError_t StickyError(int device) {
  Runtime& runtime = TheRuntime();
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  return runtime.devices[device].sticky;
}

void SetSticky(int device, std::string text) {
  Runtime& runtime = TheRuntime();
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  DeviceState& state = runtime.devices[device];
  if (state.sticky == cudaSuccess) state.text = std::move(text);
  state.sticky = cudaErrorLaunchFailure;
}

bool does_work = true;
std::atomic<int64_t> works_given[kNumWorkKinds] = {};  // by WorkKind

cudaError_t Return(cudaError_t error, std::string text = "") {
  if (const cudaError_t sticky = StickyError(current_device); sticky != cudaSuccess) return last_error = sticky;
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    last_error = error;
    last_text = std::move(text);
  }
  return error;
}

cudaError_t OtherDevice(const char* what) {
  return Return(cudaErrorInvalidResourceHandle, absl::StrCat(what, " of another device"));
}

// Of memory and modules: a thread's recordings do not allow these, and come to nothing.
cudaError_t RefuseWhileRecording() {
  for (const auto& recording : recordings) recording->refused = true;
  return recordings.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

// The same of a call that this stream's recording does not allow.
cudaError_t RefuseOf(cudaStream_t stream) {
  if (stream->recording == nullptr) return cudaSuccess;
  stream->recording->refused = true;
  return cudaErrorStreamCaptureUnsupported;
}

// Does the first task of the stream; false if it must wait. On a device that has failed nothing works or waits.
bool DoNext(CUstream_st& stream) {
  Task& task = stream.tasks.front();
  if (StickyError(stream.device) == cudaSuccess) {
    if (task.waits_for != nullptr && !task.waits_for->done) return false;
    if (task.work != nullptr) {
      std::optional<std::string> wrong = task.work();
      if (!wrong) return false;
      if (!wrong->empty()) SetSticky(stream.device, *std::move(wrong));
    }
  }
  if (task.sets != nullptr) *task.sets = {true, Clock::now() + TheRuntime().pretended};
  stream.tasks.pop_front();
  return true;
}

// Does all that can be done; to be called with work_mutex held.
void DoWork() {
  std::vector<CUstream_st*>& streams = TheRuntime().streams;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (CUstream_st* const stream : streams) {
      while (!stream->tasks.empty() && DoNext(*stream)) goes_on = true;
    }
  }
  std::erase_if(streams, [](CUstream_st* stream) {
    if (!stream->ends || !stream->tasks.empty()) return false;
    delete stream;
    return true;
  });
}

// Returns when `idle` is true, which is asked with work_mutex held.
template <typename F>
void WorkUntil(F idle) {
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(100))) {
    const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
    DoWork();
    if (idle()) return;
  }
}

// As cudaFree does, before memory goes that somebody may still use.
void WaitForDevice(int device) {
  WorkUntil([device] {
    const std::vector<CUstream_st*>& streams = TheRuntime().streams;
    return std::all_of(streams.begin(), streams.end(),
                       [device](const CUstream_st* s) { return s->device != device || s->tasks.empty(); });
  });
}

// Adds the work to what the stream does, or records.
cudaError_t Give(cudaStream_t stream, WaitingWork work) {
  if (!does_work) work = nullptr;
  if (stream == nullptr) return Return(cudaErrorInvalidValue, "the default stream is not used");
  {
    const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
    if (stream->recording != nullptr) {
      if (stream->recording->refused) return Return(cudaErrorStreamCaptureInvalidated);
      stream->recording->graph.nodes.push_back({.branch = stream->branch, .work = std::move(work)});
    } else {
      stream->tasks.push_back({nullptr, std::move(work), nullptr});
      DoWork();
    }
  }
  return Return(StickyError(stream->device));
}

}  // namespace

int NumDevices() {
  static const int number = [] {
    const char* const text = std::getenv("OFFICIAL_EMULATED_GPUS");
    int n = 2;
    if (text == nullptr || (absl::SimpleAtoi(text, &n) && n >= 0 && n <= kMaxDevices)) return n;
    std::fprintf(stderr, "OFFICIAL_EMULATED_GPUS=%s is no number up to %d\n", text, kMaxDevices);
    std::abort();
  }();
  return number;
}

int DeviceOfStream(cudaStream_t stream) { return stream->device; }

bool CanAccess(int device, int other) {
  Runtime& runtime = TheRuntime();
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  return runtime.devices[device].peers.count(other) > 0;
}

cudaError_t GiveWork(cudaStream_t stream, WorkKind kind, StreamWork work) {
  ++works_given[static_cast<int>(kind)];
  return Give(stream, [work = std::move(work)]() -> std::optional<std::string> { return work().value_or(""); });
}

cudaError_t GiveWaitingWork(cudaStream_t stream, WaitingWork work) { return Give(stream, std::move(work)); }

void DoWaitingWork() {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  DoWork();
}

WorkCounts WorkGiven() {
  const auto given = [](WorkKind kind) { return works_given[static_cast<int>(kind)].load(); };
  return {.kernels = given(WorkKind::kKernel),
          .library_calls = given(WorkKind::kLibraryCall),
          .copies = given(WorkKind::kCopy),
          .memsets = given(WorkKind::kMemset)};
}

Card& TheCard() {
  static auto* const card = new Card;
  return *card;
}

LibraryAlgorithms& TheAlgorithms() {
  static auto* const algorithms = new LibraryAlgorithms;
  return *algorithms;
}

void NoteRun(const std::string& algorithm) {
  auto& timed = TheAlgorithms().timed;
  const auto found = timed.find(algorithm);
  if (found == timed.end()) return;
  ++found->second.runs;
  TheRuntime().pretended +=
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(found->second.seconds));
}

void NoteConvolution(const std::string& convolution) {
  const std::lock_guard<std::mutex> lock(TheRuntime().mutex);
  TheAlgorithms().convolutions.insert(convolution);
}

void SetDoesWork(bool does) { does_work = does; }
bool DoesWork() { return does_work; }

std::string TakeError() {
  Runtime& runtime = TheRuntime();
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  DeviceState& state = runtime.devices[current_device];
  if (std::exchange(state.sticky, cudaSuccess) != cudaSuccess) last_error = cudaSuccess;
  return std::exchange(state.text, "");
}

cudaError_t Allocate(void** data, size_t bytes, bool pinned) {
  if (const cudaError_t error = RefuseWhileRecording(); error != cudaSuccess) return Return(error);
  *data = pinned ? NewPinned(bytes) : NewBuffer(bytes, current_device);
  if (*data == nullptr) return Return(cudaErrorMemoryAllocation, "out of memory");
  return Return(cudaSuccess);
}

cudaError_t AllowDynamicShared(const void* kernel, int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > TheCard().block_shared_bytes) {
    return Return(cudaErrorInvalidValue, absl::StrFormat("%d bytes of shared memory", bytes));
  }
  Runtime& runtime = TheRuntime();
  {
    const std::lock_guard<std::mutex> lock(runtime.mutex);
    runtime.devices[current_device].dynamic_shared_limits[kernel] = bytes;
  }
  return Return(cudaSuccess);
}

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, KernelCall call) {
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const auto refuse = [&](const char* why) {
    return Return(cudaErrorInvalidConfiguration,
                  absl::StrFormat("%d x %d x %d blocks of %d x %d x %d threads with %d bytes of shared memory: %s",
                                  grid.x, grid.y, grid.z, block.x, block.y, block.z, config.dynamicSmemBytes, why));
  };
  if (uint64_t{grid.x} * grid.y * grid.z == 0 || uint64_t{block.x} * block.y * block.z == 0) return refuse("none");
  if (grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff) return refuse("too many blocks");
  if (uint64_t{block.x} * block.y * block.z > 1024 || block.z > 64) return refuse("too many threads");
  if (call.parameter_bytes > kMaxParameterBytes) return refuse("arguments of more than 32,764 bytes");
  if (config.stream != nullptr && config.stream->device != current_device) return OtherDevice("a launch on a stream");
  size_t limit = kDefaultDynamicShared;
  {
    Runtime& runtime = TheRuntime();
    const std::lock_guard<std::mutex> lock(runtime.mutex);
    const auto& limits = runtime.devices[current_device].dynamic_shared_limits;
    if (const auto set = limits.find(call.kernel); set != limits.end()) limit = set->second;
  }
  if (config.dynamicSmemBytes > limit) return refuse("more shared memory than was asked for");
  return GiveWork(config.stream, WorkKind::kKernel, [config, call = std::move(call)] { return RunGrid(config, call); });
}

namespace {

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaStream_t stream,
                 std::shared_ptr<const void> owner = nullptr) {
  return GiveWork(stream, WorkKind::kCopy, [=, owner = std::move(owner)]() -> std::optional<std::string> {
    if (auto wrong = CheckCopy(to, from, bytes)) return absl::StrFormat("copy of %d bytes: %s", bytes, *wrong);
    std::memmove(to, from, bytes);
    return std::nullopt;
  });
}

// A branch that nothing in another branch waits for at its end.
bool IsOpen(const Nodes& graph, int branch) {
  const auto last =
      std::find_if(graph.nodes.rbegin(), graph.nodes.rend(), [&](const Node& node) { return node.branch == branch; });
  if (last == graph.nodes.rend()) return false;
  return last->sets < 0 || std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
           return node.branch != branch && node.waits_for == last->sets;
         });
}

}  // namespace
}  // namespace official::compute::cuda_emulation

using namespace official::compute::cuda_emulation;  // NOLINT: all that follows is CUDA's

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return error != cudaSuccess ? error : Return(cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t error) {
  thread_local std::string sticky_text;
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorLaunchFailure: {
      Runtime& runtime = TheRuntime();
      const std::lock_guard<std::mutex> lock(runtime.mutex);
      sticky_text = runtime.devices[current_device].text;
      return sticky_text.c_str();
    }
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "not ready";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "the peer's memory can be accessed already";
    case cudaErrorTooManyPeers:
      return "the memory of too many peers can be accessed already";
    case cudaErrorStreamCaptureUnsupported:
      return "not allowed while a stream records";
    case cudaErrorStreamCaptureInvalidated:
      return "an earlier call is not allowed while a stream records";
    case cudaErrorStreamCaptureMerge:
      return "two recordings cannot become one";
    case cudaErrorStreamCaptureUnmatched:
      return "another stream began the recording";
    case cudaErrorStreamCaptureUnjoined:
      return "a stream that records, too, has not been waited for";
    case cudaErrorStreamCaptureIsolation:
      return "a recording cannot wait for what is not recorded";
    case cudaErrorCapturedEvent:
      return "the event is part of a recording";
    case cudaErrorStreamCaptureWrongThread:
      return "another thread began the recording";
    default:
      return last_text.c_str();
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = NumDevices();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= NumDevices()) return Return(cudaErrorInvalidDevice, "there is no such device");
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->major = TheCard().major;
  properties->multiProcessorCount = 3;
  properties->sharedMemPerBlockOptin = TheCard().block_shared_bytes;
  properties->totalGlobalMem = kDeviceBytes;
  return Return(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= NumDevices()) return Return(cudaErrorInvalidDevice, "there is no such device");
  current_device = device;
  return Return(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return Return(cudaSuccess);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  for (const int d : {device, peer}) {
    if (d < 0 || d >= NumDevices()) return Return(cudaErrorInvalidDevice, "there is no such device");
  }
  *can = device != peer ? 1 : 0;
  return Return(cudaSuccess);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (peer < 0 || peer >= NumDevices() || peer == current_device || flags != 0) {
    return Return(cudaErrorInvalidDevice, "no peer");
  }
  cudaError_t error = cudaSuccess;
  {
    Runtime& runtime = TheRuntime();
    const std::lock_guard<std::mutex> lock(runtime.mutex);
    std::set<int>& peers = runtime.devices[current_device].peers;
    if (peers.count(peer) > 0) {
      error = cudaErrorPeerAccessAlreadyEnabled;
    } else if (peers.size() >= TheCard().max_peers) {
      error = cudaErrorTooManyPeers;
    } else {
      peers.insert(peer);
    }
  }
  return Return(error);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Return(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = FreeBytes(current_device);
  *total = kDeviceBytes;
  return Return(cudaSuccess);
}
cudaError_t cudaFree(void* data) {
  if (const cudaError_t error = RefuseWhileRecording(); error != cudaSuccess) return Return(error);
  if (data == nullptr) return Return(cudaSuccess);
  const int device = DeviceOf(data);
  if (device >= 0) WaitForDevice(device);
  if (!DeleteBuffer(data)) return Return(cudaErrorInvalidValue, "no buffer begins there");
  return Return(cudaSuccess);
}
cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t error = RefuseWhileRecording(); error != cudaSuccess) return Return(error);
  if (data == nullptr) return Return(cudaSuccess);
  WorkUntil([] {
    const std::vector<CUstream_st*>& streams = TheRuntime().streams;
    return std::all_of(streams.begin(), streams.end(), [](const CUstream_st* s) { return s->tasks.empty(); });
  });
  if (!DeletePinned(data)) return Return(cudaErrorInvalidValue, "no pinned memory begins there");
  return Return(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_device = kind != cudaMemcpyDeviceToHost, from_device = kind != cudaMemcpyHostToDevice;
  if ((to_device && !DeviceRegion().Contains(to)) || (from_device && !DeviceRegion().Contains(from))) {
    return Return(cudaErrorInvalidValue, "a copy whose kind does not fit its addresses");
  }
  if (stream == nullptr || kind == cudaMemcpyDeviceToDevice) return Copy(to, from, bytes, stream);
  if (const cudaError_t error = RefuseOf(stream); error != cudaSuccess) return Return(error);
  if (IsPinned(to_device ? from : to)) return Copy(to, from, bytes, stream);
  // The host's memory is read before this returns, or written.
  std::shared_ptr<char[]> copy;
  if (to_device) {
    copy = std::make_shared<char[]>(bytes);
    from = std::memcpy(copy.get(), from, bytes);
  }
  const cudaError_t error = Copy(to, from, bytes, stream, copy);
  if (to_device || error != cudaSuccess) return error;
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  if (DeviceOf(to) != to_device || DeviceOf(from) != from_device) {
    return Return(cudaErrorInvalidValue, "memory of another device than the one that is named");
  }
  return Copy(to, from, bytes, stream);
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return GiveWork(stream, WorkKind::kMemset, [=]() -> std::optional<std::string> {
    if (auto wrong = CheckWrite(data, bytes)) return absl::StrFormat("setting %d bytes: %s", bytes, *wrong);
    std::memset(data, value, bytes);
    return std::nullopt;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st{.device = current_device};
  {
    Runtime& runtime = TheRuntime();
    const std::lock_guard<std::mutex> lock(runtime.work_mutex);
    runtime.streams.push_back(*stream);
  }
  return Return(cudaSuccess);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
    stream->ends = true;
    DoWork();
  }
  return Return(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  bool done = false;
  {
    const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
    if (const cudaError_t error = RefuseOf(stream); error != cudaSuccess) return Return(error);
    DoWork();
    done = stream->tasks.empty();
  }
  const cudaError_t failed = StickyError(stream->device);
  return Return(failed != cudaSuccess ? failed : done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
    if (const cudaError_t error = RefuseOf(stream); error != cudaSuccess) return Return(error);
  }
  WorkUntil([stream] { return stream->tasks.empty(); });
  return Return(StickyError(stream->device));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  if (event->number < 0) {
    if (stream->recording != nullptr) {
      stream->recording->refused = true;
      return Return(cudaErrorStreamCaptureIsolation);
    }
    if (event->mark != nullptr) stream->tasks.push_back({event->mark, nullptr, nullptr});
    DoWork();
    return Return(cudaSuccess);
  }
  const std::shared_ptr<StreamRecording> recording = event->recording.lock();
  if (recording == nullptr) return Return(cudaErrorCapturedEvent);
  if (stream->recording == nullptr) {
    stream->recording = recording;
    stream->branch = recording->graph.num_branches++;
    recording->streams.push_back(stream);
  } else if (stream->recording != recording) {
    stream->recording->refused = recording->refused = true;
    return Return(cudaErrorStreamCaptureMerge);
  }
  recording->graph.nodes.push_back({.branch = stream->branch, .waits_for = event->number});
  return Return(cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  if (stream->recording != nullptr) return Return(cudaErrorInvalidValue, "the stream records already");
  stream->recording = std::make_shared<StreamRecording>();
  stream->recording->streams = {stream};
  stream->recording->thread = std::this_thread::get_id();
  stream->branch = 0;
  recordings.push_back(stream->recording);
  return Return(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  const std::shared_ptr<StreamRecording> recording = stream->recording;
  *graph = nullptr;
  if (recording == nullptr) return Return(cudaErrorInvalidValue, "the stream does not record");
  if (recording->thread != std::this_thread::get_id()) return Return(cudaErrorStreamCaptureWrongThread);
  if (stream->branch != 0) {
    recording->refused = true;
    return Return(cudaErrorStreamCaptureUnmatched);
  }
  for (CUstream_st* const recorded : recording->streams) recorded->recording = nullptr;
  std::erase(recordings, recording);
  if (recording->refused) return Return(cudaErrorStreamCaptureInvalidated);
  for (int branch = 1; branch < recording->graph.num_branches; ++branch) {
    if (IsOpen(recording->graph, branch)) return Return(cudaErrorStreamCaptureUnjoined);
  }
  *graph = new CUgraph_st{std::move(recording->graph)};
  return Return(cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  *status = stream->recording == nullptr ? cudaStreamCaptureStatusNone
            : stream->recording->refused ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return Return(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new CUgraphExec_st{graph->graph};
  return Return(cudaSuccess);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  if (executable == nullptr || stream == nullptr) return Return(cudaErrorInvalidValue, "no graph, or no stream");
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  return Return(RefuseOf(stream));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (!does_work) return Return(cudaSuccess);
  {
    Runtime& runtime = TheRuntime();
    const std::lock_guard<std::mutex> lock(runtime.work_mutex);
    if (const cudaError_t error = RefuseOf(stream); error != cudaSuccess) return Return(error);
    const Nodes& graph = executable->graph;
    std::vector<CUstream_st*> branches = {stream};
    for (int branch = 1; branch < graph.num_branches; ++branch) {
      branches.push_back(new CUstream_st{.device = stream->device, .ends = true});
      runtime.streams.push_back(branches.back());
    }
    std::vector<std::shared_ptr<Mark>> marks;
    for (int m = 0; m < graph.num_marks; ++m) marks.push_back(std::make_shared<Mark>());
    const auto mark = [&](int number) { return number < 0 ? nullptr : marks[number]; };
    for (const Node& node : graph.nodes) {
      branches[node.branch]->tasks.push_back({mark(node.waits_for), node.work, mark(node.sets)});
    }
    DoWork();
  }
  return Return(StickyError(stream->device));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{.device = current_device};
  return Return(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Return(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->device != stream->device) return OtherDevice("an event on a stream");
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  event->mark = nullptr;
  event->number = -1;
  if (stream->recording != nullptr) {
    if (stream->recording->refused) return Return(cudaErrorStreamCaptureInvalidated);
    Nodes& graph = stream->recording->graph;
    event->recording = stream->recording;
    event->number = graph.num_marks++;
    graph.nodes.push_back({.branch = stream->branch, .sets = event->number});
    return Return(cudaSuccess);
  }
  event->mark = std::make_shared<Mark>();
  stream->tasks.push_back({nullptr, nullptr, event->mark});
  DoWork();
  return Return(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  if (event->number >= 0) return Return(cudaErrorCapturedEvent);
  DoWork();
  return Return(event->mark == nullptr || event->mark->done ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->number >= 0) return Return(cudaErrorCapturedEvent);
  WorkUntil([event] { return event->mark == nullptr || event->mark->done; });
  return Return(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard<std::mutex> lock(TheRuntime().work_mutex);
  for (const cudaEvent_t event : {start, end}) {
    if (event->mark == nullptr) return Return(cudaErrorInvalidResourceHandle, "an event that was not recorded");
    if (!event->mark->done) return Return(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->at - start->mark->at).count();
  return Return(cudaSuccess);
}

cudaError_t cub::DeviceRadixSort::SortPairs(void* scratch, size_t& scratch_bytes, const int32_t* keys,
                                            int32_t* sorted_keys, const int32_t* values, int32_t* sorted_values,
                                            int count, int first_bit, int end_bit, cudaStream_t stream) {
  const size_t needed = 256 + 8 * static_cast<size_t>(count);
  if (scratch == nullptr) {
    scratch_bytes = needed;
    return Return(cudaSuccess);
  }
  if (scratch_bytes < needed) return Return(cudaErrorInvalidValue, "too little memory to sort in");
  return GiveWork(stream, WorkKind::kLibraryCall, [=]() -> std::optional<std::string> {
    const size_t bytes = count * sizeof(int32_t);
    for (const void* const from : {keys, values}) {
      if (auto wrong = CheckRead(from, bytes)) return absl::StrFormat("sort: %s", *wrong);
    }
    for (const auto& [to, size] :
         {std::pair<void*, size_t>{sorted_keys, bytes}, {sorted_values, bytes}, {scratch, needed}}) {
      if (auto wrong = CheckWrite(to, size)) return absl::StrFormat("sort: %s", *wrong);
    }
    std::memset(scratch, Poison(), needed);
    // The bits that are compared, the sign's turned around, so that negative keys come first.
    const auto key = [&](int i) {
      const uint32_t bits = static_cast<uint32_t>(keys[i]) ^ 0x80000000u;
      return end_bit - first_bit >= 32 ? bits : bits >> first_bit & ((1u << (end_bit - first_bit)) - 1);
    };
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
    for (int i = 0; i < count; ++i) {
      sorted_keys[i] = keys[order[i]];
      sorted_values[i] = values[order[i]];
    }
    return std::nullopt;
  });
}
