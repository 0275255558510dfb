// The trained MNIST model for serve_main.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "official/serve/servable/served_run.h"

namespace official::mnist {

// Opens the latest checkpoint of a run of mnist_main. The signature is that of MnistServingGraph: input image float32
// [28,28] in [0, 1], or the bytes of a PNG file as --predict reads it; outputs classes int64 [] and probabilities
// float32 [10]. NotFound if nothing was trained.
absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run);

}  // namespace official::mnist
