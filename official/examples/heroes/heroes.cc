#include "official/examples/heroes/heroes.h"

#include <algorithm>

#include "utils/compute/core/tensor.h"
#include "utils/data/random.h"

namespace official::examples {

using compute::DType;
using compute::Tensor;

constexpr int32_t kAvenger = 0;

data::DatasetPtr Heroes(int64_t count, uint64_t seed) {
  Tensor heroes(DType::kInt32, {count, kHeroesOfExample}), labels(DType::kInt32, {count});
  data::Random random(seed, /*epoch=*/0, /*index=*/0);
  for (int64_t i = 0; i < count; ++i) {
    int32_t* const chosen = heroes.data<int32_t>() + i * kHeroesOfExample;
    for (int k = 0; k < kHeroesOfExample;) {
      chosen[k] = static_cast<int32_t>(random.UniformInt(kNumHeroes));
      if (std::find(chosen, chosen + k, chosen[k]) == chosen + k) ++k;
    }
    labels.data<int32_t>()[i] = std::find(chosen, chosen + kHeroesOfExample, kAvenger) != chosen + kHeroesOfExample;
  }
  return data::TensorSlices({{"", heroes}}, {{"", labels}});
}

}  // namespace official::examples
