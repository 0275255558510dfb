// CoordinatedModel: compile, fit, evaluate and predict with parameter servers, as with a tf.keras.Model that is made in
// the scope of a ParameterServerStrategy. official/examples/keras_coordinator is a program that uses it. As in
// TensorFlow's guide "Parameter server training with ParameterServerStrategy" (Model.fit):
//
//   keras::CoordinatedModel model(network);
//   RETURN_IF_ERROR(model.Compile({.loss = keras::MeanSquaredError()}));
//   RETURN_IF_ERROR(model.AddDataset("training_data", dataset, {.batch_size = 32}));
//   return run::RunCoordinated(config, model.functions(), {}, [&](coordinator::ClusterCoordinator& coordinator) {
//     return model.Fit(coordinator, "training_data", {.epochs = 5, .steps_per_epoch = 20}).status();
//   });
//
// All tasks of the job make the same model with the same data sets, and the workers run its steps. Fit, Evaluate,
// Predict and what is about weights are for the coordinator. With another coordinator, that of a further job, a model
// begins as a new one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/dataset.h"
#include "utils/distribute/coordinator/cluster_coordinator.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/coordinator/metric.h"
#include "utils/distribute/coordinator/worker.h"
#include "utils/train/custom_loop/checkpoint_manager.h"
#include "utils/train/keras/callbacks.h"
#include "utils/train/keras/fit_loop.h"
#include "utils/train/keras/model.h"
#include "utils/train/keras/network.h"

namespace official::keras {

struct DatasetOptions {
  // The batch of a worker's step in training, which its devices divide: a multiple of their number. In Evaluate and
  // Predict each device takes a whole batch.
  int64_t batch_size = 32;
  bool shuffle = true;  // in training: each worker in an order of its own
};

struct CoordinatedFitOptions {
  int64_t epochs = 1;
  std::optional<int64_t> steps_per_epoch = std::nullopt;   // of all workers together; needed
  std::string validation_data = "";                        // a data set, evaluated after each epoch; empty: none
  std::optional<int64_t> validation_steps = std::nullopt;  // unset: one pass
  absl::Span<const std::unique_ptr<Callback>> callbacks = {};
};

class CoordinatedModel {
 public:
  explicit CoordinatedModel(NetworkFn network, std::string name = "model")
      : network_(std::move(network)), name_(std::move(name)), loss_metric_(name_ + "/loss") {}
  CoordinatedModel(const CoordinatedModel&) = delete;
  CoordinatedModel& operator=(const CoordinatedModel&) = delete;

  // Once only, and before data sets are added. Errors: those of CheckMetrics. `seed` is that of the order of the data
  // and of Dropout; CoordinatorOptions has that of the first weights. `model_dir` has checkpoints, but no events.
  // InvalidArgument for a strategy: the devices are those of the job.
  absl::Status Compile(CompileOptions options);
  // Names a data set of this program. InvalidArgument if an example has other types than those of the data sets before;
  // DataLoss if it has no examples. Fit, Evaluate and Predict return InvalidArgument if a worker has another number of
  // examples under the name than the coordinator.
  absl::Status AddDataset(const std::string& name, data::DatasetPtr dataset, const DatasetOptions& options = {});
  // The functions that all tasks of the job register. A program may add its own. The model must outlive their use.
  coordinator::Functions& functions() { return functions_; }

  // Trains for `epochs` epochs of steps_per_epoch steps, which the workers make at the same time, each on batches of
  // its own from the data set, without end. With a model_dir the first call continues from the latest checkpoint, as
  // Model::Fit. A learning rate that a callback sets stays for later calls. The loss and the metrics of an epoch are
  // means over the examples of its steps, each of the values that its worker had read; a step that was run twice, since
  // a worker was lost, counts twice. InvalidArgument if steps_per_epoch is unset, or it or validation_steps is below 1;
  // FailedPrecondition before Compile; NotFound for a data set; else errors of the steps, of the job and of the
  // callbacks.
  absl::StatusOr<History> Fit(coordinator::ClusterCoordinator& coordinator, const std::string& dataset,
                              const CoordinatedFitOptions& options);
  // Returns the loss and the metrics, the means over all examples of one pass over the data set, or of the first
  // `steps` batches. Each batch counts once, whatever becomes of its worker. InvalidArgument if `steps` is below 1.
  absl::StatusOr<Logs> Evaluate(coordinator::ClusterCoordinator& coordinator, const std::string& dataset,
                                std::optional<int64_t> steps = std::nullopt);
  // Returns the outputs for all examples.
  absl::StatusOr<compute::Tensor> Predict(coordinator::ClusterCoordinator& coordinator, const std::string& dataset);

