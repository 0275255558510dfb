// Kernels with one fault each, and without: what the emulation must tell apart.

#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/stream_work.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace official::compute::cuda_emulation {
namespace {

constexpr unsigned kThreads = 64;
constexpr unsigned kAllLanes = 0xffffffff;

// A buffer of device memory, and a stream.
class Device {
 public:
  explicit Device(size_t bytes) {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMalloc(&data_, bytes) == cudaSuccess);
  }
  ~Device() {
    TakeError();
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  template <typename T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  cudaStream_t stream() const { return stream_; }

  template <typename T>
  void Write(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    REQUIRE(cudaMemcpyAsync(data_, values.data(), bytes, cudaMemcpyHostToDevice, stream_) == cudaSuccess);
  }
  template <typename T>
  std::vector<T> Read(size_t count) {
    std::vector<T> values(count);
    REQUIRE(cudaMemcpyAsync(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost, stream_) == cudaSuccess);
    return values;
  }

  // Runs the kernel; returns its error, "" if there was none.
  template <typename... Parameters>
  std::string Run(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared_bytes,
                  std::type_identity_t<Parameters>... arguments) {
    cudaLaunchConfig_t config;
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    cudaLaunchKernelEx(&config, kernel, arguments...);
    return TakeError();
  }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Runs the rest of the test case under each schedule.
void UnderEachSchedule() {
  const auto schedule =
      GENERATE(Schedule::kAscending, Schedule::kDescending, Schedule::kRandom, Schedule::kGreedyWarps);
  SetSchedule(schedule);
  INFO("schedule " << static_cast<int>(schedule));
}

// The sum of a block's numbers, in shared memory.
__global__ void SumOfBlock(const int* x, int* sums) {
  __shared__ Shared<int[kThreads]> values;
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = x[blockIdx.x * kThreads + threadIdx.x];
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) values[thread] += values[thread + half];
  }
  if (thread == 0) sums[blockIdx.x] = values[0];
}

