#include "utils/train/checkpoint/tensor_reader.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace official::train {

absl::StatusOr<compute::Tensor> AllocateForReading(compute::TensorType type) {
  constexpr int64_t kAlignment = 64;
  const int64_t bytes = (std::max<int64_t>(type.num_bytes(), 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, bytes);
  if (data == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  return compute::Tensor(std::move(type), data, std::shared_ptr<void>(data, std::free));
}

}  // namespace official::train
