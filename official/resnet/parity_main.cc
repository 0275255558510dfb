// For tests: trains a ResNet on one fixed batch, from the checkpoint in --model_dir, and writes what TensorFlow's
// outcome is compared with. official/resnet/interop/parity_case.py describes the files.

#include <algorithm>
#include <string>

#include "absl/flags/flag.h"
#include "official/resnet/resnet_model.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/run/parity_run.h"

ABSL_FLAG(std::string, dataset_name, "cifar10", "cifar10 or imagenet.");
ABSL_FLAG(int, resnet_size, 8, "Layers.");
ABSL_FLAG(int, resnet_version, 1, "1 or 2.");
ABSL_FLAG(double, learning_rate, 0.1, "Of all steps.");

namespace official::resnet {
namespace {

using compute::Tensor;

train::Model ModelFromFlags() {
  const DatasetName dataset =
      absl::GetFlag(FLAGS_dataset_name) == "imagenet" ? DatasetName::kImagenet : DatasetName::kCifar10;
  const DatasetInfo& info = InfoOf(dataset);
  train::Model model = ResnetModel({.dataset = dataset,
                                    .size = absl::GetFlag(FLAGS_resnet_size),
                                    .version = absl::GetFlag(FLAGS_resnet_version),
                                    .weight_decay = info.weight_decay,
                                    .schedule = {.boundary_epochs = info.boundary_epochs,
                                                 .factors = info.factors,
                                                 .num_train_examples = info.num_train_examples}});
  model.learning_rate = [rate = absl::GetFlag(FLAGS_learning_rate)](int64_t) { return rate; };
  return model;
}

absl::StatusOr<Tensor> Probabilities(train::Estimator& estimator, const Tensor& images) {
  const auto dims = images.shape().dims();
  const data::ElementSpec spec{.features = {{"", {images.dtype(), {dims[1], dims[2], dims[3]}}}}, .labels = {}};
  ASSIGN_OR_RETURN(const auto predictions, estimator.Predict(spec, {images}));
  const auto found =
      std::find_if(predictions.begin(), predictions.end(), [](const auto& p) { return p.first == "probabilities"; });
  OFFICIAL_CHECK(found != predictions.end()) << "no probabilities";
  return found->second.Clone();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const auto inputs, run::OpenParityInputs());
  ASSIGN_OR_RETURN(const Tensor images, inputs->Read("images"));
  ASSIGN_OR_RETURN(const Tensor labels, inputs->Read("labels"));
  ASSIGN_OR_RETURN(const Tensor prediction_images, inputs->Read("prediction_images"));
  ASSIGN_OR_RETURN(const auto estimator, run::OpenParityModel(ModelFromFlags()));

  run::ParityOutputs outputs;
  ASSIGN_OR_RETURN(outputs["initial_probabilities"], Probabilities(*estimator, prediction_images));
  const data::DatasetPtr batch = data::TensorSlices({{"", images}}, {{"", labels}});
  const auto input_fn = [&](data::Position start) {
    return data::Batches(batch, {.batch_size = images.shape().dim(0), .start = start, .end_epoch = data::kEndless});
  };
  RETURN_IF_ERROR(run::TrainAndAddLosses(*estimator, input_fn, outputs));
  ASSIGN_OR_RETURN(outputs["final_probabilities"], Probabilities(*estimator, prediction_images));
  return run::WriteParityOutputs(outputs);
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) { return official::run::ParityMain(argc, argv, official::resnet::Run); }
