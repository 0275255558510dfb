#include "utils/train/largest_values.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/misc/size_text.h"

namespace official::train {
namespace {

using compute::Node;
using compute::TensorType;

// A type as the number of examples goes on from `small` by `factor` times the way to `larger`: sizes are 1 per example,
// or some of them, or the same for any number.
std::optional<TensorType> Extrapolated(const TensorType& small, const TensorType& larger, double factor) {
  if (small.dtype != larger.dtype || small.shape.rank() != larger.shape.rank()) return std::nullopt;
  std::vector<int64_t> dims;
  for (int i = 0; i < small.shape.rank(); ++i) {
    const auto growth = static_cast<double>(larger.shape.dim(i) - small.shape.dim(i));
    dims.push_back(small.shape.dim(i) + std::llround(factor * growth));
  }
  return TensorType{small.dtype, compute::Shape(dims)};
}

struct LargeValue {
  TensorType type;
  std::string of;
};

// True if both graphs are of one network, for different numbers of examples.
bool AreAlike(const compute::Graph& a, const compute::Graph& b) {
  return std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(), b.nodes().end(),
                    [](const auto& node, const auto& same) {
                      return node->op().name == same->op().name && node->num_outputs() == same->num_outputs();
                    });
}

}  // namespace

int64_t GrowthOfLargestValue(const compute::Graph& small, const compute::Graph& larger) {
  if (!AreAlike(small, larger)) return 0;
  int64_t most = 0;
  for (size_t n = 0; n < small.nodes().size(); ++n) {
    const Node &node = *small.nodes()[n], &same = *larger.nodes()[n];
    if (node.num_inputs() == 0 || node.op().is_view) continue;  // not computed
    for (int i = 0; i < node.num_outputs(); ++i) {
      most = std::max(most, same.output(i).type().num_bytes() - node.output(i).type().num_bytes());
    }
  }
  return most;
}

std::string LargestValuesText(const compute::Graph& small, const compute::Graph& larger, int64_t small_examples,
                              int64_t larger_examples, double examples) {
  const double factor =
      (examples - static_cast<double>(small_examples)) / static_cast<double>(larger_examples - small_examples);
  if (!AreAlike(small, larger)) return "";
  std::vector<LargeValue> values;
  for (size_t n = 0; n < small.nodes().size(); ++n) {
    const Node &node = *small.nodes()[n], &same = *larger.nodes()[n];
    for (int i = 0; i < node.num_outputs(); ++i) {
      const std::optional<TensorType> type = Extrapolated(node.output(i).type(), same.output(i).type(), factor);
      if (!type) return "";
      const bool is_there =
          std::any_of(values.begin(), values.end(), [&](const LargeValue& value) { return value.type == *type; });
      const bool is_variable = node.Is(compute::op::Variable);
      if (!is_there) values.push_back({*type, is_variable ? node.name() : std::string(node.op().name.text())});
    }
  }
  constexpr size_t kNamed = 2;
  const auto end = values.begin() + static_cast<std::ptrdiff_t>(std::min(kNamed, values.size()));
  std::partial_sort(values.begin(), end, values.end(),
                    [](const LargeValue& a, const LargeValue& b) { return a.type.num_bytes() > b.type.num_bytes(); });
  std::string text;
  for (auto value = values.begin(); value != end; ++value) {
    absl::StrAppend(&text, text.empty() ? "; its largest values are " : " and ", value->type.ToString(), " of ",
                    value->of, ", ", misc::SizeText(static_cast<double>(value->type.num_bytes())));
  }
  return text;
}

}  // namespace official::train
