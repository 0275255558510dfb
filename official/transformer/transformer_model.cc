#include "official/transformer/transformer_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "official/transformer/network.h"
#include "official/transformer/packing.h"
#include "official/transformer/sentence_metrics.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;

Value Float(Value x) { return compute::Cast(x, DType::kFloat32); }

// Means over the targets that are not padding, of which `best` are the likeliest ids.
std::vector<train::MeanMetric> Metrics(Value logits, Value best, Value targets, Value counted, Value count) {
  const auto k = static_cast<int>(best.shape().dim(1));
  const Value same = Float(compute::Equal(best, compute::BroadcastTo(compute::ExpandDims(targets, 1), best.shape())));
  const auto hits = [&](int among) {
    const Value among_best = compute::Slice(same, {0, 0}, {same.shape().dim(0), among});
    return compute::Sum(compute::Mul(compute::Sum(among_best, {1}), counted));
  };
  const Value log_likelihood = compute::Neg(compute::Sum(compute::PaddedCrossEntropy(logits, targets, 0)));
  return {{"metrics/accuracy", hits(1), count},
          {"metrics/accuracy_top5", hits(k), count},
          {"metrics/neg_log_perplexity", log_likelihood, count}};
}

absl::StatusOr<train::ModelSpec> Build(const train::ModelInputs& in, const ModelParams& params) {
  if (in.mode == train::Mode::kPredict) return absl::UnimplementedError("a translation is not one pass over a batch");
  const Value targets = in.labels[0], logits = Logits(in, params);
  const Value losses = compute::PaddedCrossEntropy(logits, targets, params.label_smoothing);
  const Value zero = in.graph.Constant(Tensor::Scalar<int32_t>(0));
  const Value counted = Float(compute::NotEqual(targets, compute::BroadcastTo(zero, targets.shape())));
  const Value count = compute::Sum(counted);
  train::ModelSpec spec{.loss = compute::Div(compute::Sum(losses), count)};
  if (in.mode == train::Mode::kTrain) {
    spec.logged = {{"cross_entropy_loss", spec.loss, "minibatch_loss"}};
  } else {
    const Value best = compute::TopK(logits, static_cast<int>(std::min<int64_t>(5, logits.shape().dim(1)))).second;
    spec.metrics = Metrics(logits, best, targets, counted, count);
    spec.predictions = {{"best", best}};
  }
  return spec;
}

}  // namespace

Value Logits(const train::ModelInputs& in, const ModelParams& params) {
  Network network({.graph = in.graph,
                   .dtype = in.dtype,
                   .max_length = params.max_length,
                   .training = in.mode == train::Mode::kTrain,
                   .random_state = in.random_state},
                  params);
  return network.Decode({in.labels[0], in.labels[1]}, network.Encode({in.features[0], in.features[1]}));
}

// In float32, operation by operation, for the bits that TensorFlow's graph computes.
train::LearningRateFn LearningRate(const ModelParams& params) {
  return [rate = static_cast<float>(params.learning_rate / std::sqrt(static_cast<double>(params.hidden_size))),
          warmup = static_cast<float>(params.learning_rate_warmup_steps)](int64_t step) {
    const auto now = static_cast<float>(step);
    return rate * std::min(1.0f, now / warmup) * (1.0f / std::sqrt(std::max(now, warmup)));
  };
}

train::Model TransformerModel(const ModelParams& params) {
  train::Model model;
  model.name = "transformer";
  model.model_fn = [params](const train::ModelInputs& in) { return Build(in, params); };
  model.optimizer = [params](const compute::UpdateInputs& inputs,
                             absl::Span<const compute::VariableGradient> variables) {
    // Upstream's LazyAdam gets a gradient for every row of the embedding from the logits: it is dense.
    return compute::Adam(inputs, variables,
                         {.beta1 = params.optimizer_adam_beta1,
                          .beta2 = params.optimizer_adam_beta2,
                          .epsilon = params.optimizer_adam_epsilon,
                          .scope = "model/get_train_op/"});
  };
  model.learning_rate = LearningRate(params);
  model.learning_rate_flag = "--params_override=learning_rate=...";
  model.share = PackedShare;
  model.host_metrics = SentenceMetrics;
  model.gradient_norm_tag = "global_norm/gradient_norm";
  return model;
}

}  // namespace official::transformer
