// The trained residual network for serve_main.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "official/serve/servable/served_run.h"

namespace official::resnet {

// Opens the latest checkpoint of a run of resnet_main. The signature is that of ResnetServingGraph: `input` float32
// [image_size, image_size, 3], preprocessed, or the bytes of a JPEG or PNG file, which is then preprocessed as
// --predict does; outputs classes int64 [] and probabilities float32 [num_classes]. DataLoss if flags.txt does not have
// the network's flags; other errors as those of --predict.
absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run);

}  // namespace official::resnet
