// Model: a network of one's own with compile, fit, evaluate and predict, as tf.keras.Model has them, on the devices of
// a strategy. official/examples/keras is a program that uses it. The work is train::Estimator's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/data/dataset.h"
#include "utils/distribute/strategy.h"
#include "utils/train/estimator.h"
#include "utils/train/keras/callbacks.h"
#include "utils/train/keras/fit_loop.h"
#include "utils/train/keras/network.h"
#include "utils/train/model.h"
#include "utils/train/run_lock.h"

namespace official::keras {

struct CompileOptions {
  LossFn loss;
  train::OptimizerFn optimizer = compute::GradientDescent;
  double learning_rate = 0.01;
  std::vector<Metric> metrics = {};
  std::unique_ptr<distribute::Strategy> strategy = nullptr;  // null: one CPU device
  // The directory in which Fit saves a checkpoint after each epoch, from which it continues, and in which it writes
  // events: for callbacks.BackupAndRestore and TensorBoard. Weights that a callback sets at the end of Fit are in none
  // of its checkpoints. Empty: nothing is written.
  std::string model_dir = "";
  uint64_t seed = 1;
};

struct FitOptions {
  int64_t batch_size = 32;  // global
  int64_t epochs = 1;
  std::optional<int64_t> steps_per_epoch = std::nullopt;  // unset: one pass over the data
  bool shuffle = true;
  data::DatasetPtr validation_data = nullptr;  // evaluated after each epoch
  absl::Span<const std::unique_ptr<Callback>> callbacks = {};
};

struct EvaluateOptions {
  int64_t batch_size = 32;
  std::optional<int64_t> steps = std::nullopt;  // unset: one pass
};

class Model {
 public:
  explicit Model(NetworkFn network, std::string name = "model")
      : network_(std::move(network)), name_(std::move(name)) {}

  // Errors: those of CheckMetrics, and of RunLock::Acquire and Estimator::Create for a model_dir. Once only.
  absl::Status Compile(CompileOptions options);

  // Trains for `epochs` epochs, each from the beginning of the data. The first call after Compile counts the epochs of
  // the checkpoint in model_dir as its own, so that a program that was killed ends as one that was not; but callbacks
  // see only the epochs of this process, and a learning rate that they have lowered is not kept. With several
  // workers all of them call it alike; batches are divided among them. FailedPrecondition before Compile,
  // InvalidArgument if steps_per_epoch is below 1; else errors of Estimator::Train, Evaluate and the callbacks.
  absl::StatusOr<History> Fit(const data::DatasetPtr& dataset, const FitOptions& options);
  // Returns the loss and the metrics, means over the examples. InvalidArgument if `steps` is below 1.
  absl::StatusOr<Logs> Evaluate(const data::DatasetPtr& dataset, const EvaluateOptions& options = {});
  // Returns the outputs for all examples. FailedPrecondition before Fit.
  absl::StatusOr<compute::Tensor> Predict(const data::DatasetPtr& dataset, int64_t batch_size = 32);

  // Returns the weights of the network, after Fit or within a callback: FailedPrecondition before.
  absl::StatusOr<Weights> GetWeights();
  // Writes weights on all replicas of this worker; several workers set the same. Those that are not named stay.
  // NotFound for a name, InvalidArgument for a type, that the network does not have.
  absl::Status SetWeights(const Weights& weights);
  // Writes the weights as a checkpoint of TensorFlow's format with this prefix: the chief does. Makes the directory.
  absl::Status SaveWeights(const std::string& path);
  // Sets the weights to those of such a checkpoint, which every worker reads.
  absl::Status LoadWeights(const std::string& path);

  // The learning rate of the next step.
  float learning_rate() const { return training_->learning_rate; }
  // The Estimator that trains; after Compile.
  train::Estimator& estimator() { return *estimator_; }

 private:
  absl::Status CheckCompiled(absl::string_view call) const;
  // Returns the names of the weights.
  absl::StatusOr<std::vector<std::string>> WeightNames();
  absl::StatusOr<Logs> TrainEpoch(const data::DatasetPtr& dataset, const FitOptions& options, int64_t epoch);

  const NetworkFn network_;
  const std::string name_;
  std::shared_ptr<Training> training_;  // which the Estimator's model sees, too
  bool has_metrics_ = false, is_chief_ = true;
  std::optional<data::ElementSpec> spec_;     // of the examples of Fit
  int64_t begin_epoch_ = 0, begin_step_ = 0;  // where the present call of Fit began
  std::unique_ptr<train::RunLock> lock_;
  std::unique_ptr<train::Estimator> estimator_;
};

}  // namespace official::keras
