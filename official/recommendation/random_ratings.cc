#include "official/recommendation/random_ratings.h"

#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"

namespace official::recommendation {

using compute::DType;
using compute::Tensor;

data::DatasetPtr RandomRatings(int64_t n, int seed) {
  Tensor users(DType::kInt32, {n}), items(DType::kInt32, {n}), labels(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) {
    users.data<int32_t>()[i] = static_cast<int32_t>(compute::Philox(seed, i, 0)[0] % kRandomUsers);
    items.data<int32_t>()[i] = static_cast<int32_t>(compute::Philox(seed, i, 1)[0] % kRandomItems);
    labels.data<float>()[i] = i % 5 == 0 ? 1.0f : 0.0f;
  }
  return data::TensorSlices({{"user_id", users}, {"item_id", items}}, {{"", labels}});
}

data::DatasetPtr RandomCandidates() {
  constexpr int64_t kCandidates = 21;
  Tensor users(DType::kInt32, {kRandomUsers}), items(DType::kInt32, {kRandomUsers, kCandidates});
  for (int32_t user = 0; user < kRandomUsers; ++user) {
    users.data<int32_t>()[user] = user;
    const auto first = static_cast<int32_t>(compute::Philox(9, user, 0)[0] % kRandomItems);
    for (int32_t i = 0; i < kCandidates; ++i) {
      items.data<int32_t>()[user * kCandidates + i] = (first + 7 * i) % kRandomItems;  // different ones
    }
  }
  return data::TensorSlices({{"user_id", users}, {"item_id", items}}, {});
}

}  // namespace official::recommendation
