// keras_coordinator_main: Model.fit with parameter servers, as in TensorFlow's guide "Parameter server training with
// ParameterServerStrategy": the network and the data of coordinator_main, compiled and fitted as a Keras model. The
// chief prints the loss and the accuracies of each epoch, and continues from its last checkpoint when the job is
// started again. Without TF_CONFIG, one process is all tasks.

#include <iostream>

#include "official/examples/heroes/heroes.h"
#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/flags/cluster.h"
#include "utils/flags/console.h"
#include "utils/flags/shared_groups.h"
#include "utils/run/config.h"
#include "utils/run/coordinator.h"
#include "utils/run/standalone/main.h"
#include "utils/train/keras/coordinated_model.h"

namespace official::examples {
namespace {

using compute::Value;

// The logits [batch, 2] of heroes [batch, 3].
Value Network(compute::Layers& layers, const train::ModelInputs& in) {
  const Value embedded = compute::Gather(layers.EmbeddingTable(kNumHeroes, 16), in.features[0]);
  return layers.Dense(compute::Mean(embedded, {1}), 2);
}

// What all tasks make.
absl::Status Compile(keras::CoordinatedModel& model, const std::string& model_dir) {
  RETURN_IF_ERROR(model.Compile({.loss = keras::SparseCategoricalCrossentropy(),
                                 .optimizer = [](const auto& in, const auto& of) { return compute::Adam(in, of, {}); },
                                 .learning_rate = 0.02,
                                 .metrics = {keras::SparseCategoricalAccuracy()},
                                 .model_dir = model_dir}));
  RETURN_IF_ERROR(model.AddDataset("training_data", Heroes(200, /*seed=*/1), {.batch_size = 32}));
  return model.AddDataset("eval_data", Heroes(128, /*seed=*/2), {.batch_size = 32});
}

// What the chief does.
absl::Status Train(keras::CoordinatedModel& model, int64_t epochs, coordinator::ClusterCoordinator& coordinator) {
  ASSIGN_OR_RETURN(const keras::History history,
                   model.Fit(coordinator, "training_data",
                             {.epochs = epochs, .steps_per_epoch = 20, .validation_data = "eval_data"}));
  for (size_t i = 0; i < history.epochs.size(); ++i) {
    std::cout << "epoch " << history.epochs[i] + 1;
    for (const auto& [name, value] : history.logs[i]) std::cout << " " << name << " " << value;
    std::cout << "\n";
  }
  ASSIGN_OR_RETURN(const keras::Logs evaluated, model.Evaluate(coordinator, "eval_data"));
  std::cout << "evaluated loss " << evaluated[0].second << " accuracy " << evaluated[1].second << "\n";
  return absl::OkStatus();
}

flags::Program Program() {
  return {.name = "keras_coordinator_main",
          .description = "Trains a Keras model with parameter servers, whose workers run the steps of its fit.",
          .examples = {{"keras_coordinator_main --model_dir=run1", "train in one process, with checkpoints in run1"}},
          .defaults = {{"model_dir", ""}, {"train_epochs", "5"}},
          .help = {{"model_dir", "Directory of the checkpoints; empty: none are made. Only the chief uses it."}},
          .flags = {.name = "keras_coordinator",
                    .flags = {run::GpusOfWorkersFlag(),
                              flags::SharedFlag("num_cpu_devices"),
                              {.name = "train_epochs", .range = flags::AtLeast(1), .per_worker = true},
                              {.name = "model_dir", .per_worker = true},
                              flags::LogFormatFlag()}},
          .shared_flags = false,
          .more_flags = {flags::ConnectionFlags()}};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config config = run::ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  keras::CoordinatedModel model(Network);
  RETURN_IF_ERROR(Compile(model, config.train.model_dir));
  return run::RunCoordinated(config, model.functions(), {}, [&](coordinator::ClusterCoordinator& coordinator) {
    return Train(model, config.base.train_epochs, coordinator);
  });
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::examples::Program(), official::examples::Main);
}
