// Chooses among the algorithms of CUDA's libraries by timing them. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace official::compute {

// Returns the milliseconds that the work of `give` takes the stream, to which `give` gives it; waits until it is done.
absl::StatusOr<float> TimeOnStream(cudaStream_t stream, absl::FunctionRef<absl::Status()> give);

// Returns the number of the fastest of algorithms 0 to count - 1, where run(i) gives the stream one run of algorithm i.
// Each runs once to set itself up, then once more, and twice more unless that shows it to be far slower than the best.
// Those whose runs fail are left out; the error has the code of the first if all do. Waits for the stream.
absl::StatusOr<int> FastestOnStream(cudaStream_t stream, int count, absl::FunctionRef<absl::Status(int)> run);

}  // namespace official::compute
