#include "utils/compute/cuda_emulation/grid.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "utils/compute/cuda_emulation/fiber.h"
#include "utils/compute/cuda_emulation/stream_work.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace official::compute::cuda_emulation {
namespace {

constexpr int kMaxThreads = Fibers::kMaxCount, kLanes = 32, kMaxWarps = kMaxThreads / kLanes;
constexpr size_t kStaticSharedBytes = 48 << 10;  // CUDA's limit for variables
constexpr size_t kSharedGap = 256;               // between variables in shared memory

// The parts of an access.
uint32_t IntervalOf(Access access) { return access >> kThreadBits; }
uint32_t CodeOf(Access access) { return access & ((1u << kThreadBits) - 1); }
Access AccessOf(uint32_t interval, uint32_t code) { return interval << kThreadBits | code; }

// Lanes of a warp that wait for each other, then take each other's values.
struct LaneGroup {
  unsigned mask = 0, arrived = 0, taking = 0;
  size_t bytes = 0;
  alignas(16) char values[kLanes][16];
};

// All about the running block; one runs at a time.
struct Running {
  // What the check of an access needs.
  uintptr_t stack_low = 0;                                                // of the running thread
  Access own = 0;                                                         // what it leaves behind
  uint32_t launch_first = 0, block_first = 0, barrier = 0, interval = 0;  // numbers of intervals
  int thread = 0;

  uint32_t next_interval = 0;
  // Of each warp: the interval that it is in, which an exchange of values ends, too, and the one that its last barrier
  // began.
  std::array<uint32_t, kMaxWarps> warp_intervals, warp_barriers;
  const char *arguments = nullptr, *arguments_end = nullptr;
  const KernelCall* call = nullptr;
  int device = 0;
  int num_threads = 0, num_alive = 0, num_waiting = 0, barrier_kind = -1, barrier_value = 0, barrier_result = 0;
  std::array<unsigned, kMaxWarps> exited;
  std::array<std::vector<std::unique_ptr<LaneGroup>>, kMaxWarps> groups;
  std::deque<int> ready;
  uint64_t block_number = 0;  // counts all blocks that have run
  size_t shared_used = 0, shared_static = 0;
  char* dynamic_shared = nullptr;
  size_t dynamic_shared_bytes = 0;
  std::optional<std::string> failure;
  std::mt19937 random{1};
  int64_t threads_run = 0;
};
Running run;
std::mutex mutex;  // of run

constinit Fibers fibers;  // the threads of the running block

Schedule ScheduleOfEnvironment() {
  const char* const text = std::getenv("OFFICIAL_EMULATION_SCHEDULE");
  const std::string_view name = text == nullptr ? "ascending" : text;
  if (name == "ascending") return Schedule::kAscending;
  if (name == "descending") return Schedule::kDescending;
  if (name == "random") return Schedule::kRandom;
  if (name == "warps") return Schedule::kGreedyWarps;
  std::fprintf(stderr, "OFFICIAL_EMULATION_SCHEDULE=%s is not ascending, descending, random or warps\n", text);
  std::abort();
}

Schedule schedule = Schedule::kAscending;

void ApplySchedule(Schedule s) {
  schedule = s;
  // What is read though nobody wrote it differs between the schedules, should the read stay unnoticed.
  constexpr uint8_t kPoisons[] = {0xff, 0x7f, 0xcb, 0x4b};
  SetPoison(kPoisons[static_cast<int>(s)]);
}

// The place in the source of an address in the code.
std::string SourceOf(const void* code) {
  uintptr_t load_address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &load_address);
  const std::string command = absl::StrFormat("addr2line -Cfipe /proc/%d/exe 0x%x 2>/dev/null", getpid(),
                                              reinterpret_cast<uintptr_t>(code) - load_address);
  std::string text;
  if (FILE* const pipe = popen(command.c_str(), "r")) {
    char part[512];
    while (std::fgets(part, sizeof(part), pipe) != nullptr) text += part;
    pclose(pipe);
  }
  return text;
}

std::string FirstLine(std::string text) { return text.substr(0, text.find('\n')); }

// Ends the kernel. What is left of its threads is never run, nor is what they hold ever freed.
[[noreturn]] void Fail(std::string what, std::string where) {
  run.failure = absl::StrFormat("%s: %s, in thread (%d, %d, %d) of block (%d, %d, %d)%s%s",
                                FirstLine(SourceOf(run.call->kernel)), what, threadIdx.x, threadIdx.y, threadIdx.z,
                                blockIdx.x, blockIdx.y, blockIdx.z, where.empty() ? "" : "\n  at ", where);
  std::string().swap(what);
  std::string().swap(where);
  fibers.End();
}

