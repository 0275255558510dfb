// For tests: trains a ResNet on one fixed batch, from the checkpoint in --model_dir, and writes what TensorFlow's
// outcome is compared with. official/resnet/interop/parity_case.py describes the files.

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "official/resnet/resnet_model.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/distribute/strategy.h"
#include "utils/logs/loss_recorder.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/estimator.h"

ABSL_FLAG(std::string, dataset_name, "cifar10", "cifar10 or imagenet.");
ABSL_FLAG(int, resnet_size, 8, "Layers.");
ABSL_FLAG(int, resnet_version, 1, "1 or 2.");
ABSL_FLAG(double, learning_rate, 0.1, "Of all steps.");
ABSL_FLAG(int64_t, steps, 1, "Global step to train to.");
ABSL_FLAG(std::string, inputs, "", "Bundle with the batch and the images to predict.");
ABSL_FLAG(std::string, model_dir, "", "Holds the checkpoint to start from; the last one and the outputs go there.");

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
  const std::string model_dir = absl::GetFlag(FLAGS_model_dir);
  ASSIGN_OR_RETURN(const auto inputs, train::BundleReader::Open(absl::GetFlag(FLAGS_inputs)));
  ASSIGN_OR_RETURN(const Tensor images, inputs->Read("images"));
  ASSIGN_OR_RETURN(const Tensor labels, inputs->Read("labels"));
  ASSIGN_OR_RETURN(const Tensor prediction_images, inputs->Read("prediction_images"));

  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create({}));
  train::EstimatorConfig config;
  config.model_dir = model_dir;
  config.resume = train::Resume::kMust;
  ASSIGN_OR_RETURN(const auto estimator,
                   train::Estimator::Create(ModelFromFlags(), std::move(config), std::move(strategy)));
  ASSIGN_OR_RETURN(const Tensor initial, Probabilities(*estimator, prediction_images));

  const data::DatasetPtr batch = data::TensorSlices({{"", images}}, {{"", labels}});
  const auto input_fn = [&](data::Position start) {
    return data::Batches(batch, {.batch_size = images.shape().dim(0), .start = start, .end_epoch = data::kEndless});
  };
  std::vector<float> losses;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<logs::LossRecorder<float>>(losses));
  RETURN_IF_ERROR(estimator->Train(input_fn, absl::GetFlag(FLAGS_steps), hooks));
  ASSIGN_OR_RETURN(const Tensor final, Probabilities(*estimator, prediction_images));

  ASSIGN_OR_RETURN(const auto outputs, train::BundleWriter::Create(absl::StrCat(model_dir, "/outputs")));
  RETURN_IF_ERROR(outputs->Add("final_probabilities", final));
  RETURN_IF_ERROR(outputs->Add("initial_probabilities", initial));
  RETURN_IF_ERROR(
      outputs->Add("losses", Tensor::Of<float>({static_cast<int64_t>(losses.size())}, absl::MakeConstSpan(losses))));
  return outputs->Finish();
}

}  // namespace
}  // namespace official::resnet

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = official::resnet::Run();
  if (!status.ok()) std::cerr << "parity_main: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
