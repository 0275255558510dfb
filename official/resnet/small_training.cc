#include "official/resnet/small_training.h"

#include "official/resnet/resnet_model.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/tensor.h"

namespace official::resnet {

using compute::DType;
using compute::Tensor;

data::DatasetPtr BrightImages(int64_t n, int seed) {
  constexpr int64_t kPixels = 32 * 32 * 3;
  Tensor images(DType::kFloat32, {n, 32, 32, 3}), labels(DType::kInt32, {n});
  for (int64_t i = 0; i < n; ++i) {
    const auto label = static_cast<int32_t>(i * 7 % 10);
    labels.data<int32_t>()[i] = label;
    for (int64_t p = 0; p < kPixels; ++p) {
      const float noise = compute::UniformFloat(compute::Philox(seed, i, p)[0]);
      images.data<float>()[i * kPixels + p] = noise + static_cast<float>(label) / 10 - 1;
    }
  }
  return data::TensorSlices({{"", images}}, {{"", labels}});
}

train::Model SmallModel(int version, int64_t num_examples, int64_t batch_size, bool sync_batch_norm) {
  const DatasetInfo& info = InfoOf(DatasetName::kCifar10);
  return ResnetModel({.dataset = DatasetName::kCifar10,
                      .size = 8,
                      .version = version,
                      .weight_decay = info.weight_decay,
                      .sync_batch_norm = sync_batch_norm,
                      .schedule = {.boundary_epochs = info.boundary_epochs,
                                   .factors = info.factors,
                                   .batch_size = static_cast<int>(batch_size),
                                   .num_train_examples = num_examples}});
}

}  // namespace official::resnet