// The same by exchange within warps.
__global__ void SumOfWarps(const int* x, int* sums) {
  int sum = x[blockIdx.x * kThreads + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  __shared__ Shared<int[kThreads / 32]> of_warps;
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = of_warps[0] + of_warps[1];
}

// The same, where the sum is in the first lane of each warp.
__global__ void SumDownWarps(const int* x, int* sums) {
  int sum = x[blockIdx.x * kThreads + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(kAllLanes, sum, distance);
  __shared__ Shared<int[kThreads / 32]> of_warps;
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = of_warps[0] + of_warps[1];
}

TEST_CASE("Threads of a block add up numbers under each schedule") {
  UnderEachSchedule();
  constexpr int kBlocks = 3, kCount = kBlocks * kThreads;
  std::vector<int> x(kCount), want(kBlocks);
  for (int i = 0; i < kCount; ++i) want[i / kThreads] += x[i] = i * i;
  Device device((kCount + kBlocks) * sizeof(int));
  for (const auto kernel : {SumOfBlock, SumOfWarps, SumDownWarps}) {
    device.Write(x);
    int* const sums = device.data<int>() + kCount;
    CHECK(device.Run(kernel, kBlocks, kThreads, 0, device.data<int>(), sums) == "");
    const std::vector<int> all = device.Read<int>(kCount + kBlocks);
    CHECK(std::vector<int>(all.begin() + kCount, all.end()) == want);
  }
}

__global__ void CountAbove(const int* x, int limit, int* found) {
  const int any = __syncthreads_or(x[threadIdx.x] > limit);
  if (threadIdx.x == 0) *found = any;
}

__global__ void SmallestAbove(const unsigned long long* x, unsigned long long* smallest) {
  atomicMin(smallest, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

__global__ void AddTo(const unsigned long long* x, unsigned long long* sum) {
  atomicAdd(sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

__global__ void Doubles(int count, int* y) {
  int* const shared = DynamicShared<int>();
  shared[threadIdx.x] = 2 * static_cast<int>(threadIdx.x);
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < count) y[threadIdx.x] = shared[threadIdx.x ^ 1];
}

TEST_CASE("Votes, atomic operations and shared memory of a size that the launch gives") {
  UnderEachSchedule();
  Device ints(100 * sizeof(int));
  std::vector<int> x(100);
  x[kThreads - 1] = 7;
  ints.Write(x);
  for (const int limit : {6, 7}) {
    CHECK(ints.Run(CountAbove, 1, kThreads, 0, ints.data<int>(), limit, ints.data<int>() + 99) == "");
    CHECK(ints.Read<int>(100)[99] == (limit == 6));
  }
  Device longs(8 * sizeof(unsigned long long));
  longs.Write<unsigned long long>({5, 9, 3, 4, 8, 7, 6, 100});
  CHECK(longs.Run(SmallestAbove, 7, 1, 0, longs.data<unsigned long long>(), longs.data<unsigned long long>() + 7) ==
        "");
  CHECK(longs.Read<unsigned long long>(8)[7] == 3);
  longs.Write<unsigned long long>({5, 9, 3, 4, 8, 7, 6, 100});
  CHECK(longs.Run(AddTo, 7, 1, 0, longs.data<unsigned long long>(), longs.data<unsigned long long>() + 7) == "");
  CHECK(longs.Read<unsigned long long>(8)[7] == 142);
  CHECK(ints.Run(Doubles, 1, kThreads, kThreads * sizeof(int), 3, ints.data<int>()) == "");
  CHECK(ints.Read<int>(3) == std::vector<int>{2, 0, 6});
}

// Accesses are not watched under the address sanitizer (memory.h).
#if !defined(__SANITIZE_ADDRESS__)

__global__ void Copy(int count, const int* x, int* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = x[i];
}

TEST_CASE("A grid that is one too large, or has a wrong limit, leaves the buffer") {
  UnderEachSchedule();
  Device x(100 * sizeof(int)), y(100 * sizeof(int));
  x.Write(std::vector<int>(100, 1));
  CHECK(x.Run(Copy, 2, kThreads, 0, 100, x.data<int>(), y.data<int>()) == "");
  CHECK(y.Read<int>(100) == std::vector<int>(100, 1));
  CHECK_THAT(x.Run(Copy, 2, kThreads, 0, 101, x.data<int>(), y.data<int>()),
             Catch::Contains("read of 4 bytes outside of all buffers, 0 behind a buffer of 400 bytes") &&
                 Catch::Contains("Copy") && Catch::Contains("cuda_emulation_test.cc"));
  CHECK_THAT(x.Run(Copy, 2, kThreads, 0, 100, x.data<int>(), y.data<int>() - 1),
             Catch::Contains("write of 4 bytes outside of all buffers, 4 before a buffer of 400 bytes"));
}

TEST_CASE("Memory that nobody wrote cannot be read") {
  UnderEachSchedule();
  Device x(100 * sizeof(int)), y(100 * sizeof(int));
  x.Write(std::vector<int>(99));
  CHECK_THAT(x.Run(Copy, 2, kThreads, 0, 100, x.data<int>(), y.data<int>()),
             Catch::Contains("read of 4 bytes that nobody wrote, at 396 of a buffer of 400 bytes"));
  // The host gets what stands for it.
  CHECK((x.Read<int>(100)[99] & 0xff) == Poison());
}

// Reads `shared` though only some threads wrote it.
__global__ void ReadsUnwrittenShared(int* y) {
  __shared__ Shared<int[kThreads]> values;
  if (threadIdx.x > 0) values[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void LeavesShared(int by, int* y) {
  __shared__ Shared<int[kThreads]> values;
  int* const begin = &values[0];
  begin[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = begin[threadIdx.x + by];
}

__global__ void LeavesRow(int by, int* y) {
  __shared__ Shared<int[2][kThreads]> values;
  values[0][threadIdx.x] = values[1][threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = values[0][threadIdx.x + by];
}

__global__ void LeavesDynamicShared(int by) {
  int* const shared = DynamicShared<int>();
  shared[threadIdx.x + by] = 0;
}

TEST_CASE("Shared memory has bounds, and nothing in it") {
  UnderEachSchedule();
  Device y(kThreads * sizeof(int));
  CHECK_THAT(y.Run(ReadsUnwrittenShared, 1, kThreads, 0, y.data<int>()), Catch::Contains("that nobody wrote, shared"));
  CHECK(y.Run(LeavesShared, 1, kThreads, 0, 0, y.data<int>()) == "");
  CHECK_THAT(y.Run(LeavesShared, 1, kThreads, 0, 1, y.data<int>()), Catch::Contains("outside of all buffers, shared"));
  CHECK(y.Run(LeavesRow, 1, kThreads, 0, 0, y.data<int>()) == "");
  CHECK_THAT(y.Run(LeavesRow, 1, kThreads, 0, 1, y.data<int>()), Catch::Contains("index 64 is out of the array's"));
  CHECK(y.Run(LeavesDynamicShared, 1, kThreads, kThreads * 4, 0) == "");
  CHECK_THAT(y.Run(LeavesDynamicShared, 1, kThreads, kThreads * 4, 1), Catch::Contains("write of 4 bytes outside"));
}

__global__ void NoBarrier(const int* x, int* y) {
  __shared__ Shared<int[kThreads]> values;
  values[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = values[threadIdx.x ^ 33];
}

// The second round writes before all have read the first.
__global__ void NoBarrierBetweenRounds(const int* x, int* y) {
  __shared__ Shared<int[kThreads]> values;
  int sum = 0;
  for (int round = 0; round < 2; ++round) {
    values[threadIdx.x] = x[threadIdx.x] + round;
    __syncthreads();
    sum += values[threadIdx.x ^ 33];
  }
  y[threadIdx.x] = sum;
}

__global__ void NoWarpBarrier(bool sync, int* y) {
  __shared__ Shared<int[kThreads]> values;
  values[threadIdx.x] = 1;
  if (sync) __syncwarp();
  y[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void BlocksMeet(int* y) { y[threadIdx.x] = static_cast<int>(blockIdx.x); }

TEST_CASE("What no barrier orders is a race under each schedule") {
  UnderEachSchedule();
  Device x(kThreads * sizeof(int)), y(kThreads * sizeof(int));
  x.Write(std::vector<int>(kThreads));
  // A thread that comes before the one that writes finds nothing written.
  CHECK_THAT(x.Run(NoBarrier, 1, kThreads, 0, x.data<int>(), y.data<int>()),
             Catch::Contains("without a barrier between") || Catch::Contains("nobody wrote"));
  CHECK_THAT(x.Run(NoBarrierBetweenRounds, 1, kThreads, 0, x.data<int>(), y.data<int>()),
             Catch::Contains("without a barrier between"));
  CHECK_THAT(x.Run(NoWarpBarrier, 1, kThreads, 0, false, y.data<int>()),
             Catch::Contains("without a barrier between") || Catch::Contains("nobody wrote"));
  CHECK(x.Run(NoWarpBarrier, 1, kThreads, 0, true, y.data<int>()) == "");
  CHECK_THAT(x.Run(BlocksMeet, 2, kThreads, 0, y.data<int>()),
             Catch::Contains("which a thread of another block wrote without a barrier between"));
  CHECK(x.Run(BlocksMeet, 1, kThreads, 0, y.data<int>()) == "");
  CHECK(x.Run(BlocksMeet, 1, kThreads, 0, y.data<int>()) == "");
}

// Divides numbers by the sum of the warp's, in place. `distance` is that of the second number which a thread reads.
__global__ void DivideInPlace(int distance, int* x) {
  int sum = x[threadIdx.x];
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(kAllLanes, sum, other);
  x[threadIdx.x] = 100 * x[(threadIdx.x + distance) % kThreads] / sum;
}

TEST_CASE("Threads read, exchange, read again and write the same place") {
  UnderEachSchedule();
  Device x(kThreads * sizeof(int));
  x.Write(std::vector<int>(kThreads, 3));
  CHECK(x.Run(DivideInPlace, 1, kThreads, 0, 0, x.data<int>()) == "");
  CHECK(x.Read<int>(kThreads) == std::vector<int>(kThreads, 3));
  CHECK_THAT(x.Run(DivideInPlace, 1, kThreads, 0, 1, x.data<int>()), Catch::Contains("without a barrier between"));
}

// Some threads report, and all look whether one has.
template <typename Word>
__global__ void ReportAndLook(unsigned long long* word, int* y) {
  if (threadIdx.x % 3 == 0) atomicMin(word, static_cast<unsigned long long>(threadIdx.x));
  y[threadIdx.x] = *static_cast<Word*>(word) < kThreads;
}

TEST_CASE("A volatile read may come before or after an atomic operation, a plain one races with it") {
  UnderEachSchedule();
  Device word(sizeof(unsigned long long)), y(kThreads * sizeof(int));
  word.Write<unsigned long long>({1000});
  unsigned long long* const at = word.data<unsigned long long>();
  CHECK(y.Run(ReportAndLook<volatile unsigned long long>, 1, kThreads, 0, at, y.data<int>()) == "");
  CHECK(word.Read<unsigned long long>(1)[0] == 0);
  CHECK(y.Read<int>(kThreads)[0] == 1);
  CHECK_THAT(y.Run(ReportAndLook<unsigned long long>, 1, kThreads, 0, at, y.data<int>()),
             Catch::Contains("races with") || Catch::Contains("without a barrier between"));
}

struct alignas(16) Four {
  int at[4];
};
__global__ void LoadFour(const int* x, int* y) { *y = reinterpret_cast<const Four*>(x)->at[threadIdx.x]; }

TEST_CASE("A vector is read at a multiple of its size") {
  UnderEachSchedule();
  Device x(8 * sizeof(int)), y(sizeof(int));
  x.Write(std::vector<int>(8));
  CHECK(x.Run(LoadFour, 1, 1, 0, x.data<int>() + 4, y.data<int>()) == "");
  CHECK_THAT(x.Run(LoadFour, 1, 1, 0, x.data<int>() + 1, y.data<int>()), Catch::Contains("no multiple of 16"));
}

// A sum as kernels make it: each block adds up a piece, in scratch memory, then one thread adds up the pieces. The
// faults are those that people make.
enum class Fault {
  kNone,
  kNoBarrier,
  kMaskOfHalfWarp,
  kOneBlockTooFew,
  kOneBlockTooMany,
  kOneElementTooMany,
  kOldScratch,
};

template <Fault fault>
__global__ void SumPieces(const int* x, int count, int* pieces) {
  __shared__ Shared<int[kThreads / 32]> of_warps;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  int sum = i < count + (fault == Fault::kOneElementTooMany ? 1 : 0) ? x[i] : 0;
  constexpr unsigned kMask = fault == Fault::kMaskOfHalfWarp ? 0xffff : kAllLanes;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kMask, sum, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  if (fault != Fault::kNoBarrier) __syncthreads();
  if (threadIdx.x != 0) return;
  sum = fault == Fault::kOldScratch ? pieces[blockIdx.x] : 0;
  for (unsigned warp = 0; warp < kThreads / 32; ++warp) sum += of_warps[warp];
  pieces[blockIdx.x] = sum;
}

__global__ void AddPieces(const int* pieces, int count, int* y) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += pieces[i];
  *y = sum;
}

// The error of the sum of a vector, "" if there is none: then the sum is checked.
template <Fault fault>
std::string ErrorOfSum() {
  constexpr int kCount = 150, kPieces = 3;
  static_assert(kPieces * kThreads > kCount && (kPieces - 1) * kThreads < kCount);
  constexpr int kBlocks = kPieces + (fault == Fault::kOneBlockTooMany ? 1 : fault == Fault::kOneBlockTooFew ? -1 : 0);
  Device x(kCount * sizeof(int)), scratch(kPieces * sizeof(int)), y(sizeof(int));
  std::vector<int> values(kCount);
  std::iota(values.begin(), values.end(), 1);
  x.Write(values);
  scratch.Write(std::vector<int>(kPieces));  // another kernel's
  for (int run = 0; run < 2; ++run) {
    // As programs do before each kernel.
    SetState(scratch.data<int>(), kPieces * sizeof(int), ByteState::kUnwritten);
    std::string error = x.Run(SumPieces<fault>, kBlocks, kThreads, 0, x.data<int>(), kCount, scratch.data<int>());
    if (error.empty()) error = y.Run(AddPieces, 1, 1, 0, scratch.data<int>(), kPieces, y.data<int>());
    if (!error.empty()) return error;
    CHECK(y.Read<int>(1)[0] == kCount * (kCount + 1) / 2);
  }
  return "";
}

TEST_CASE("Faults that people make in a sum are found under each schedule") {
  UnderEachSchedule();
  CHECK(ErrorOfSum<Fault::kNone>() == "");
  CHECK_THAT(ErrorOfSum<Fault::kNoBarrier>(),
             Catch::Contains("without a barrier between") || Catch::Contains("nobody wrote, shared memory"));
  CHECK_THAT(ErrorOfSum<Fault::kMaskOfHalfWarp>(),
             Catch::Contains("without its lane") || Catch::Contains("is not in mask"));
  CHECK_THAT(ErrorOfSum<Fault::kOneBlockTooFew>(),
             Catch::Contains("AddPieces") &&
                 Catch::Contains("read of 4 bytes that nobody wrote, at 8 of a buffer of 12 bytes"));
  CHECK_THAT(ErrorOfSum<Fault::kOneBlockTooMany>(),
             Catch::Contains("write of 4 bytes outside of all buffers, 0 behind a buffer of 12 bytes"));
  CHECK_THAT(ErrorOfSum<Fault::kOneElementTooMany>(),
             Catch::Contains("read of 4 bytes outside of all buffers, 0 behind a buffer of 600 bytes"));
  CHECK_THAT(ErrorOfSum<Fault::kOldScratch>(), Catch::Contains("SumPieces") &&
                                                   Catch::Contains("read of 4 bytes that nobody wrote") &&
                                                   Catch::Contains("of a buffer of 12 bytes"));
}

__global__ void CopiesOne(const int* x, int* y) { *y = *x; }

TEST_CASE("Kernels reach another device's memory once that was allowed") {
  Device y(sizeof(int));
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  {
    Device x(sizeof(int));
    x.Write(std::vector<int>{7});
    cudaSetDevice(0);
    CHECK_THAT(y.Run(CopiesOne, 1, 1, 0, x.data<int>(), y.data<int>()),
               Catch::Contains("read of 4 bytes on device 0 of the memory of device 1"));
    REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
    CHECK(y.Run(CopiesOne, 1, 1, 0, x.data<int>(), y.data<int>()) == "");
    CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    CHECK(y.Read<int>(1)[0] == 7);
  }
  cudaSetDevice(0);
}

__global__ void ReadsHost(const int* x, int* y) { *y = *x; }

TEST_CASE("Kernels do not reach the host's memory") {
  Device y(sizeof(int));
  const auto x = std::make_unique<int>(1);
  CHECK_THAT(y.Run(ReadsHost, 1, 1, 0, x.get(), y.data<int>()), Catch::Contains("in the host's memory"));
}

#else

TEST_CASE("The address sanitizer guards what is around a buffer") {
  constexpr size_t kBytes = 100;
  const char* data = nullptr;
  {
    const Device device(kBytes);
    data = device.data<char>();
    CHECK(__asan_region_is_poisoned(device.data<char>(), kBytes) == nullptr);
    CHECK(__asan_address_is_poisoned(data - 1));
    CHECK(__asan_address_is_poisoned(data + kBytes));
  }
  CHECK(__asan_address_is_poisoned(data));
}

#endif

__global__ void BarrierForSome(unsigned limit, int* y) {
  if (threadIdx.x < limit) __syncthreads();
  y[threadIdx.x] = 1;
}

__global__ void ShuffleForSome(unsigned mask, unsigned limit, int* y) {
  if (threadIdx.x >= limit) return;
  y[threadIdx.x] = __shfl_xor_sync(mask, static_cast<int>(threadIdx.x), 1);
}

TEST_CASE("Barriers and warps are complete") {
  UnderEachSchedule();
  Device y(kThreads * sizeof(int));
  CHECK(y.Run(BarrierForSome, 1, kThreads, 0, kThreads, y.data<int>()) == "");
  CHECK_THAT(y.Run(BarrierForSome, 1, kThreads, 0, 40, y.data<int>()),
             Catch::Contains("ends while others of its block wait at a barrier") || Catch::Contains("which ended"));
  CHECK(y.Run(ShuffleForSome, 1, kThreads, 0, kAllLanes, kThreads, y.data<int>()) == "");
  CHECK(y.Run(ShuffleForSome, 1, 16, 0, 0xffff, 16, y.data<int>()) == "");
  CHECK_THAT(y.Run(ShuffleForSome, 1, 32, 0, kAllLanes, 31, y.data<int>()),
             Catch::Contains("ends while other lanes wait for it") || Catch::Contains("lanes that have ended"));
  CHECK_THAT(y.Run(ShuffleForSome, 1, 16, 0, kAllLanes, 16, y.data<int>()), Catch::Contains("do not exist"));
  CHECK_THAT(y.Run(ShuffleForSome, 1, 32, 0, 0xff, 32, y.data<int>()),
             Catch::Contains("without its lane") || Catch::Contains("is not in mask"));
}

__global__ void DoNothing() {}

TEST_CASE("Launches have limits") {
  Device device(1);
  const auto refused = [&](dim3 blocks, dim3 threads, size_t shared_bytes) {
    CHECK(device.Run(DoNothing, blocks, threads, shared_bytes) == "");
    return cudaGetLastError() != cudaSuccess;
  };
  CHECK_FALSE(refused(1, kThreads, 0));
  CHECK(refused(0, kThreads, 0));
  CHECK(refused(dim3(1, 65536), 1, 0));
  CHECK(refused(1, 1025, 0));
  CHECK(refused(1, kThreads, (48 << 10) + 1));
  REQUIRE(cudaFuncSetAttribute(DoNothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10) == cudaSuccess);
  CHECK_FALSE(refused(1, kThreads, 64 << 10));
  CHECK(cudaFuncSetAttribute(DoNothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) != cudaSuccess);
  TheCard().block_shared_bytes = 64 << 10;
  CHECK(cudaFuncSetAttribute(DoNothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10) == cudaSuccess);
  CHECK(cudaFuncSetAttribute(DoNothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 65 << 10) != cudaSuccess);
  TheCard() = {};
}

cudaStreamCaptureStatus StatusOf(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  REQUIRE(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
  return status;
}

TEST_CASE("A recording does the same work again, and nothing else is allowed in it") {
  Device x(kThreads * sizeof(int));
  x.Write(std::vector<int>(kThreads, 1));
  REQUIRE(cudaStreamBeginCapture(x.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(x.data<int>(), 0, kThreads * sizeof(int), x.stream()) == cudaSuccess);
  CHECK(StatusOf(x.stream()) == cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(x.stream(), &graph) == cudaSuccess);
  CHECK(x.Read<int>(1)[0] == 1);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  CHECK(cudaGraphUpload(executable, x.stream()) == cudaSuccess);
  CHECK(cudaGraphUpload(nullptr, x.stream()) == cudaErrorInvalidValue);
  cudaGetLastError();
  for (int run = 0; run < 2; ++run) {
    x.Write(std::vector<int>(kThreads, 1));
    REQUIRE(cudaGraphLaunch(executable, x.stream()) == cudaSuccess);
    CHECK(x.Read<int>(kThreads) == std::vector<int>(kThreads, 0));
  }
  cudaGraphExecDestroy(executable);

  void* memory = nullptr;
  const auto allocate = [&] { return cudaMalloc(&memory, 1); };
  const auto query = [&] { return cudaStreamQuery(x.stream()); };
  const auto copy = [&] { return cudaMemcpyAsync(&memory, x.data<int>(), 4, cudaMemcpyDeviceToHost, x.stream()); };
  for (const std::function<cudaError_t()>& call : {std::function<cudaError_t()>(allocate), {query}, {copy}}) {
    REQUIRE(cudaStreamBeginCapture(x.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(call() == cudaErrorStreamCaptureUnsupported);
    CHECK(StatusOf(x.stream()) == cudaStreamCaptureStatusInvalidated);
    CHECK(cudaMemsetAsync(x.data<int>(), 0, 4, x.stream()) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(x.stream(), &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(StatusOf(x.stream()) == cudaStreamCaptureStatusNone);
  }
  cudaGetLastError();
}

}  // namespace
}  // namespace official::compute::cuda_emulation