  // As those of Model.
  absl::StatusOr<Weights> GetWeights(coordinator::ClusterCoordinator& coordinator) const;
  absl::Status SetWeights(coordinator::ClusterCoordinator& coordinator, const Weights& weights);
  absl::Status SaveWeights(coordinator::ClusterCoordinator& coordinator, const std::string& path) const;
  absl::Status LoadWeights(coordinator::ClusterCoordinator& coordinator, const std::string& path);

 private:
  using Tensors = std::vector<compute::Tensor>;
  struct NamedDataset {
    data::DatasetPtr dataset;
    DatasetOptions options;
    int64_t num_batches() const;
  };

  // The names of a step or function of this model, which may be one of a data set.
  std::string NameOf(absl::string_view step, absl::string_view dataset = "") const;
  absl::Status CheckCompiled(absl::string_view call) const;
  absl::StatusOr<const NamedDataset*> FindDataset(const std::string& name) const;
  // On a worker: InvalidArgument if the data set has another number of examples than that of the coordinator.
  absl::Status CheckSize(const std::string& dataset, int64_t of_coordinator) const;
  // The features and labels of a batch are the first inputs of each step, but for that which predicts.
  train::ModelInputs InputsOf(compute::Graph& graph, train::Mode mode, absl::Span<const compute::Value> inputs) const;
  std::vector<compute::TensorType> BatchTypes(train::Mode mode, int64_t batch_size) const;
  void RegisterSteps();

  // Steps: what replicas compute.
  absl::StatusOr<std::vector<compute::Value>> TrainStep(distribute::ReplicaContext& context,
                                                        absl::Span<const compute::Value> inputs) const;
  absl::StatusOr<std::vector<compute::Value>> EvalStep(distribute::ReplicaContext& context,
                                                       absl::Span<const compute::Value> inputs) const;
  absl::StatusOr<std::vector<compute::Value>> PredictStep(distribute::ReplicaContext& context,
                                                          absl::Span<const compute::Value> inputs) const;
  // Makes a step of the training, with what the coordinator has sent: the learning rate, the random state and the
  // number of its examples.
  absl::StatusOr<Tensors> RunTraining(coordinator::WorkerContext& context, const std::string& dataset,
                                      absl::Span<const compute::Tensor> state) const;
  // Runs a step on so many batches of a data set from the first one on, and returns the results of all.
  absl::StatusOr<Tensors> RunOnBatches(coordinator::WorkerContext& context, const NamedDataset& dataset,
                                       train::Mode mode, int64_t first, int64_t count) const;

  // The coordinator's part.

  // Forgets what belongs to another coordinator than this one.
  void Attend(const coordinator::ClusterCoordinator& coordinator);
  // Restores the latest checkpoint in model_dir, and keeps its lock.
  absl::Status OpenCheckpoints(coordinator::ClusterCoordinator& coordinator);
  absl::StatusOr<Logs> TrainEpoch(coordinator::ClusterCoordinator& coordinator, const std::string& dataset,
                                  int64_t steps);
  // Lets workers run a step on the first `count` batches of a data set, and returns the results of each.
  absl::StatusOr<std::vector<Tensors>> RunOnWorkers(coordinator::ClusterCoordinator& coordinator, train::Mode mode,
                                                    const std::string& dataset, int64_t count);
  // Makes the weights, if they are not there yet, and returns their names.
  absl::StatusOr<std::vector<std::string>> MakeWeights(coordinator::ClusterCoordinator& coordinator) const;

  const NetworkFn network_;
  const std::string name_;
  const coordinator::MeanMetric loss_metric_;
  std::vector<coordinator::MeanMetric> metrics_;  // in training, in the order of the options
  std::optional<CompileOptions> options_;
  coordinator::Functions functions_;
  std::optional<data::ElementSpec> spec_;  // of the examples
  std::map<std::string, NamedDataset> datasets_;

  // These are the coordinator's.
  Training training_ = {.learning_rate = 0};
  int64_t coordinator_ = 0;     // the id of that to which what follows belongs; 0: none yet
  std::set<std::string> made_;  // the data sets that workers have
  int64_t global_step_ = 0, begin_step_ = 0;
  std::unique_ptr<train::RunLock> lock_;
  std::unique_ptr<train::CheckpointManager> checkpoints_;
};

}  // namespace official::keras
