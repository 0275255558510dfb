#pragma once

namespace official::compute {

// Starts the threads of the parallel loops (parallel.h) of this thread, n including itself. Throws std::system_error if
// the machine does not let that many start; otherwise the first loop does both.
void StartThreads(int n);

}  // namespace official::compute
