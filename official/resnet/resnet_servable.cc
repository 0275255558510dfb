#include "official/resnet/resnet_servable.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "official/resnet/resnet_model.h"
#include "official/resnet/resnet_predict.h"
#include "official/resnet/resnet_run.h"
#include "official/serve/servable/estimator_servable.h"
#include "utils/compute/core/status.h"
#include "utils/run/session.h"

namespace official::resnet {
namespace {

using compute::DType;
using compute::Tensor;

// No preprocessed pixel is larger: ImageNet's are bytes less a mean; CIFAR-10's are in deviations from the mean of an
// image of 3072 values, none of which is more than sqrt(3071) of them away.
constexpr float kMaxPixel = 255;

absl::StatusOr<ModelConfig> TrainedModel(const serve::ServedRun& run) {
  ModelConfig model;
  model.schedule.factors = {1};  // nothing is trained
  model.dataset = run.Trained("dataset_name") == "cifar10" ? DatasetName::kCifar10 : DatasetName::kImagenet;
  const std::string num_classes = run.Trained("num_classes");
  const std::string& model_dir = run.config.train.model_dir;
  if (!absl::SimpleAtoi(run.Trained("resnet_size"), &model.size) || !CheckSize(model.dataset, model.size).ok() ||
      !absl::SimpleAtoi(run.Trained("resnet_version"), &model.version) || model.version < 1 || model.version > 2 ||
      (!num_classes.empty() && !absl::SimpleAtoi(num_classes, &model.num_classes)) || model.num_classes < 0) {
    return absl::DataLossError(absl::StrCat(model_dir,
                                            "/flags.txt is damaged: --dataset_name, --resnet_size, "
                                            "--resnet_version and --num_classes are not those of a network"));
  }
  return ModelOfTraining(model, model_dir);
}

absl::StatusOr<Tensor> DecodeFile(const std::string& bytes, DatasetName dataset) {
  const int64_t size = InfoOf(dataset).image_size;
  Tensor pixels(DType::kFloat32, {size, size, 3});
  PreprocessingScratch scratch;
  const absl::Status status = PreprocessToPredict(bytes, dataset, scratch, pixels.data<float>());
  if (absl::IsDataLoss(status)) return absl::InvalidArgumentError(status.message());
  RETURN_IF_ERROR(status);
  return pixels;
}

}  // namespace

absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run) {
  ASSIGN_OR_RETURN(const ModelConfig model, TrainedModel(run));
  const DatasetName dataset = model.dataset;
  const int64_t size = InfoOf(dataset).image_size;
  ASSIGN_OR_RETURN(auto estimator, run::OpenTrained(run.config, ResnetModel(model)));
  return std::make_unique<serve::EstimatorServable>(
      serve::Signature{
          .name = "predict",
          .inputs = {{"input", DType::kFloat32, {size, size, 3}}},
          .outputs = {{"classes", DType::kInt64, {}}, {"probabilities", DType::kFloat32, {NumClasses(model)}}}},
      data::ElementSpec{.features = {{"", {DType::kFloat32, {size, size, 3}}}}, .labels = {}}, std::move(estimator),
      [dataset](const std::string& bytes) { return DecodeFile(bytes, dataset); },
      serve::PixelRange{.min = -kMaxPixel, .max = kMaxPixel, .text = "preprocessed ones are from -255 to 255"});
}

}  // namespace official::resnet
