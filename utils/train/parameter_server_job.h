// For tests: jobs with parameter servers whose tasks are threads, and models for them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/distribute/exchange.h"
#include "utils/train/estimator.h"

namespace official::train {

// ---- Data and models ----

constexpr int kExamples = 24, kBatch = 4;

// Returns epochs of the examples, before `end_epoch`; the label of example `bad` is NaN.
InputFn Examples(int bad = -1, int64_t end_epoch = data::kEndless, int batch_size = kBatch);

// Returns the types of an example: features float32 [3], label float32 [].
data::ElementSpec SpecOfExample();

// Fits x * w + bias with dropout to the labels, and keeps the moving average of its error.
absl::StatusOr<ModelSpec> Regression(const ModelInputs& in);
Model RegressionModel(OptimizerFn optimizer = compute::GradientDescent);

// Returns a model whose gradients do not depend on its variables, so that it does not matter in which order they are
// applied. All numbers in it have few bits: the sums are exact.
Model LinearModel();

// Returns a model with a loss of rows of two tables, one of which is read at two places; with `whole`, also of all of
// the first table.
constexpr int kUsers = 20, kItems = 17, kUserSize = 3, kItemSize = 5;
Model EmbeddingModel(OptimizerFn optimizer, bool whole = false);

// Returns gradient descent, Momentum and Adam for 0, 1 and 2.
OptimizerFn Optimizer(int kind);

// ---- Runs ----

// Returns the default configuration with a model_dir of its own, which does not exist.
EstimatorConfig NewConfig(int micro_batches = 1);

// Returns the bytes of the tensors in the checkpoint of a step.
std::string Checkpoint(const std::string& model_dir, int64_t step);

// Returns the values of the variables in a checkpoint, without the state of the run.
std::map<std::string, std::string> Variables(const std::string& model_dir, int64_t step);

// Trains in one process on so many CPU devices, to step `steps`.
absl::Status TrainAlone(const Model& model, const EstimatorConfig& config, int64_t steps, int num_replicas = 1,
                        const InputFn& input = Examples());

// The tasks of a job.
struct Tasks {
  int num_workers = 1, num_servers = 1;
  int num_replicas = 1;             // of each worker
  std::string device_kind = "cpu";  // of those
};

// How they have ended.
struct Ends {
  std::vector<absl::Status> workers, servers;

  // Returns the first error, one that is not Cancelled if there is such a one.
  absl::Status status() const;
};

// Runs one task of a job, which trains with `config` or serves. Of `input`, which is that of all, a worker takes its
// batches.
absl::Status RunTask(distribute::Exchange& exchange, const Model& model, const EstimatorConfig& config,
                     const Tasks& tasks, int64_t steps, const InputFn& input);

// Trains with `config` in a job of these tasks.
Ends TrainWithServers(const Model& model, const EstimatorConfig& config, const Tasks& tasks, int64_t steps,
                      const InputFn& input = Examples());

}  // namespace official::train
