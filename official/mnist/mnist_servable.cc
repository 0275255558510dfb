#include "official/mnist/mnist_servable.h"

#include <string>
#include <utility>

#include "official/mnist/mnist_model.h"
#include "official/mnist/mnist_predict.h"
#include "official/serve/servable/estimator_servable.h"
#include "utils/compute/core/status.h"
#include "utils/run/session.h"

namespace official::mnist {
namespace {

absl::StatusOr<compute::Tensor> DecodeFile(const std::string& bytes) {
  absl::StatusOr<compute::Tensor> digit = DecodePngDigit(bytes, "the image");
  if (absl::IsDataLoss(digit.status())) return absl::InvalidArgumentError(digit.status().message());
  return digit;
}

}  // namespace

absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run) {
  using compute::DType;
  const ModelConfig config = {.channels_first = run.Trained("data_format") == "channels_first"};
  ASSIGN_OR_RETURN(auto estimator, run::OpenTrained(run.config, MnistModel(config)));
  return std::make_unique<serve::EstimatorServable>(
      serve::Signature{.name = "classify",
                       .inputs = {{"image", DType::kFloat32, {kImageSize, kImageSize}}},
                       .outputs = {{"classes", DType::kInt64, {}}, {"probabilities", DType::kFloat32, {kNumClasses}}}},
      data::ElementSpec{.features = {{"", {DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {}},
      std::move(estimator), DecodeFile,
      serve::PixelRange{.min = 0, .max = 1, .text = "grey values are from 0 (background) to 1"});
}

}  // namespace official::mnist
