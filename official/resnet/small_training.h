// For tests: a ResNet for small images, and images that it learns in a few steps.
#pragma once

#include <cstdint>

#include "utils/data/dataset.h"
#include "utils/train/model.h"

namespace official::resnet {

// n images of CIFAR-10's size: noise around a brightness that is the label's.
data::DatasetPtr BrightImages(int64_t n, int seed);
// ResNet-8 of this version for CIFAR-10, with the schedule of an epoch of so many examples.
train::Model SmallModel(int version, int64_t num_examples, int64_t batch_size);

}  // namespace official::resnet
