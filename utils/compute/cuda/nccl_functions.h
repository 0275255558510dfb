// NCCL's functions, found in its library when the first group is made: programs for one GPU need no NCCL.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

// Calls X(name) for each function of NCCL that is used, in the order of LoadNcclFunctions.
// clang-format off
#define OFFICIAL_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion)                \
  X(ncclGetErrorString)            \
  X(ncclGetLastError)              \
  X(ncclGetUniqueId)               \
  X(ncclCommInitRankConfig)        \
  X(ncclCommGetAsyncError)         \
  X(ncclCommAbort)                 \
  X(ncclCommDestroy)               \
  X(ncclGroupStart)                \
  X(ncclGroupEnd)                  \
  X(ncclAllReduce)
// clang-format on

namespace official::compute {

inline constexpr char kNcclLibrary[] = "libnccl.so.2";

// Returns the addresses of all functions in `library`, a path or a name for the dynamic loader; it stays loaded. Sets
// NCCL_GRAPH_REGISTER=0 in the environment, which NCCL reads, unless it is set.
// Returns NotFound, which names the library, if it cannot be loaded or lacks one of the functions.
absl::StatusOr<std::vector<void*>> LoadNcclFunctions(const std::string& library = kNcclLibrary);

// Makes LoadNcclFunctions() return these: a test links what stands in for NCCL.
bool UseNcclFunctions(std::vector<void*> addresses);

}  // namespace official::compute
