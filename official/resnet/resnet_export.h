// The trained residual network for programs that serve it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/resnet_model.h"
#include "utils/export/destination.h"
#include "utils/train/estimator.h"

namespace official::resnet {

// Writes <export_dir>/<seconds since 1970>/ with the official signature `predict`: input `input` (the placeholder
// input_tensor) float32 [-1, image_size, image_size, 3], preprocessed as the model's features are; outputs classes
// int64 [-1] and probabilities float32 [-1, num_classes]. The official program fixes the batch at --batch_size; here it
// is free. The names of the classes go to assets.extra/labels.txt, if they are known. Returns the path. NotFound if
// nothing was trained.
absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, DatasetName dataset,
                                          const ClassNames& class_names, const exporting::Destination& to);

}  // namespace official::resnet
