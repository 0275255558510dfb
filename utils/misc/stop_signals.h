// Signals that ask a training to stop or to save.
#pragma once

#include <atomic>

namespace official::misc {

// While one of these lives, SIGTERM, SIGINT and SIGUSR1 (which cluster schedulers send before they kill) are requests
// to stop soon, and SIGUSR2 is one to save and continue. A second SIGINT ends the process at once. Before and after,
// they have their previous effect: to end the process. At most one may live at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

// Returns the first signal that asked to stop; 0 if none did.
int StopSignalReceived();
// Returns the same as a flag, for frequent reads.
const std::atomic<int>& StopSignalFlag();
// Makes StopSignalReceived return `signal`, unless another one came before: for one that was taken otherwise.
void RequestStop(int signal);
// True if there was a SIGUSR2 since the last call.
bool TakeSaveRequest();

// Ends the process as the uncaught signal would have, so that its parent sees why; as process 1, for which the kernel
// does not do that, with status 128 + signal.
[[noreturn]] void DieOfSignal(int signal);

}  // namespace official::misc
