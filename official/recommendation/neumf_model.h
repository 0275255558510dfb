// Neural matrix factorization: predicts which items users choose, from embeddings of users and items. Sources: He et
// al. 2017, "Neural Collaborative Filtering"; tensorflow/models official/recommendation/neumf_model.py at d64bcfe3.
#pragma once

#include <cstdint>
#include <vector>

#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/train/model.h"

namespace official::recommendation {

// The probability that a score x gives to the user having chosen the item. Training minimizes the cross entropy.
enum class Loss {
  kSoftmax,  // sigmoid(x - 1): the softmax of the pair [1, x], as upstream since July 2018
  kSigmoid,  // sigmoid(x), kept in [1e-7, 1 - 1e-7]: upstream's binary cross entropy until then
};

struct ModelConfig {
  int64_t num_users = 0, num_items = 0;
  // Size of the embeddings whose product is generalized matrix factorization (GMF); 0 leaves this half out.
  int64_t num_factors = 8;
  // Sizes of the multilayer perceptron: first of its input, an embedding of the user and one of the item of half that
  // size each, then of each layer. Empty: this half is left out. There must be at least one half.
  std::vector<int64_t> layers = {64, 32, 16, 8};
  Loss loss = Loss::kSoftmax;
  // Factors of the sums of squares that are added to the loss: of GMF's embeddings; of the perceptron's, and of each of
  // its kernels (as many as `layers`, or none). Upstream has the flags, but at d64bcfe3 they have no effect.
  double mf_regularization = 0;
  std::vector<double> mlp_regularization = {};
  double learning_rate = 0.001;  // Adam's
};

inline const compute::AdamParams kAdam = {};

// Variables and their initial values are upstream's: embedding/embeddings (GMF user), embedding_1 (GMF item),
// embedding_2 and embedding_3 (perceptron), dense/kernel, dense/bias, dense_1, ..., rating/kernel, rating/bias.
//   Training     features user_id, item_id, int32 [B]; labels float32 [B], 1 or 0.
//   Evaluation   features user_id int32 [U]; item_id int32 [U, C], the held-out item first; optionally repeated, bool
//                [U, C], true for candidates that are left out of the ranking. HR and NDCG are those of the first 10 of
//                the ranking, in which the held-out item comes after its equals; the loss is that of the held-out
//                items.
//   Prediction   features user_id, item_id, int32 [N]; rating float32 [N, 1], the scores.
train::Model NeuMfModel(const ModelConfig& config);

// Returns HR@k and NDCG@k of users with scores float32 [U, C], the held-out item's in column 0: the share of users for
// whom that item is among the first k, and the mean of log(2) / log(rank + 2), its rank counted from 0, or of 0 where
// it is not. It comes after its equals; candidates that are left out have -infinity.
std::vector<train::MeanMetric> RankingMetrics(compute::Value scores, int k);

}  // namespace official::recommendation
