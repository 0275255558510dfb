// Gives a stream of an emulated device something to do.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>

namespace official::compute::cuda_emulation {

// Does the work; returns what was wrong with it.
using StreamWork = std::function<std::optional<std::string>()>;

// Does the work at once, or adds it to what the stream records.
cudaError_t GiveWork(cudaStream_t stream, StreamWork work);

// Forgets the error that has made all calls fail since, and returns its text; "" if there was none.
std::string TakeError();

}  // namespace official::compute::cuda_emulation
