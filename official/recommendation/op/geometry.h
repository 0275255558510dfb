// Geometry that the ops of neural factorization and their kernels have in common.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/graph/graph.h"

namespace official::recommendation {

// The sizes and the places of the inputs, which are numbered as the node's.
struct FactorizationGeometry {
  int64_t num_users = 0, num_items = 0;
  int64_t factors = 0;          // 0: without product
  std::vector<int64_t> layers;  // L, L1, L2, ...; empty: without perceptron
  int gmf = 0, mlp = 0;         // the tables of users; those of items are next
  int rating = 0;               // its kernel; the bias is next

  // The input number of layer k's kernel; the bias is next.
  int kernel(size_t k) const { return mlp + 2 + 2 * static_cast<int>(k); }
  bool IsTable(int input) const {
    return (factors > 0 && (input == gmf || input == gmf + 1)) ||
           (!layers.empty() && (input == mlp || input == mlp + 1));
  }
  bool IsOfUsers(int input) const { return input == gmf || input == mlp; }
};

// Returns the geometry for tables and layers that are the inputs from `first` on; their shapes need not fit.
inline FactorizationGeometry GeometryOf(const compute::Attrs& attrs, absl::Span<const compute::Value> inputs,
                                        int first) {
  FactorizationGeometry g;
  const int end = static_cast<int>(inputs.size());
  const auto dim = [&](int input, int d) {
    return input < end && d < inputs[input].shape().rank() ? inputs[input].shape().dim(d) : 0;
  };
  int next = first;
  g.num_users = dim(first, 0);
  g.num_items = dim(first + 1, 0);
  g.gmf = g.mlp = -2;
  if (attrs.GetBool("gmf")) {
    g.gmf = next;
    g.factors = dim(next, 1);
    next += 2;
  }
  if (attrs.GetBool("mlp")) {
    g.mlp = next;
    g.layers = {2 * dim(next, 1)};
    for (next += 2; next + 2 < end; next += 2) g.layers.push_back(dim(next, 1));
  }
  g.rating = next;
  return g;
}

}  // namespace official::recommendation
