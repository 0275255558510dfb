#pragma once

namespace official::compute {

// Starts the threads of the parallel loops (parallel.h) of this thread, n including itself. Throws std::system_error if
// the machine does not let that many start: OpenMP, which otherwise starts them at the first loop, would end the
// process.
void StartThreads(int n);

}  // namespace official::compute