uint32_t NewInterval() {
  if (run.next_interval == kMaxInterval) {
    ForgetAccesses();
    run.next_interval = 0;
    run.launch_first = run.block_first = 1;
  }
  return ++run.next_interval;
}

void BeginInterval() {
  run.barrier = NewInterval();
  run.warp_intervals.fill(run.barrier);
  run.warp_barriers.fill(run.barrier);
}

void BecomeCurrent(int thread) {
  run.thread = thread;
  run.stack_low = fibers.StackOf(thread);
  run.interval = run.warp_intervals[thread / kLanes];
  run.own = AccessOf(run.interval, static_cast<uint32_t>(thread));
  const unsigned t = static_cast<unsigned>(thread);
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
}

// Makes all threads of the block ready, in the order of the schedule.
void MakeBlockReady() {
  const int n = run.num_threads;
  if (schedule == Schedule::kGreedyWarps) {
    std::array<int, kMaxWarps> warps;
    const int num_warps = (n + kLanes - 1) / kLanes;
    std::iota(warps.begin(), warps.begin() + num_warps, 0);
    std::shuffle(warps.begin(), warps.begin() + num_warps, run.random);
    for (int w = 0; w < num_warps; ++w) {
      for (int i = warps[w] * kLanes; i < std::min(n, (warps[w] + 1) * kLanes); ++i) run.ready.push_back(i);
    }
    return;
  }
  for (int i = 0; i < n; ++i) run.ready.push_back(schedule == Schedule::kDescending ? n - 1 - i : i);
}

// The same of the lanes of a warp.
void MakeLanesReady(int warp, unsigned mask) {
  for (int i = 0; i < kLanes; ++i) {
    const int lane = schedule >= Schedule::kDescending ? kLanes - 1 - i : i;
    if ((mask >> lane & 1) == 0) continue;
    const int thread = warp * kLanes + lane;
    if (schedule == Schedule::kGreedyWarps) {
      run.ready.push_front(thread);
    } else {
      run.ready.push_back(thread);
    }
  }
}

int NextReady() {
  if (schedule == Schedule::kRandom) {
    const size_t i = run.random() % run.ready.size();
    std::swap(run.ready[i], run.ready.back());
    const int thread = run.ready.back();
    run.ready.pop_back();
    return thread;
  }
  const int thread = run.ready.front();
  run.ready.pop_front();
  return thread;
}

void ThreadMain() {
  run.call->run(run.call->arguments.get());
  const int thread = run.thread;
  --run.num_alive;
  run.exited[thread / kLanes] |= 1u << thread % kLanes;
  if (run.num_waiting > 0) Fail("the thread ends while others of its block wait at a barrier", "");
  for (const auto& group : run.groups[thread / kLanes]) {
    if (group->arrived != 0 && (group->mask >> thread % kLanes & 1) != 0) {
      Fail("the thread ends while other lanes wait for it", "");
    }
  }
  fibers.End();
}

void RunBlock() {
  ++run.block_number;
  run.block_first = NewInterval();
  BeginInterval();
  run.num_alive = run.num_threads;
  run.num_waiting = 0;
  run.exited.fill(0);
  for (auto& groups : run.groups) {
    for (const auto& group : groups) group->arrived = group->taking = 0;
  }
  const Region& region = DeviceRegion();
  SetState(region.begin, run.shared_used, ByteState::kOutside);
  run.shared_used = run.shared_static = 0;
  run.dynamic_shared = region.begin;
  if (run.dynamic_shared_bytes > 0) {
    SetState(run.dynamic_shared, run.dynamic_shared_bytes, ByteState::kUnwritten);
    run.shared_used = (run.dynamic_shared_bytes + 2 * kSharedGap - 1) / kSharedGap * kSharedGap;
  }
  run.ready.clear();
  for (int i = 0; i < run.num_threads; ++i) fibers.Prepare(i);
  MakeBlockReady();
  while (!run.ready.empty() && !run.failure) {
    const int thread = NextReady();
    BecomeCurrent(thread);
    fibers.Resume(thread);
  }
  if (!run.failure && run.num_alive > 0) {
    run.failure = absl::StrFormat("%s: %d of %d threads of block (%d, %d, %d) wait for ever, %d of them at a barrier",
                                  FirstLine(SourceOf(run.call->kernel)), run.num_alive, run.num_threads, blockIdx.x,
                                  blockIdx.y, blockIdx.z, run.num_waiting);
  }
}

