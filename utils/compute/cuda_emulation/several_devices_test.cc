// Two devices, their streams and NCCL between them: what waits, what is refused.

#include <cuda_runtime.h>
#include <nccl.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "utils/compute/cuda_emulation/stream_work.h"

namespace official::compute::cuda_emulation {
namespace {

// A rank's device memory of four floats, and a stream.
struct Rank {
  explicit Rank(int device) : device(device) {
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaMalloc(&data, kBytes) == cudaSuccess);
  }
  ~Rank() {
    cudaSetDevice(device);
    TakeError();
    if (comm != nullptr) ncclCommAbort(comm);
    cudaFree(data);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    cudaSetDevice(0);
  }
  void Write(const std::vector<float>& values) {
    REQUIRE(cudaMemcpyAsync(data, values.data(), kBytes, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  std::vector<float> Read() {
    std::vector<float> values(4);
    REQUIRE(cudaMemcpyAsync(values.data(), data, kBytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return values;
  }
  ncclResult_t Sum(size_t count = 4) { return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, stream); }
  // Asks until nothing is in progress.
  ncclResult_t State() {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 3 && state == ncclInProgress; ++i) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    return state;
  }

  static constexpr size_t kBytes = 4 * sizeof(float);
  const int device;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  float* data = nullptr;
  ncclComm_t comm = nullptr;
};

ncclResult_t Connect(Rank& rank, int number, const ncclUniqueId& id, int size = 2) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  REQUIRE(cudaSetDevice(rank.device) == cudaSuccess);
  return ncclCommInitRankConfig(&rank.comm, size, id, number, &config);
}

ncclUniqueId NewId() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

// Two ranks that are connected.
struct Pair {
  Rank a{0}, b{1};
  Pair() {
    const ncclUniqueId id = NewId();
    REQUIRE(ncclGroupStart() == ncclSuccess);
    REQUIRE(Connect(a, 0, id) == ncclSuccess);
    REQUIRE(Connect(b, 1, id) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclInProgress);
    REQUIRE(a.State() == ncclSuccess);
    REQUIRE(b.State() == ncclSuccess);
  }
};

TEST_CASE("Each device has its streams, events and memory") {
  Rank a(0), b(1);
  size_t free_a = 0, free_b = 0, total = 0;
  cudaMemGetInfo(&free_b, &total);  // device 1 is current
  cudaSetDevice(0);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1 << 20) == cudaSuccess);
  cudaMemGetInfo(&free_a, &total);
  CHECK(free_a + (1 << 20) == free_b);
  cudaFree(memory);
  CHECK(cudaEventRecord(a.event, b.stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaMemcpyPeerAsync(a.data, 1, b.data, 0, 4, a.stream) == cudaErrorInvalidValue);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  int can = 1;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 0) == cudaSuccess);
  CHECK(can == 0);
  b.Write({1, 2, 3, 4});
  REQUIRE(cudaMemcpyPeerAsync(a.data, 0, b.data, 1, Rank::kBytes, a.stream) == cudaSuccess);
  CHECK(a.Read() == std::vector<float>{1, 2, 3, 4});
  // The error of one device is not the other's.
  cudaSetDevice(1);
  cudaMemsetAsync(b.data, 0, 1000, b.stream);
  CHECK(cudaStreamSynchronize(b.stream) == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  cudaSetDevice(0);
  CHECK(cudaStreamSynchronize(a.stream) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("Streams wait for the events of others, and what waits is not done") {
  Pair ranks;
  Rank& a = ranks.a;
  Rank other(0);
  a.Write({1, 1, 1, 1});
  ranks.b.Write({2, 2, 2, 2});
  other.Write({0, 0, 0, 0});
  REQUIRE(a.Sum() == ncclInProgress);
  REQUIRE(a.State() == ncclSuccess);
  REQUIRE(cudaEventRecord(a.event, a.stream) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(other.stream, a.event, 0) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(other.data, a.data, Rank::kBytes, cudaMemcpyDeviceToDevice, other.stream) == cudaSuccess);
  CHECK(cudaEventQuery(a.event) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(other.stream) == cudaErrorNotReady);
  REQUIRE(ranks.b.Sum() == ncclInProgress);
  CHECK(cudaStreamQuery(other.stream) == cudaErrorNotReady);  // the sum of b is still in NCCL's hands
  REQUIRE(ranks.b.State() == ncclSuccess);
  CHECK(cudaStreamQuery(other.stream) == cudaSuccess);
  CHECK(cudaEventQuery(a.event) == cudaSuccess);
  CHECK(other.Read() == std::vector<float>(4, 3));
  CHECK(ranks.b.Read() == std::vector<float>(4, 3));
}

TEST_CASE("NCCL refuses what it does not allow") {
  Rank a(0), b(1), same(0);
  const ncclUniqueId id = NewId();
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(Connect(a, 2, id) == ncclInvalidArgument);
  CHECK(Connect(a, 0, ncclUniqueId{}) == ncclInvalidArgument);
  REQUIRE(Connect(a, 0, id) == ncclInProgress);
  CHECK(a.State() == ncclInProgress);
  CHECK(a.Sum() == ncclInvalidArgument);  // rank 1 has not come
  CHECK(Connect(b, 0, id) == ncclInvalidUsage);
  CHECK(Connect(b, 1, id, 3) == ncclInvalidUsage);
  REQUIRE(Connect(same, 1, id) == ncclInProgress);
  CHECK(a.State() == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(a.comm), Catch::Contains("Duplicate GPU detected : rank 0 and rank 1"));

  Pair ranks;
  CHECK(ncclAllReduce(ranks.a.data, ranks.a.data, 4, ncclFloat16, ncclSum, ranks.a.comm, ranks.a.stream) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(ranks.a.data, ranks.a.data, 4, ncclFloat32, ncclSum, ranks.a.comm, ranks.b.stream) ==
        ncclUnhandledCudaError);
  CHECK(ncclAllReduce(ranks.b.data, ranks.b.data, 4, ncclFloat32, ncclSum, ranks.a.comm, ranks.a.stream) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(ranks.a.data, ranks.a.data + 1, 3, ncclFloat32, ncclSum, ranks.a.comm, ranks.a.stream) ==
        ncclInvalidArgument);
  REQUIRE(ranks.a.Sum() == ncclInProgress);
  CHECK(ranks.a.Sum() == ncclInvalidArgument);  // before the one before is with the stream
}

TEST_CASE("Ranks sum as many elements") {
  Pair ranks;
  ranks.a.Write({1, 1, 1, 1});
  ranks.b.Write({1, 1, 1, 1});
  REQUIRE(ranks.a.Sum(4) == ncclInProgress);
  REQUIRE(ranks.a.State() == ncclSuccess);
  REQUIRE(ranks.b.Sum(3) == ncclInProgress);
  CHECK(ranks.b.State() == ncclUnhandledCudaError);
  cudaSetDevice(0);
  CHECK(cudaStreamSynchronize(ranks.a.stream) == cudaErrorLaunchFailure);
  CHECK_THAT(TakeError(), Catch::Contains("ncclAllReduce of 4 elements on rank 0 and of 3 on rank 1"));
}

TEST_CASE("An abort ends what waits, and waits itself for the recordings") {
  Pair ranks;
  Rank &a = ranks.a, other(0);
  cudaSetDevice(0);
  a.Write({1, 1, 1, 1});
  REQUIRE(cudaStreamBeginCapture(other.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(cudaEventRecord(other.event, other.stream) == cudaSuccess);
  CHECK(cudaEventQuery(other.event) == cudaErrorCapturedEvent);
  REQUIRE(cudaStreamWaitEvent(a.stream, other.event, 0) == cudaSuccess);
  REQUIRE(a.Sum() == ncclInProgress);
  REQUIRE(a.State() == ncclSuccess);
  cudaGraph_t graph = nullptr;
  SECTION("Streams that record, too, must be waited for") {
    CHECK(cudaStreamEndCapture(other.stream, &graph) == cudaErrorStreamCaptureUnjoined);
    CHECK(graph == nullptr);
    cudaGetLastError();
  }
  SECTION("What a recording has begun ends") {
    REQUIRE(cudaEventRecord(a.event, a.stream) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(other.stream, a.event, 0) == cudaSuccess);
    REQUIRE(cudaStreamEndCapture(other.stream, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    REQUIRE(cudaGraphLaunch(executable, other.stream) == cudaSuccess);
    CHECK(cudaStreamQuery(other.stream) == cudaErrorNotReady);
    std::thread aborter([&] { ncclCommAbort(std::exchange(a.comm, nullptr)); });
    CHECK(cudaStreamSynchronize(other.stream) == cudaSuccess);
    cudaGraphExecDestroy(executable);
    aborter.join();
  }
}

}  // namespace
}  // namespace official::compute::cuda_emulation
