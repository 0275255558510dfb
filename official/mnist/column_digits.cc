#include "official/mnist/column_digits.h"

#include "official/mnist/mnist_model.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"

namespace official::mnist {

data::DatasetPtr ColumnDigits(int64_t n, int seed) {
  constexpr int64_t kPixels = kImageSize * kImageSize;
  compute::Tensor images(compute::DType::kFloat32, {n, kPixels}), labels(compute::DType::kInt32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = i * 7 % kNumClasses;
    labels.data<int32_t>()[i] = static_cast<int32_t>(label);
    for (int64_t p = 0; p < kPixels; ++p) {
      const float noise = compute::UniformFloat(compute::Philox(seed, i, p)[0]) / 4;
      images.data<float>()[i * kPixels + p] = p % kImageSize / 2 == label + 1 ? 1 - noise : noise;
    }
  }
  return data::TensorSlices({{"", images}}, {{"", labels}});
}

}  // namespace official::mnist
