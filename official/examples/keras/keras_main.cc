// keras_main: the example of a Keras model of TensorFlow 1.12's document on distribution
// (tensorflow/contrib/distribute/README.md). A dense layer learns that 1 is 1, on one CPU device or several logical
// ones, and on those of several workers if TF_CONFIG or another launcher describes them.

#include <iostream>
#include <memory>
#include <utility>

#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/data/dataset.h"
#include "utils/distribute/strategy.h"
#include "utils/flags/cluster.h"
#include "utils/flags/console.h"
#include "utils/flags/shared_groups.h"
#include "utils/run/config.h"
#include "utils/run/standalone/main.h"
#include "utils/run/strategy.h"
#include "utils/train/keras/model.h"

namespace official::examples {
namespace {

using compute::Tensor;

// The example 1, with the label 1, so many times.
data::DatasetPtr Ones(int64_t count) {
  Tensor ones(compute::DType::kFloat32, {count, 1});
  for (int64_t i = 0; i < count; ++i) ones.data<float>()[i] = 1;
  return data::TensorSlices({{"", ones}}, {{"", ones}});
}

absl::Status Train(std::unique_ptr<distribute::Strategy> distribution) {
  keras::Model model(
      [](compute::Layers& layers, const train::ModelInputs& in) { return layers.Dense(in.features[0], /*units=*/1); });
  RETURN_IF_ERROR(model.Compile({.loss = keras::MeanSquaredError(),
                                 .optimizer = compute::GradientDescent,
                                 .learning_rate = 0.2,
                                 .strategy = std::move(distribution)}));
  ASSIGN_OR_RETURN(const keras::History history,
                   model.Fit(Ones(10000), {.batch_size = 10, .epochs = 5, .steps_per_epoch = 10}));
  for (size_t i = 0; i < history.epochs.size(); ++i) {
    std::cout << "epoch " << history.epochs[i] << " " << history.logs[i][0].first << " " << history.logs[i][0].second
              << "\n";
  }
  ASSIGN_OR_RETURN(const keras::Logs evaluated, model.Evaluate(Ones(100), {.batch_size = 10}));
  ASSIGN_OR_RETURN(const Tensor predicted, model.Predict(Ones(1)));
  std::cout << "evaluated loss " << evaluated[0].second << "\npredicted " << predicted.data<float>()[0] << "\n";
  return absl::OkStatus();
}

flags::Program Program() {
  return {
      .name = "keras_main",
      .description = "Trains the Keras model of one dense layer of TensorFlow's document on distribution.",
      .examples = {{"keras_main --num_cpu_devices=2", "train on two logical devices"}},
      .flags = {.name = "keras",
                .flags = {flags::SharedFlag("num_gpus"), flags::SharedFlag("num_cpu_devices"), flags::LogFormatFlag()}},
      .shared_flags = false,
      .more_flags = {flags::ConnectionFlags({"workers", "collective_communication"})}};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config config = run::ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  ASSIGN_OR_RETURN(const auto connected, run::ConnectedStrategy::Create(config));
  const absl::Status trained = Train(connected->TakeStrategy());
  connected->Finish(trained);
  return trained;
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::examples::Program(), official::examples::Main);
}
