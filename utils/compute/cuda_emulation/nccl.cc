// Stands in for NCCL between emulated devices of one process. Calls are checked as NCCL checks them, and more: ranks
// must sum as many elements, which NCCL cannot tell. Communicators do not block. What a group of calls gives the
// streams comes there later than ncclGroupEnd returns, as NCCL may have it: not before ncclCommGetAsyncError has said
// that it is in progress. Sums are made in the order of the ranks.

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/cuda_emulation/memory.h"
#include "utils/compute/cuda_emulation/nccl_faults.h"
#include "utils/compute/cuda_emulation/stream_work.h"

namespace official::compute::cuda_emulation {
namespace {

constexpr unsigned kMagic = 0xcafebeef;

// One rank's part in a sum.
struct Part {
  const float* from;
  float* to;
  size_t count;
};

struct Sum {
  std::map<int, Part> parts;  // by rank
  int left = 0;               // ranks that have seen that it is done
  bool done = false;
  std::string wrong;
};

// The communicators that were made with one id.
struct Clique {
  int size = 0;
  std::map<int, const struct CommState*> members;  // by rank
  std::map<uint64_t, Sum> sums;                    // by number
};

// What a communicator has for as long as work or a recording uses it.
struct CommState {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool aborted = false;
  ncclResult_t state = ncclInProgress;
  std::string last_error = "";
  uint64_t next_sum = 0;  // which comes next on its stream
  bool in_sum = false;    // which has begun there
};

// A sum that is not given to its stream yet.
struct PendingSum {
  ncclComm_t comm;
  Part part;
  cudaStream_t stream;
};

std::mutex mutex;  // of all that follows, and of all communicators; taken after the runtime's
std::atomic<bool> aborts_are_held = false;
std::map<std::string, std::shared_ptr<Clique>>& Cliques() {
  static auto* const cliques = new std::map<std::string, std::shared_ptr<Clique>>;
  return *cliques;
}
std::set<ncclComm_t>& Comms() {
  static auto* const comms = new std::set<ncclComm_t>;
  return *comms;
}

// Of the thread's calls between ncclGroupStart and ncclGroupEnd.
thread_local int group_depth = 0;
thread_local ncclResult_t group_error = ncclSuccess;
thread_local std::vector<PendingSum> group_sums;
thread_local std::string last_error;

}  // namespace
}  // namespace official::compute::cuda_emulation

using namespace official::compute::cuda_emulation;  // NOLINT: all that follows is NCCL's

struct ncclComm {
  std::shared_ptr<CommState> state;
  std::vector<PendingSum> launches;  // of groups that have ended
};