uint32_t WarpOf(Access access) {
  const uint32_t code = CodeOf(access);
  return code < kWarpCode ? code / kLanes : code - kWarpCode;
}

// True if nothing orders the access, of this launch, before the running thread's. An exchange of values in a warp
// orders what its lanes have read before, since they cannot give a value before they have it, but not what they have
// written.
bool Conflicts(Access access, bool shared, bool read) {
  const uint32_t interval = IntervalOf(access);
  if (interval < run.launch_first) return false;
  if (interval < run.block_first) return !shared;  // of another block
  const uint32_t code = CodeOf(access);
  if (code == static_cast<uint32_t>(run.thread) || interval < run.barrier) return false;
  const int warp = run.thread / kLanes;
  return WarpOf(access) != static_cast<uint32_t>(warp) || interval >= (read ? run.interval : run.warp_barriers[warp]);
}

std::string DescribeAccess(Access access) {
  const uint32_t code = CodeOf(access);
  if (IntervalOf(access) < run.block_first) return "a thread of another block";
  if (code < kWarpCode) return absl::StrCat("thread ", code, " of the block");
  if (code == kAtomicCode) return "an atomic operation";
  return "several threads of the block";
}

}  // namespace

Schedule CurrentSchedule() { return schedule; }
void SetSchedule(Schedule s) { ApplySchedule(s); }
int64_t NumThreadsRun() { return run.threads_run; }

bool InKernel() { return fibers.OnFiber(); }

void FailKernel(const std::string& what, const std::string& where) {
  if (InKernel()) Fail(what, where);
}

std::optional<std::string> RunGrid(const cudaLaunchConfig_t& config, const KernelCall& call) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!fibers.Reserved()) {
    fibers.Reserve(ThreadMain);
    ApplySchedule(ScheduleOfEnvironment());
  }
  blockDim = config.blockDim;
  gridDim = config.gridDim;
  run.call = &call;
  run.device = DeviceOfStream(config.stream);
  run.arguments = static_cast<const char*>(call.arguments.get());
  run.arguments_end = run.arguments + call.arguments_size;
  run.num_threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  run.dynamic_shared_bytes = config.dynamicSmemBytes;
  run.failure.reset();
  run.launch_first = NewInterval();
  const int64_t blocks = int64_t{1} * gridDim.x * gridDim.y * gridDim.z;
  run.threads_run += blocks * run.num_threads;
  std::vector<int64_t> order(schedule >= Schedule::kRandom ? blocks : 0);
  for (int64_t b = 0; b < static_cast<int64_t>(order.size()); ++b) order[b] = b;
  std::shuffle(order.begin(), order.end(), run.random);
  for (int64_t i = 0; i < blocks && !run.failure; ++i) {
    const int64_t b = !order.empty() ? order[i] : schedule == Schedule::kDescending ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(b % gridDim.x), static_cast<unsigned>(b / gridDim.x % gridDim.y),
                static_cast<unsigned>(b / gridDim.x / gridDim.y)};
    RunBlock();
  }
  if (run.failure) fibers.Abandon();
  return run.failure;
}

int SyncBlock(int kind, int value) {
  if (!InKernel()) std::abort();
  if (run.num_alive < run.num_threads) Fail("a barrier that threads of the block have not reached which ended", "");
  if (run.num_waiting > 0 && run.barrier_kind != kind) Fail("threads of a block wait at different barriers", "");
  if (run.num_waiting == 0) run.barrier_value = 0;
  run.barrier_kind = kind;
  run.barrier_value |= value != 0;
  if (++run.num_waiting == run.num_threads) {
    run.num_waiting = 0;
    run.barrier_result = run.barrier_value;
    BeginInterval();
    MakeBlockReady();
  }
  fibers.Pause();
  return run.barrier_result;
}

