#pragma once

namespace official::compute {

// Starts the threads of the parallel loops (parallel.h) of this thread, n with itself. Throws std::system_error where
// the machine lets no more start: OpenMP, which otherwise starts them at the first loop, would end the process.
void StartThreads(int n);

}  // namespace official::compute
