// What the ops of neural factorization and their kernels know of the inputs.
#pragma once

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/ops/neural_factorization/neural_factorization.h"

namespace official::compute {

// Inputs are numbered as the node's.
struct FactorizationGeometry {
  int64_t num_users = 0, num_items = 0;
  int64_t factors = 0;          // 0: without product
  std::vector<int64_t> layers;  // L, L1, L2, ...; empty: without perceptron
  int gmf = 0, mlp = 0;         // the tables of users; those of items follow
  int rating = 0;               // its kernel; the bias follows

  // Of layer k; the bias follows.
  int kernel(size_t k) const { return mlp + 2 + 2 * static_cast<int>(k); }
  bool IsTable(int input) const {
    return (factors > 0 && (input == gmf || input == gmf + 1)) ||
           (!layers.empty() && (input == mlp || input == mlp + 1));
  }
  bool IsOfUsers(int input) const { return input == gmf || input == mlp; }
};

// Tables and layers are the inputs from `first` on; their shapes need not fit.
inline FactorizationGeometry GeometryOf(const Attrs& attrs, absl::Span<const Value> inputs, int first) {
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

// InvalidArgument if one is outside the tables.
inline absl::Status CheckFactorizationIds(const FactorizationGeometry& g, const int32_t* users, int64_t num_users,
                                          const int32_t* items, int64_t num_items) {
  const auto check = [](absl::string_view what, const int32_t* ids, int64_t n, int64_t limit) {
    uint32_t largest = 0;  // negative numbers are larger than all others
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<uint32_t>(ids[i]));
    if (n == 0 || largest < limit) return absl::OkStatus();
    const int64_t bad = std::find_if(ids, ids + n, [&](int32_t id) { return id < 0 || id >= limit; }) - ids;
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", ids[bad], " at position ", bad, " is outside [0, ", limit, ")"));
  };
  RETURN_IF_ERROR(check("user", users, num_users, g.num_users));
  return check("item", items, num_items, g.num_items);
}

}  // namespace official::compute
