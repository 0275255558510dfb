#include <atomic>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/checksum/checksum.h"
#include "utils/compute/ops/checksum/term.h"

namespace official::compute {
namespace {

uint64_t ChecksumOf(const unsigned char* data, int64_t bytes) {
  std::atomic<uint64_t> sum = 0;
  const int64_t words = (bytes + kChecksumWordBytes - 1) / kChecksumWordBytes;
  ParallelFor(words, 1 << 13, [&](int64_t begin, int64_t end) {
    uint64_t part = 0;
    for (int64_t i = begin; i < end; ++i) part += ChecksumTerm(i, ChecksumWord(data, bytes, i));
    sum += part;
  });
  return sum;
}

const bool registered = RegisterKernel({
    .op = op::Checksum,
    .device_kind = "cpu",
    .dtypes = StorageTypesAnd({DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool}),
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      std::vector<int64_t> bytes;
      for (int i = 0; i < spec.node.num_inputs(); ++i) bytes.push_back(spec.input(i).num_bytes());
      return Kernel{[bytes](const KernelArgs& args) {
        for (int i = 0; i < static_cast<int>(bytes.size()); ++i) {
          args.output<uint64_t>(0)[i] = ChecksumOf(args.input<unsigned char>(i), bytes[i]);
        }
        return absl::OkStatus();
      }};
    },
});

}  // namespace
}  // namespace official::compute