namespace {

// Waits until all lanes of the mask have come; then their values are in the group that is returned.
LaneGroup& MeetLanes(unsigned mask, const void* value, size_t bytes) {
  const int thread = run.thread, warp = thread / kLanes, lane = thread % kLanes;
  const int lanes = std::min(kLanes, run.num_threads - warp * kLanes);
  if ((mask >> lane & 1) == 0) Fail(absl::StrFormat("a warp operation whose mask %x is without its lane", mask), "");
  if (lanes < kLanes && (mask >> lanes) != 0) Fail(absl::StrFormat("mask %x names lanes that do not exist", mask), "");
  if ((mask & run.exited[warp]) != 0) {
    Fail(absl::StrFormat("mask %x names lanes that have ended (%x)", mask, run.exited[warp]), "");
  }
  LaneGroup* group = nullptr;
  for (const auto& g : run.groups[warp]) {
    if (g->taking != 0) continue;
    if (g->arrived == 0) {
      if (group == nullptr) group = g.get();
    } else if (g->mask == mask) {
      group = g.get();
      break;
    } else if ((g->mask & mask) != 0) {
      Fail(absl::StrFormat("lanes of a warp wait for each other with masks %x and %x", mask, g->mask), "");
    }
  }
  if (group == nullptr) group = run.groups[warp].emplace_back(std::make_unique<LaneGroup>()).get();
  if (group->arrived == 0) {
    group->mask = mask;
    group->bytes = bytes;
  }
  if (group->bytes != bytes) Fail("lanes of a warp exchange values of different sizes", "");
  if (bytes > 0) std::memcpy(group->values[lane], value, bytes);
  group->arrived |= 1u << lane;
  if (group->arrived == mask) {
    group->arrived = 0;
    group->taking = bytes > 0 ? mask : 0;
    MakeLanesReady(warp, mask);
  }
  return *group;
}

}  // namespace

void SyncLanes(unsigned mask) {
  if (!InKernel()) std::abort();
  const int thread = run.thread, warp = thread / kLanes;
  if (MeetLanes(mask, nullptr, 0).arrived == 0) run.warp_barriers[warp] = run.warp_intervals[warp] = NewInterval();
  fibers.Pause();
}

void ExchangeLanes(unsigned mask, const void* value, int source, size_t bytes, void* result) {
  if (!InKernel()) std::abort();
  if (bytes > sizeof(LaneGroup::values[0])) Fail("a warp operation on values that are too large", "");
  const int thread = run.thread;
  if ((mask >> source & 1) == 0) Fail(absl::StrFormat("lane %d is not in mask %x", source, mask), "");
  LaneGroup& group = MeetLanes(mask, value, bytes);
  if (group.arrived == 0) run.warp_intervals[thread / kLanes] = NewInterval();
  fibers.Pause();
  std::memcpy(result, group.values[source], bytes);
  group.taking &= ~(1u << thread % kLanes);
}

void* SharedPlace::Of(size_t bytes, size_t alignment) {
  if (!InKernel()) std::abort();
  if (block_ == run.block_number) return place_;
  block_ = run.block_number;
  run.shared_static += bytes;
  if (run.shared_static > kStaticSharedBytes) Fail("the variables in shared memory take more than 48 KiB", "");
  place_ = DeviceRegion().begin + (run.shared_used + alignment - 1) / alignment * alignment;
  SetState(place_, bytes, ByteState::kUnwritten);
  run.shared_used = (DeviceRegion().Offset(place_) + bytes + 2 * kSharedGap - 1) / kSharedGap * kSharedGap;
  return place_;
}

void* DynamicSharedMemory(size_t alignment) {
  if (!InKernel()) std::abort();
  if (alignment > 128) Fail("shared memory is aligned to 128 bytes", "");
  return run.dynamic_shared;
}

void BeginAtomic(const void* address, size_t bytes) {
  if (!InKernel()) std::abort();
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) Fail("an atomic operation that is not aligned", "");
  const Region& region = DeviceRegion();
  if (!region.Contains(address)) Fail("an atomic operation on memory of the host", "");
  const size_t offset = region.Offset(address);
  for (size_t i = offset; i < offset + bytes; ++i) {
    if (region.states[i] != ByteState::kWritten) {
      Fail(absl::StrCat("an atomic operation on memory that nobody wrote, ", DescribeAddress(address)), "");
    }
    const Access writer = region.writers[i];
    const bool after_atomic = CodeOf(writer) == kAtomicCode;
    for (const Access access : {after_atomic ? 0 : writer, region.readers[i]}) {
      if (Conflicts(access, offset < kSharedBytes, /*read=*/false)) {
        Fail(absl::StrCat("an atomic operation races with ", DescribeAccess(access), ", ", DescribeAddress(address)),
             "");
      }
    }
    region.writers[i] = AccessOf(run.interval, kAtomicCode);
  }
}

