// The interface of a model for the Estimator: a function that builds its graph in one of three modes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/data/batch.h"
#include "utils/train/eval_samples.h"

namespace official::train {

enum class Mode { kTrain, kEval, kPredict };

struct ModelInputs {
  compute::Graph& graph;
  Mode mode;
  compute::DType dtype;                  // type of the computation, --dtype; variables stay float32
  std::vector<compute::Value> features;  // of a share, see BatchShare, in the types of the data: cast them to dtype
  std::vector<compute::Value> labels;    // empty in kPredict
  compute::Value random_state;           // for Dropout; kTrain only
};

struct NamedValue {
  std::string name;
  compute::Value value;
  std::string summary_tag = "";  // tag in event files; empty: the name
};

// A mean over all examples since a train call or an evaluation began: the sum of `total` over the batches, divided by
// that of `count`. Both are float32 scalars of one batch.
struct MeanMetric {
  std::string name;
  compute::Value total;
  compute::Value count;
  std::string summary_tag = "";  // tag in event files; empty: the name
};

struct ModelSpec {
  compute::Value loss;                       // kTrain, kEval: scalar, computed in float32, the mean over the batch
  std::vector<NamedValue> predictions = {};  // kPredict: [batch, ...]; kEval: the input of host_metrics, eval_samples
  std::vector<MeanMetric> metrics = {};      // kTrain, kEval
  std::vector<NamedValue> logged = {};       // kTrain: float32 scalars that hooks can show, e.g. cross_entropy
  // kTrain: updated with each step. With several replicas the values are averaged over them first, each weighted by its
  // replica's share of the examples: the mean over the replicas, which TensorFlow's Mirrored saves.
  std::vector<compute::MovingAverage> moving_averages = {};
  double moving_average_momentum = 0.99;
};

using ModelFn = std::function<absl::StatusOr<ModelSpec>(const ModelInputs&)>;

// Adds the nodes of one update of all trainable variables.
using OptimizerFn = std::function<std::vector<compute::Node*>(const compute::UpdateInputs& inputs,
                                                              absl::Span<const compute::VariableGradient> variables)>;

// Returns the learning rate of the update that follows `step` finished ones.
using LearningRateFn = std::function<double(int64_t step)>;

// The examples of a batch that one replica computes, as its program takes them. Programs are made for the types of
// these tensors.
struct BatchShare {
  compute::Share examples{0, 0};   // part of the batch
  data::Tensors features, labels;  // without examples: those of one example of zeros
  // The weight of the replica's means in those of the whole batch: the number of its examples, or of what else they are
  // means of.
  int64_t weight = 0;
};
// With `parts_alike` above 0 the tensors have the shapes of the largest of so many parts of the batch (ShareOf), where
// padding can make them.
using ShareFn =
    std::function<BatchShare(Mode mode, const data::Batch& batch, const compute::Share& examples, int parts_alike)>;

// Returns rows [begin, end) of each tensor, without copying; their number is the weight. Nothing is padded.
BatchShare ShareOfRows(Mode mode, const data::Batch& batch, const compute::Share& examples, int parts_alike = 0);

// The results of a replica for its share of a batch in an evaluation.
struct ShareResults {
  data::Tensors labels;       // of the share
  data::Tensors predictions;  // ModelSpec::predictions
};
// A mean over an evaluation: the sum of `total` over the batches, divided by that of `count`.
struct HostMetric {
  std::string name;
  double total, count;
};
// Returns the metrics of one batch from its shares that are not empty, with the same names for all batches.
using HostMetricsFn = std::function<std::vector<HostMetric>(absl::Span<const ShareResults> shares)>;

// Returns the first examples of a share, at most `max_samples`, with what the model made of them: `predictions` are
// ModelSpec::predictions.
using EvalSamplesFn =
    std::function<EvalSamples(const BatchShare& share, const data::Tensors& predictions, int64_t max_samples)>;

// What a run adds to the update of each step: the options of TrainOptions, which the Estimator puts here.
struct UpdateOptions {
  // The gradients, as one vector, are scaled by clip_norm / max(norm, clip_norm): tf.clip_by_global_norm.
  std::optional<double> clip_norm = {};
  // Each element of a gradient is clipped into [-clip_value, clip_value]: tf.clip_by_value.
  std::optional<double> clip_value = {};
  // Each trainable variable has an average, average -= (1 - ema_decay) * (average - variable) after each update, in one
  // with kAverageSuffix behind its name: tf.train.ExponentialMovingAverage without num_updates.
  std::optional<double> ema_decay = {};
};

struct Model {
  std::string name;  // "mnist"
  ModelFn model_fn;
  OptimizerFn optimizer;
  LearningRateFn learning_rate;
  std::string learning_rate_tag = "learning_rate";     // tag in event files
  std::string learning_rate_flag = "--learning_rate";  // what a user lowers when the training diverges
  // True if the model sums over replicas while it computes. A replica without a share of a batch then computes one
  // example of zeros, with weight 0.
  bool synchronizes = false;
  // The feature, float32 [height, width, channels], that event files show of the first examples of a batch.
  std::optional<size_t> image_feature = {};
  ShareFn share = nullptr;  // unset: ShareOfRows
  // Metrics of an evaluation in addition to ModelSpec::metrics, computed on the host.
  HostMetricsFn host_metrics = nullptr;
  // Chooses what event files show of the first examples of each evaluation; unset: nothing.
  EvalSamplesFn eval_samples = nullptr;
  // The tag in event files of the norm of all gradients as one vector, which hooks know as gradient_norm; empty: none.
  // With UpdateOptions::clip_norm it is always shown, as gradient_norm without a tag.
  std::string gradient_norm_tag = "";
  UpdateOptions update = {};
};

}  // namespace official::train
