// For tests: a ResNet for small images, and images that it learns in a few steps.
#pragma once

#include <cstdint>

#include "utils/data/dataset.h"
#include "utils/train/model.h"

namespace official::resnet {

// n images of CIFAR-10's size: noise around a brightness that is the label's.
data::DatasetPtr BrightImages(int64_t n, int seed);
// ResNet-8 of this version for CIFAR-10, with the schedule of an epoch of so many examples. With
// `sync_batch_norm` the replicas normalize by the mean and variance of the whole batch.
train::Model SmallModel(int version, int64_t num_examples, int64_t batch_size, bool sync_batch_norm = false);

}  // namespace official::resnet
