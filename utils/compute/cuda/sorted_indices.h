// Row indices sorted together with their positions, equal ones by position, so that kernels can add up the rows of
// each index in one order (row_sums.h), whatever the order in which their threads run.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "utils/compute/cuda/cuda_device.h"

namespace official::compute {

class SortedIndices {
 public:
  struct Result {
    const int32_t* indices;    // [count], ascending
    const int32_t* positions;  // [count], the position where each was
  };

  // Makes the sorter of a kernel of `node` that sorts `count` indices. An index outside [0, limit) is a data error
  // "<what> i is outside [0, limit)", and the order is then unspecified.
  static absl::StatusOr<SortedIndices> Make(CudaDevice& device, const Node& node, absl::string_view what, int32_t count,
                                            int32_t limit);

  // A multiple of 256, so that a kernel can have other scratch memory behind it.
  int64_t scratch_bytes() const { return 3 * list_bytes_ + (static_cast<int64_t>(sort_bytes_) + 255) / 256 * 256; }
  // Gives the stream the work. The result is in `scratch`.
  absl::StatusOr<Result> Sort(const int32_t* indices, void* scratch) const;

 private:
  int32_t count_ = 0, limit_ = 0;
  int bits_ = 0;  // number of bits that indices below the limit differ in
  cudaStream_t stream_ = nullptr;
  DataError error_;
  int64_t list_bytes_ = 0;
  size_t sort_bytes_ = 0;
};

}  // namespace official::compute
