#include "official/mnist/mnist_servable.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
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

// Refuses pixels that no image file has.
class DigitServable : public serve::EstimatorServable {
 public:
  using EstimatorServable::EstimatorServable;

  absl::StatusOr<serve::Values> Prepare(serve::Values example) const override {
    ASSIGN_OR_RETURN(serve::Values prepared, EstimatorServable::Prepare(std::move(example)));
    for (const float pixel : std::get<compute::Tensor>(prepared[0]).flat<float>()) {
      if (pixel >= 0 && pixel <= 1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the image has a pixel of ", pixel, "; grey values are from 0 (background) to 1"));
    }
    return prepared;
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run) {
  using compute::DType;
  const ModelConfig config = {.channels_first = run.Trained("data_format") == "channels_first"};
  ASSIGN_OR_RETURN(auto estimator, run::OpenTrained(run.config, MnistModel(config)));
  return std::make_unique<DigitServable>(
      serve::Signature{.name = "classify",
                       .inputs = {{"image", DType::kFloat32, {kImageSize, kImageSize}}},
                       .outputs = {{"classes", DType::kInt64, {}}, {"probabilities", DType::kFloat32, {kNumClasses}}}},
      data::ElementSpec{.features = {{"", {DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {}},
      std::move(estimator), DecodeFile);
}

}  // namespace official::mnist