namespace {

[[noreturn, gnu::noinline]] void FailAccess(const void* address, size_t bytes, bool write, const void* caller,
                                            const char* what) {
  Fail(absl::StrCat(write ? "write of " : "read of ", bytes, " bytes ", what, ", ", DescribeAddress(address)),
       SourceOf(caller));
}

[[noreturn, gnu::noinline]] void FailRace(const void* address, size_t bytes, bool write, const void* caller,
                                          Access other, bool other_wrote) {
  FailAccess(
      address, bytes, write, caller,
      absl::StrCat("which ", DescribeAccess(other), other_wrote ? " wrote" : " read", " without a barrier between")
          .c_str());
}

// Memory outside of the region: the launch's arguments, constants and variables of the program (which the compiler for
// devices would refuse if they were the host's), or the host's memory.
[[gnu::noinline]] void CheckOutside(const void* address, size_t bytes, bool write, const void* caller) {
  const char* const p = static_cast<const char*>(address);
  if (!write && p >= run.arguments && p < run.arguments_end) return;
  extern char begin asm("__executable_start"), end asm("_end");
  if ((p >= &begin && p < &end) || IsPinned(address)) return;
  FailAccess(address, bytes, write, caller, "in the host's memory");
}

// Memory of another device, which kernels reach once that was allowed.
[[gnu::noinline]] void CheckPeer(const void* address, size_t bytes, bool write, const void* caller) {
  if (CanAccess(run.device, DeviceOf(address))) return;
  FailAccess(address, bytes, write, caller,
             absl::StrFormat("on device %d of the memory of device %d", run.device, DeviceOf(address)).c_str());
}

}  // namespace

void CheckAccess(const void* address, size_t bytes, bool write, const void* caller) {
  if (!InKernel()) return;
  if (reinterpret_cast<uintptr_t>(address) - run.stack_low < Fibers::kStackBytes) return;
  const Region& region = DeviceRegion();
  const size_t offset = region.Offset(address);
  if (offset >= kRegionBytes) return CheckOutside(address, bytes, write, caller);
  ByteState* const states = region.states + offset;
  Access *const writers = region.writers + offset, *const readers = region.readers + offset;
  const bool shared = offset < kSharedBytes;
  if (static_cast<int>(offset / kDeviceBytes) != run.device && !shared) CheckPeer(address, bytes, write, caller);
  const Access own = run.own, floor = AccessOf(shared ? run.block_first : run.launch_first, 0);
  for (size_t i = 0; i < bytes; ++i) {
    if (states[i] == ByteState::kOutside) [[unlikely]] {
      FailAccess(address, bytes, write, caller, "outside of all buffers");
    }
    const Access writer = writers[i];
    if (writer != own && writer >= floor && Conflicts(writer, shared, /*read=*/false)) [[unlikely]] {
      FailRace(address, bytes, write, caller, writer, true);
    }
    const Access reader = readers[i];
    if (write) {
      if (reader != own && reader >= floor && Conflicts(reader, shared, /*read=*/true)) [[unlikely]] {
        FailRace(address, bytes, write, caller, reader, false);
      }
      writers[i] = own;
      states[i] = ByteState::kWritten;
    } else {
      if (states[i] == ByteState::kUnwritten) [[unlikely]] {
        FailAccess(address, bytes, write, caller, "that nobody wrote");
      }
      if (reader == own) continue;
      const auto warp = static_cast<uint32_t>(run.thread / kLanes);
      const bool of_warp = WarpOf(reader) == warp;
      if (IntervalOf(reader) < (of_warp ? run.interval : run.barrier)) {
        readers[i] = own;  // a write that races with the earlier read races with this one, too
      } else {
        readers[i] = AccessOf(run.interval, of_warp ? kWarpCode + warp : kSeveralCode);
      }
    }
  }
}

void CheckVolatileRead(const void* address, size_t bytes, const void* caller) {
  if (!InKernel()) return;
  const Region& region = DeviceRegion();
  const size_t offset = region.Offset(address);
  if (offset >= kRegionBytes) return CheckAccess(address, bytes, /*write=*/false, caller);
  for (size_t i = offset; i < offset + bytes; ++i) {
    if (region.states[i] == ByteState::kOutside) FailAccess(address, bytes, false, caller, "outside of all buffers");
    if (region.states[i] == ByteState::kUnwritten) FailAccess(address, bytes, false, caller, "that nobody wrote");
    const Access writer = region.writers[i];
    const bool atomic = CodeOf(writer) == kAtomicCode;
    if (!atomic && Conflicts(writer, offset < kSharedBytes, /*read=*/false)) {
      FailRace(address, bytes, false, caller, writer, true);
    }
  }
}

void ReportMisaligned(const void* address, size_t alignment, const std::string& where) {
  FailKernel(
      absl::StrFormat("access at %p, which is no multiple of %d, %s", address, alignment, DescribeAddress(address)),
      where);
}

}  // namespace official::compute::cuda_emulation