namespace {

// Notes why a call is refused; within a group it is refused as a whole.
ncclResult_t Refuse(ncclResult_t error, std::string why) {
  last_error = std::move(why);
  if (group_depth > 0) group_error = error;
  return error;
}

// Makes the sum of which all parts are there. Returns what was wrong with it.
std::string Add(const Clique& clique, const Sum& sum) {
  const Part& first = sum.parts.at(0);
  for (const auto& [rank, part] : sum.parts) {
    if (part.count != first.count) {
      return absl::StrFormat("ncclAllReduce of %d elements on rank 0 and of %d on rank %d", first.count, part.count,
                             rank);
    }
    const size_t bytes = part.count * sizeof(float);
    if (auto wrong = CheckRead(part.from, bytes)) return absl::StrFormat("ncclAllReduce, rank %d: %s", rank, *wrong);
    if (auto wrong = CheckWrite(part.to, bytes)) return absl::StrFormat("ncclAllReduce, rank %d: %s", rank, *wrong);
  }
  std::vector<float> total(first.from, first.from + first.count);
  for (int rank = 1; rank < clique.size; ++rank) {
    const Part& part = sum.parts.at(rank);
    for (size_t i = 0; i < part.count; ++i) total[i] += part.from[i];
  }
  for (const auto& [rank, part] : sum.parts) std::memcpy(part.to, total.data(), part.count * sizeof(float));
  return "";
}

// The work of one rank for a sum, in its stream's turn: it comes, waits for the others and leaves.
std::optional<std::string> MeetForSum(CommState& comm, const Part& part) {
  const std::lock_guard<std::mutex> lock(mutex);
  Clique& clique = *comm.clique;
  if (comm.aborted) {
    if (std::exchange(comm.in_sum, false)) clique.sums[comm.next_sum].parts.erase(comm.rank);
    return "";
  }
  Sum& sum = clique.sums[comm.next_sum];
  if (!std::exchange(comm.in_sum, true)) sum.parts[comm.rank] = part;
  if (!sum.done) {
    if (static_cast<int>(sum.parts.size()) < clique.size) return std::nullopt;
    sum.wrong = Add(clique, sum);
    sum.done = true;
  }
  const std::string wrong = sum.wrong;
  if (++sum.left == clique.size) clique.sums.erase(comm.next_sum);
  ++comm.next_sum;
  comm.in_sum = false;
  return wrong;
}

// To be called without the mutex: the runtime's is taken first.
ncclResult_t GiveToStreams(std::vector<PendingSum> sums, const std::shared_ptr<CommState>& state) {
  for (const PendingSum& sum : sums) {
    const cudaError_t error =
        GiveWaitingWork(sum.stream, [state, part = sum.part] { return MeetForSum(*state, part); });
    if (error != cudaSuccess) {
      const std::lock_guard<std::mutex> lock(mutex);
      state->last_error = absl::StrCat("Cuda failure '", cudaGetErrorString(error), "'");
      return ncclUnhandledCudaError;
    }
  }
  return ncclSuccess;
}

// What has become of connecting: it ends when all ranks are there. To be called with the mutex.
void Connect(CommState& state) {
  const Clique& clique = *state.clique;
  if (static_cast<int>(clique.members.size()) < clique.size) return;
  state.state = ncclSuccess;
  for (const auto& [rank, other] : clique.members) {
    if (rank == state.rank || other->device != state.device) continue;
    state.state = ncclInvalidUsage;
    state.last_error = absl::StrFormat("Duplicate GPU detected : rank %d and rank %d both on CUDA device %d",
                                       state.rank, rank, state.device);
  }
}

// Refuses what is no communicator.
bool IsComm(ncclComm_t comm) { return Comms().count(comm) > 0; }

// Waits until no recording holds the communicator any more, as NCCL does, and frees it.
ncclResult_t Free(ncclComm_t comm, bool abort) {
  std::shared_ptr<CommState> state;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (Comms().erase(comm) == 0) return Refuse(ncclInvalidArgument, "comm is no communicator");
    state = std::move(comm->state);
    state->aborted = state->aborted || abort;
  }
  delete comm;
  for (; state.use_count() > 1; std::this_thread::sleep_for(std::chrono::microseconds(100))) DoWaitingWork();
  const std::lock_guard<std::mutex> lock(mutex);
  state->clique->members.erase(state->rank);
  return ncclSuccess;
}

}  // namespace

void official::compute::cuda_emulation::FailCommunicators(int rank, ncclResult_t error) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const ncclComm_t comm : Comms()) {
    if (comm->state->rank == rank) comm->state->state = error;
  }
}

