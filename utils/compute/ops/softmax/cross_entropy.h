// What the kernels of cross entropy on all devices share.
#pragma once

#include <cstdint>

#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {

// Of a SparseSoftmaxCrossEntropy or SparseSoftmaxCrossEntropyGrad node. The target is `high` at the label and `low`
// elsewhere.
struct CrossEntropy {
  explicit CrossEntropy(const Node& node)
      : rows(RowsOf(node.input(0).shape())),
        smoothing(static_cast<float>(node.attrs().GetFloat("label_smoothing"))),
        low(smoothing / static_cast<float>(rows.size)),
        high(1 - smoothing + low),
        padding_label(node.attrs().Has("padding_label") ? node.attrs().GetInt("padding_label") : -1),
        entropy(node.attrs().Has("entropy") ? static_cast<float>(node.attrs().GetFloat("entropy")) : 0) {}

  // A row that is left out: its logits are not read.
  constexpr bool IsPadding(int64_t label) const { return padding_label >= 0 && label == padding_label; }

  Rows rows;
  float smoothing, low, high;
  int64_t padding_label;  // -1: none
  float entropy;          // subtracted from each loss
};

}  // namespace official::compute
