// --profile: where the time of some steps goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "utils/logs/hook.h"

namespace official::logs {

struct ProfileOptions {
  int64_t first_step = 1, last_step = 1;  // global steps, both included
  std::string model_dir{};
  std::string own_kernels{};  // the algorithm of ops whose kernel names none: "own, AVX-512"
};

// Returns a hook that times the ops of these steps on the first device. After the last of them, or at the end of the
// run before it, it logs the event "profile" and writes <model_dir>/profile-FIRST-LAST.json, with the steps that there
// were; if there was none, it warns. The event says what shares of the steps are waits for data, sums over devices
// (AllReduceStart and AllReduceDone, with the waits for the other devices), other ops, and the rest, between ops; and
// of the ops of one type, result and algorithm their share, number, milliseconds in a step, GFLOP/s and GB/s, the
// largest share first. The file is a Chrome trace, with the waits for data; of more than kMaxTraceEvents ops it has the
// first, and the log says so.
//
// A step in which ops are timed takes longer: each op is waited for.
std::unique_ptr<Hook> MakeProfileHook(ProfileOptions options);

inline constexpr size_t kMaxTraceEvents = 200'000;

}  // namespace official::logs