void official::compute::cuda_emulation::HoldAborts(bool hold) { aborts_are_held = hold; }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (comm != nullptr && IsComm(comm) && !comm->state->last_error.empty()) last_error = comm->state->last_error;
  return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  *id = {};
  std::strcpy(id->internal, absl::StrCat("emulated ", ++number).c_str());
  Cliques()[id->internal] = std::make_shared<Clique>();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (comm == nullptr) return Refuse(ncclInvalidArgument, "comm is null");
  if (config == nullptr || config->magic != kMagic || config->size != sizeof(ncclConfig_t)) {
    return Refuse(ncclInvalidArgument, "the config is not initialized via NCCL_CONFIG_INITIALIZER");
  }
  if (config->blocking != 0) return Refuse(ncclInvalidUsage, "communicators that block are not emulated");
  if (size < 1 || rank < 0 || rank >= size) {
    return Refuse(ncclInvalidArgument, absl::StrFormat("Invalid rank requested : %d/%d", rank, size));
  }
  int device = 0;
  void* memory = nullptr;  // NCCL has its own: it connects no stream that records
  if (cudaGetDevice(&device) != cudaSuccess || cudaMalloc(&memory, 1) != cudaSuccess ||
      cudaFree(memory) != cudaSuccess) {
    return Refuse(ncclUnhandledCudaError, "the device cannot be used");
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = Cliques().find(id.internal);
  if (found == Cliques().end()) return Refuse(ncclInvalidArgument, "the id is not of ncclGetUniqueId");
  Clique& clique = *found->second;
  if (clique.size != 0 && clique.size != size) {
    return Refuse(ncclInvalidUsage, absl::StrFormat("a group of %d ranks and of %d", clique.size, size));
  }
  if (clique.members.count(rank) > 0) return Refuse(ncclInvalidUsage, absl::StrFormat("rank %d comes twice", rank));
  clique.size = size;
  auto state = std::make_shared<CommState>(CommState{found->second, rank, device});
  clique.members[rank] = state.get();
  *comm = new ncclComm{std::move(state), {}};
  Comms().insert(*comm);
  return group_depth > 0 ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  std::vector<PendingSum> launches;
  std::shared_ptr<CommState> own;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!IsComm(comm)) return Refuse(ncclInvalidArgument, "comm is no communicator");
    own = comm->state;
    if (own->state == ncclInProgress && comm->launches.empty()) Connect(*own);
    *state = own->state;
    if (comm->launches.empty()) return ncclSuccess;
    launches = std::exchange(comm->launches, {});
  }
  const ncclResult_t given = GiveToStreams(std::move(launches), own);
  const std::lock_guard<std::mutex> lock(mutex);
  if (own->state == ncclInProgress) own->state = given;  // else it has failed meanwhile
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  while (aborts_are_held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Free(comm, /*abort=*/true);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return Free(comm, /*abort=*/false); }

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return Refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group_depth > 0) return ncclSuccess;
  const ncclResult_t error = std::exchange(group_error, ncclSuccess);
  const std::vector<PendingSum> sums = std::exchange(group_sums, {});
  if (error != ncclSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const PendingSum& sum : sums) {
    if (!IsComm(sum.comm)) return Refuse(ncclInvalidArgument, "comm is no communicator");
    sum.comm->launches.push_back(sum);
    sum.comm->state->state = ncclInProgress;
  }
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type != ncclFloat32 || op != ncclSum) return Refuse(ncclInvalidArgument, "only sums of float32 are emulated");
  if (stream == nullptr) return Refuse(ncclInvalidArgument, "the default stream is not used");
  std::unique_lock<std::mutex> lock(mutex);
  if (!IsComm(comm)) return Refuse(ncclInvalidArgument, "comm is no communicator");
  const CommState& state = *comm->state;
  if (state.state == ncclInProgress) {
    return Refuse(ncclInvalidArgument,
                  "Attempt to use communicator before the previous operation returned ncclSuccess");
  }
  if (state.state != ncclSuccess) return Refuse(state.state, state.last_error);
  if (DeviceOfStream(stream) != state.device) {
    return Refuse(ncclUnhandledCudaError, "Cuda failure 'invalid resource handle': a stream of another device");
  }
  for (const void* const data : {from, static_cast<const void*>(to)}) {
    if (DeviceOf(data) == state.device) continue;
    return Refuse(ncclInvalidArgument, "the memory is not of the communicator's device");
  }
  const auto* const source = static_cast<const float*>(from);
  auto* const target = static_cast<float*>(to);
  if (source != target && source < target + count && target < source + count) {
    return Refuse(ncclInvalidArgument, "what is summed overlaps the sum, but is not the same");
  }
  lock.unlock();
  ncclGroupStart();
  group_sums.push_back({comm, {source, target, count}, stream});
  return ncclGroupEnd();
}
