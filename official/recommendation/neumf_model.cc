#include "official/recommendation/neumf_model.h"

#include <cmath>
#include <limits>
#include <utility>

#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"

namespace official::recommendation {
namespace {

using compute::DType;
using compute::Initializer;
using compute::Tensor;
using compute::Value;

constexpr int kTopK = 10;                 // of HR and NDCG
constexpr float kMaxLogit = 16.1180949f;  // of a probability of 1 - 1e-7

using Variables = NeuralFactorization;
using Layer = Variables::Layer;

// True if one op computes the whole network.
bool IsFused(const train::ModelInputs& in, const Variables& v) {
  return ComputesFactorization(in.dtype, static_cast<int>(v.layers.size()));
}

// True if only the rows that a batch reads have gradients; else Adam has nothing to defer.
bool HasSparseGradients(const ModelConfig& config) {
  return config.mf_regularization == 0 && (config.mlp_regularization.empty() || config.mlp_regularization[0] == 0);
}

// Returns what is subtracted from a score before its sigmoid is the probability.
float ShiftOf(Loss loss) { return loss == Loss::kSoftmax ? 1 : 0; }

// Makes the variables in upstream's order, which gives them upstream's names. Some ops take all of them at once.
Variables MakeVariables(compute::Graph& graph, const ModelConfig& config) {
  compute::Layers layers(graph, DType::kFloat32);
  const auto dense = [&](int64_t inputs, int64_t units, const compute::DenseLayer& layer) {
    const compute::DenseWeights weights = layers.BuildDense(inputs, units, layer);
    return Layer{weights.kernel, weights.bias};
  };
  Variables v;
  int64_t rating_inputs = 0;
  if (config.num_factors > 0) {
    v.gmf_user = layers.EmbeddingTable(config.num_users, config.num_factors);
    v.gmf_item = layers.EmbeddingTable(config.num_items, config.num_factors);
    rating_inputs += config.num_factors;
  }
  if (!config.layers.empty()) {
    v.mlp_user = layers.EmbeddingTable(config.num_users, config.layers[0] / 2);
    v.mlp_item = layers.EmbeddingTable(config.num_items, config.layers[0] / 2);
    rating_inputs += config.layers.back();
  }
  for (size_t i = 1; i < config.layers.size(); ++i) {
    v.layers.push_back(dense(config.layers[i - 1], config.layers[i], {}));
  }
  v.rating = dense(rating_inputs, 1, {.name = "rating", .kernel_initializer = Initializer::LecunUniform});
  return v;
}

Value CastTo(Value x, DType dtype) { return x.dtype() == dtype ? x : compute::Cast(x, dtype); }

Value Dense(Value x, const Layer& layer) {
  return compute::BiasAdd(compute::MatMul(x, CastTo(layer.kernel, x.dtype())), CastTo(layer.bias, x.dtype()));
}

// Returns the scores of pairs of a user and an item, [N] each, computed layer by layer: float32 [N, 1].
Value Scores(const Variables& v, Value users, Value items, DType dtype) {
  const auto rows = [&](Value table, Value ids) { return CastTo(compute::Gather(table, ids), dtype); };
  std::vector<Value> halves;
  if (v.gmf_user) halves.push_back(compute::Mul(rows(v.gmf_user, users), rows(v.gmf_item, items)));
  if (v.mlp_user) {
    Value x = compute::Concat({rows(v.mlp_user, users), rows(v.mlp_item, items)}, 1);
    for (const Layer& layer : v.layers) x = compute::Relu(Dense(x, layer));
    halves.push_back(x);
  }
  return CastTo(Dense(halves.size() == 1 ? halves[0] : compute::Concat(halves, 1), v.rating), DType::kFloat32);
}

// Returns the mean cross entropy of scores [N, 1] and labels int32 [N]: the softmax of the pair [shift, score] is
// [1 - p, p] with p = sigmoid(score - shift).
Value MeanLoss(Value scores, Value labels, Loss loss) {
  const auto constant = [&](float value) {
    return compute::BroadcastTo(scores.graph()->Constant(Tensor::Scalar(value)), scores.shape());
  };
  if (loss == Loss::kSigmoid) {
    scores = compute::Minimum(compute::Maximum(scores, constant(-kMaxLogit)), constant(kMaxLogit));
  }
  return compute::Mean(
      compute::SparseSoftmaxCrossEntropy(compute::Concat({constant(ShiftOf(loss)), scores}, 1), labels));
}

// Returns the loss plus, for each kind of weights, their factor times the sum of their squares.
Value Regularized(Value loss, const Variables& v, const ModelConfig& config) {
  std::vector<std::pair<double, Value>> terms;
  if (v.gmf_user) terms = {{config.mf_regularization, v.gmf_user}, {config.mf_regularization, v.gmf_item}};
  for (size_t i = 0; i < config.mlp_regularization.size(); ++i) {
    const double factor = config.mlp_regularization[i];
    if (i > 0) {
      terms.emplace_back(factor, v.layers[i - 1].kernel);
    } else {
      terms.insert(terms.end(), {{factor, v.mlp_user}, {factor, v.mlp_item}});
    }
  }
  for (const auto& [factor, weights] : terms) {
    if (factor == 0) continue;
    // L2Loss is half of the sum.
    const Value twice = loss.graph()->Constant(Tensor::Scalar(static_cast<float>(2 * factor)));
    loss = compute::Add(loss, compute::Mul(twice, compute::L2Loss({weights})));
  }
  return loss;
}

train::ModelSpec BuildEvaluation(const train::ModelInputs& in, const ModelConfig& config, const Variables& v) {
  const Value items = in.features[1];
  const int64_t users = items.shape().dim(0), candidates = items.shape().dim(1);
  Value scores;
  if (IsFused(in, v)) {
    scores = NeuralFactorizationScores(v, in.features[0], items, /*enough=*/kTopK);
  } else {
    const Value each = compute::BroadcastTo(compute::ExpandDims(in.features[0], 1), items.shape());
    scores = Scores(v, compute::Reshape(each, {-1}), compute::Reshape(items, {-1}), in.dtype);
    scores = compute::Reshape(scores, {users, candidates});
  }
  const Value held_out = compute::Slice(scores, {0, 0}, {users, 1});
  Tensor ones(DType::kInt32, {users});
  std::fill_n(ones.data<int32_t>(), users, 1);
  train::ModelSpec spec{.loss = MeanLoss(held_out, in.graph.Constant(ones), config.loss)};
  if (in.features.size() == 3) {
    const Value last = in.graph.Constant(Tensor::Scalar(-std::numeric_limits<float>::infinity()));
    scores = compute::Select(in.features[2], compute::BroadcastTo(last, scores.shape()), scores);
  }
  spec.metrics = RankingMetrics(scores, kTopK);
  return spec;
}

// The mean cross entropy of a batch.
Value TrainingLoss(const train::ModelInputs& in, const ModelConfig& config, const Variables& v) {
  Value users = in.features[0], items = in.features[1];
  if (HasSparseGradients(config)) {
    std::vector<compute::TableRows> tables;
    if (v.gmf_user) tables = {{v.gmf_user, users}, {v.gmf_item, items}};
    if (v.mlp_user) tables.insert(tables.end(), {{v.mlp_user, users}, {v.mlp_item, items}});
    const std::vector<Value> ids = compute::CatchUpRows(tables, kAdam);
    users = ids[0];
    items = ids[1];
  }
  if (IsFused(in, v)) {
    return NeuralFactorizationLoss(
        v, users, items, in.labels[0],
        {.shift = ShiftOf(config.loss), .limit = config.loss == Loss::kSigmoid ? kMaxLogit : kNoLimit});
  }
  const Value scores = Scores(v, users, items, in.dtype);
  return MeanLoss(scores, compute::Cast(in.labels[0], DType::kInt32), config.loss);
}

absl::StatusOr<train::ModelSpec> Build(const train::ModelInputs& in, const ModelConfig& config) {
  Variables v = MakeVariables(in.graph, config);
  if (IsFused(in, v)) v.dtype = in.dtype;
  if (in.mode == train::Mode::kEval) return BuildEvaluation(in, config, v);
  train::ModelSpec spec;
  if (in.mode == train::Mode::kPredict) {
    spec.predictions = {{"rating", Scores(v, in.features[0], in.features[1], in.dtype)}};
    return spec;
  }
  const Value cross_entropy = TrainingLoss(in, config, v);
  spec.loss = Regularized(cross_entropy, v, config);
  spec.logged = {{"cross_entropy", cross_entropy}};
  return spec;
}

}  // namespace

std::vector<train::MeanMetric> RankingMetrics(Value scores, int k) {
  compute::Graph& graph = *scores.graph();
  const int64_t users = scores.shape().dim(0);
  const auto constant = [&](float value) { return graph.Constant(Tensor::Scalar(value)); };
  const Value held_out = compute::Slice(scores, {0, 0}, {users, 1});
  const Value ahead = compute::Cast(compute::GreaterEqual(scores, held_out), DType::kFloat32);
  const Value rank = compute::Sub(compute::Sum(ahead, {1}), constant(1));  // from 0: without itself
  const Value hit = compute::Cast(compute::Less(rank, constant(static_cast<float>(k))), DType::kFloat32);
  const Value gain = compute::Div(constant(std::log(2.0f)), compute::Log(compute::Add(rank, constant(2))));
  const Value count = constant(static_cast<float>(users));
  return {{"HR", compute::Sum(hit), count}, {"NDCG", compute::Sum(compute::Mul(hit, gain)), count}};
}

train::Model NeuMfModel(const ModelConfig& config) {
  return {
      .name = "neumf",
      .model_fn = [config](const train::ModelInputs& in) { return Build(in, config); },
      .optimizer =
          [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
            return compute::Adam(inputs, variables, kAdam);
          },
      .learning_rate = [config](int64_t) { return config.learning_rate; },
  };
}

}  // namespace official::recommendation
