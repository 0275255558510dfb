// Arithmetic that the kernels of cross entropy on all devices have in common.
#pragma once

#include <cstdint>

#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/rows/rows.h"
#include "utils/compute/ops/softmax/softmax.h"

namespace official::compute {

// The parameters of a SparseSoftmaxCrossEntropy or SparseSoftmaxCrossEntropyGrad node.
struct CrossEntropy {
  explicit CrossEntropy(const Node& node)
      : rows(RowsOf(node.input(sparse_softmax_cross_entropy::kLogits).shape())),
        classes(node.attrs().Has("classes") ? node.attrs().GetInt("classes") : rows.size),
        target(static_cast<float>(node.attrs().GetFloat("target"))),
        other_target(static_cast<float>(node.attrs().GetFloat("other_target"))),
        padding_label(node.attrs().Has("padding_label") ? node.attrs().GetInt("padding_label") : -1),
        entropy(node.attrs().Has("entropy") ? static_cast<float>(node.attrs().GetFloat("entropy")) : 0) {}

  // True if a row with this label is skipped: its logits are not read.
  constexpr bool IsPadding(int64_t label) const { return padding_label >= 0 && label == padding_label; }

  constexpr bool IsSmooth() const { return other_target > 0; }

  // The cross entropy of a row, given the probability's logarithm at the label and the sum of all of them.
  constexpr float Loss(float log_probability, float sum_of_log_probabilities) const {
    const float loss = -(target - other_target) * log_probability - entropy;
    return IsSmooth() ? loss - other_target * sum_of_log_probabilities : loss;
  }

  Rows rows;
  int64_t classes;        // the first elements of each row
  float target;           // probability of the label
  float other_target;     // probability of each other class
  int64_t padding_label;  // -1: none
  float entropy;          // subtracted from each loss
};

}  // namespace official::compute
