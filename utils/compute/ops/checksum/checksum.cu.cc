// CUDA kernel of Checksum.

#include "utils/compute/ops/checksum/checksum.h"

#include <algorithm>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/checksum/term.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256, kWarpThreads = 32;
constexpr unsigned kAllLanes = 0xffffffff;

// Adds the terms of all words to `sum`. The last word may have fewer than 4 bytes.
__global__ void __launch_bounds__(kThreads)
    AddTerms(const unsigned char* data, int64_t bytes, unsigned long long* sum) {
  const auto first = ThreadIndex<int64_t>();
  const int64_t words = bytes / kChecksumWordBytes;
  unsigned long long part = 0;
  for (int64_t i = first; i < words; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    part += ChecksumTerm(i, reinterpret_cast<const uint32_t*>(data)[i]);
  }
  if (first == 0 && words * kChecksumWordBytes < bytes) part += ChecksumTerm(words, ChecksumWord(data, bytes, words));
  for (int other = kWarpThreads / 2; other > 0; other /= 2) part += __shfl_down_sync(kAllLanes, part, other);
  if (threadIdx.x % kWarpThreads == 0) atomicAdd(sum, part);
}

const bool registered = RegisterKernel({
    .op = op::Checksum,
    .device_kind = "cuda",
    .dtypes = StorageTypesAnd({DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool}),
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      const CudaDevice& device = CudaDeviceOf(spec);
      std::vector<int64_t> bytes;
      for (int i = 0; i < spec.node.num_inputs(); ++i) bytes.push_back(spec.input(i).num_bytes());
      const int64_t most_blocks = int64_t{4} * device.properties().multiProcessorCount;
      return Kernel{[=, stream = device.stream()](const KernelArgs& args) -> absl::Status {
        auto* const sums = args.output<unsigned long long>(0);
        RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(sums, 0, bytes.size() * sizeof(*sums), stream), "cudaMemsetAsync"));
        for (int i = 0; i < static_cast<int>(bytes.size()); ++i) {
          if (bytes[i] == 0) continue;
          const auto blocks =
              static_cast<unsigned>(std::min<int64_t>(NumBlocks(bytes[i], kThreads * kChecksumWordBytes), most_blocks));
          Launch(AddTerms, blocks, kThreads, 0, stream, args.input<unsigned char>(i), bytes[i], sums + i);
          RETURN_IF_ERROR(LaunchStatus("AddTerms"));
        }
        return absl::OkStatus();
      }};
    },
});

}  // namespace
}  // namespace official::compute
