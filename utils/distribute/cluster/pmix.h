// PMIx: what processes that mpirun or srun --mpi=pmix started tell each other before they are connected.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace official::distribute {

// What all processes of a job have from process 0.
struct PmixShare {
  std::string text;    // what it gave: its address, or any bytes
  std::string secret;  // 64 hexadecimal digits, others in every job; who is not of the job does not see them
};

// Returns what process 0 gives, in each process of the job. All of them call this, once: number 0 with `own`, the
// others without. It waits for all. The library, a name for the dynamic loader or a path, is loaded by this call and
// stays.
//
// Unavailable if the library is missing, is another one or cannot reach what started the process, and if the job does
// not number the process as `own` says; DeadlineExceeded, with the call that did not return, after `deadline`: the call
// goes on in a thread of its own, so the process is good for nothing but to end.
absl::StatusOr<PmixShare> ShareByPmix(std::optional<std::string> own, std::chrono::seconds deadline,
                                      const std::string& library = "libpmix.so.2");

}  // namespace official::distribute
