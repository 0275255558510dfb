// Neural matrix factorization, all in one op. On CPUs it is one pass over the batch: a few samples at a time go through
// gathering, product, perceptron, loss and back while they are in the caches. On GPUs the layers' products are
// cuBLASLt's, and a few kernels do everything else. Source: He et al. 2017, "Neural Collaborative Filtering", equation
// 12.
//
// The network is written six times. The CPU has one kernel for training and one for ranking, where a user's part
// serves all candidates; a third is CUDA's, a fourth StableHLO's. neumf_model.cc has it op by op: exports need
// TensorFlow's ops, and float16 and deep networks have no kernel. The test has it in doubles, to which all kernels are
// compared.
#pragma once

#include <limits>
#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::recommendation::op {

inline constexpr compute::OpName NeuralFactorizationScores("NeuralFactorizationScores");
inline constexpr compute::OpName NeuralFactorizationLoss("NeuralFactorizationLoss");

}  // namespace official::recommendation::op

namespace official::recommendation {

// The tables and layers are float32. The score of user u and item i is
//   concat(gmf_user[u] * gmf_item[i], x_n) * rating.kernel + rating.bias
// with x_0 = concat(mlp_user[u], mlp_item[i]) and x_k = relu(x_{k-1} * layers[k-1].kernel + layers[k-1].bias).
struct NeuralFactorization {
  struct Layer {
    compute::Value kernel, bias;
  };
  compute::Value gmf_user, gmf_item;  // [U, F], [I, F]; both invalid: without the product
  compute::Value mlp_user, mlp_item;  // [U, L / 2], [I, L / 2]; both invalid: without the perceptron
  std::vector<Layer> layers;          // [L, L1] and [L1], [L1, L2] and [L2], ...: at most kMaxFactorizationLayers
  Layer rating;                       // [F + last layer, 1] and [1]
  // The type of the products of all layers except `rating`: with kBFloat16 both factors are rounded to it; sums are
  // float32. On GPUs the activations between layers are rounded too.
  compute::DType dtype = compute::DType::kFloat32;
};

inline constexpr int kMaxFactorizationLayers = 8;

// True if the ops compute networks of this type and with so many `layers`. Float16 is not among the types: the scale of
// its loss would have to enter the backward pass, which is within the op.
bool ComputesFactorization(compute::DType dtype, int num_layers);

inline constexpr float kNoLimit = std::numeric_limits<float>::infinity();

struct FactorizationLoss {
  float shift = 0;         // subtracted from every score
  float limit = kNoLimit;  // scores are then clipped to [-limit, limit]
};

// The scores of users, int32 [N], and items, int32 [N, C], each with its user: float32 [N, C]. Running fails with
// InvalidArgument if a number is outside the tables. No gradient.
//
// `enough` is for ranking the first item among the others: as soon as that many other items of a user have scores that
// are not less than the first's, the scores that are not computed yet may be set to the largest finite float. 0: all
// are computed.
compute::Value NeuralFactorizationScores(const NeuralFactorization& network, compute::Value users, compute::Value items,
                                         int enough = 0);

// The mean cross entropy, a float32 scalar, of the probabilities sigmoid(score) of pairs users [N] and items [N],
// int32, and labels float32 [N] in [0, 1]. The gradients, IndexedSlices for the tables, are computed at the same time:
// their sums over the batch are made in parts (Graph::batch_parts). Running fails as above.
compute::Value NeuralFactorizationLoss(const NeuralFactorization& network, compute::Value users, compute::Value items,
                                       compute::Value labels, const FactorizationLoss& loss);

}  // namespace official::recommendation
