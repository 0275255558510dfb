#include "utils/compute/ops/dropout/dropout.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/random.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

const bool dropout = RegisterOp({
    .name = op::Dropout,
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      if (c.num_inputs() != 2 || !IsFloating(c.dtype(0)) || c.shape(0).rank() < 1) {
        return c.Error("needs a floating batch and a random state");
      }
      if (c.type(1) != TensorType{DType::kInt64, {3}}) return c.Error("needs a random state int64[3]");
      const double rate = c.attrs.GetFloat("rate");
      if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a rate in [0, 1), got ", rate));
      return std::vector<TensorType>{c.type(0)};
    },
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply(op::Dropout, {dy[0], node.input(1)}, node.attrs()), Value()};
        },
    .tolerance = {1e-6, 1e-2},
});

const bool packed_dropout = RegisterOp({
    .name = op::PackedDropout,
    .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
      if (c.num_inputs() != 3 || !IsStorageType(c.dtype(0)) || c.shape(0).rank() != 2) {
        return c.Error("needs rows [T, C] (float32, bfloat16 or half), offsets and a random state");
      }
      if (c.dtype(1) != DType::kInt32 || c.shape(1).rank() != 1 || c.shape(1).dim(0) < 1) {
        return c.Error("needs int32 offsets [B + 1]");
      }
      if (c.type(2) != TensorType{DType::kInt64, {3}}) return c.Error("needs a random state int64[3]");
      const double rate = c.attrs.GetFloat("dropout_rate");
      if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a rate in [0, 1), got ", rate));
      return std::vector<TensorType>{c.type(0)};
    },
    .gradient =
        [](const Node& node, absl::Span<const Value> dy) {
          return std::vector<Value>{Apply(op::PackedDropout, {dy[0], node.input(1), node.input(2)}, node.attrs()),
                                    Value(), Value()};
        },
    .tolerance = {1e-6, 1e-2},
});

}  // namespace

int64_t DropoutStream(absl::string_view name) {
  return static_cast<int64_t>(StreamOf(name.data(), name.size()) & 0xffffffff);
}

Value RandomState(Graph& graph) { return graph.Input("random_state", {DType::kInt64, {3}}); }

Value Dropout(Value x, double rate, Value random_state, absl::string_view name) {
  if (rate == 0) return x;
  return Apply(op::Dropout, {x, random_state}, Attrs{{"rate", rate}, {"stream", DropoutStream(name)}});
}

Value PackedDropout(Value x, Value offsets, double rate, Value random_state, absl::string_view name) {
  return Apply(op::PackedDropout, {x, offsets, random_state},
               Attrs{{"dropout_rate", rate}, {"stream", DropoutStream(name)}});
}

}  // namespace official::compute
