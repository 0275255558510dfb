#include "utils/compute/cuda/sorted_indices.h"

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

// Reports indices outside [0, limit), and numbers the positions for the sort.
__global__ void CheckAndNumber(const int32_t* indices, int32_t count, int32_t limit, int32_t* positions,
                               DataError error) {
  const auto i = ThreadIndex<int64_t>();
  if (i >= count) return;
  positions[i] = static_cast<int32_t>(i);
  if (indices[i] < 0 || indices[i] >= limit) error.Report(indices[i]);
}

}  // namespace

absl::StatusOr<SortedIndices> SortedIndices::Make(CudaDevice& device, const Node& node, absl::string_view what,
                                                  int32_t count, int32_t limit) {
  SortedIndices sorted;
  sorted.count_ = count;
  sorted.limit_ = limit;
  sorted.bits_ = std::max(1, static_cast<int>(std::bit_width(static_cast<uint32_t>(limit - 1))));
  sorted.stream_ = device.stream();
  sorted.error_ = device.AddDataError(node, [what = std::string(what), limit](int32_t value) {
    return absl::StrCat(what, " ", value, " is outside [0, ", limit, ")");
  });
  sorted.list_bytes_ = (count * int64_t{sizeof(int32_t)} + 255) / 256 * 256;
  const int32_t* const in = nullptr;
  int32_t* const out = nullptr;
  RETURN_IF_ERROR(CudaStatus(cub::DeviceRadixSort::SortPairs(nullptr, sorted.sort_bytes_, in, out, in, out, count, 0,
                                                             sorted.bits_, sorted.stream_),
                             "cub::DeviceRadixSort::SortPairs"));
  return sorted;
}

absl::StatusOr<SortedIndices::Result> SortedIndices::Sort(const int32_t* indices, void* scratch) const {
  char* const begin = static_cast<char*>(scratch);
  auto* const positions = reinterpret_cast<int32_t*>(begin);
  auto* const sorted = reinterpret_cast<int32_t*>(begin + list_bytes_);
  auto* const order = reinterpret_cast<int32_t*>(begin + 2 * list_bytes_);
  if (count_ == 0) return Result{sorted, order};
  Launch(CheckAndNumber, NumBlocks(count_, kThreads), kThreads, 0, stream_, indices, count_, limit_, positions, error_);
  RETURN_IF_ERROR(LaunchStatus("CheckAndNumber"));
  size_t bytes = sort_bytes_;
  RETURN_IF_ERROR(CudaStatus(cub::DeviceRadixSort::SortPairs(begin + 3 * list_bytes_, bytes, indices, sorted, positions,
                                                             order, count_, 0, bits_, stream_),
                             "cub::DeviceRadixSort::SortPairs"));
  return Result{sorted, order};
}

}  // namespace official::compute
