#include "official/recommendation/random_ratings.h"

#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"

namespace official::recommendation {

using compute::DType;
using compute::Tensor;

data::DatasetPtr RandomRatings(int64_t n) {
  Tensor users(DType::kInt32, {n}), items(DType::kInt32, {n}), labels(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) {
    users.data<int32_t>()[i] = static_cast<int32_t>(compute::Philox(8, i, 0)[0] % kRandomUsers);
    items.data<int32_t>()[i] = static_cast<int32_t>(compute::Philox(8, i, 1)[0] % kRandomItems);
    labels.data<float>()[i] = i % 5 == 0 ? 1.0f : 0.0f;
  }
  return data::TensorSlices({{"user_id", users}, {"item_id", items}}, {{"", labels}});
}

}  // namespace official::recommendation
