#include "utils/compute/ops/dropout/dropout.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/random.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

const bool registered[] = {
    RegisterOp({
        .name = op::Dropout,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          if (c.num_inputs() != 2 || !IsFloating(c.dtype(dropout::kX)) || c.shape(dropout::kX).rank() < 1) {
            return c.Error("needs a floating batch and a random state");
          }
          if (c.type(dropout::kRandomState) != TensorType{DType::kInt64, {3}}) {
            return c.Error("needs a random state int64[3]");
          }
          const double rate = c.attrs.GetFloat("rate");
          if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a rate in [0, 1), got ", rate));
          return std::vector<TensorType>{c.type(dropout::kX)};
        },
        .gradient =
            [](const Node& node, absl::Span<const Value> dy) {
              return std::vector<Value>{
                  Apply(op::Dropout, {dy[dropout::kY], node.input(dropout::kRandomState)}, node.attrs()), Value()};
            },
        .tolerance = {1e-6, 1e-2},
    }),
    RegisterOp({
        .name = op::PackedDropout,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          if (c.num_inputs() != 3 || !IsStorageType(c.dtype(packed_dropout::kX)) ||
              c.shape(packed_dropout::kX).rank() != 2) {
            return c.Error("needs rows [T, C] (float32, bfloat16 or half), offsets and a random state");
          }
          if (c.dtype(packed_dropout::kOffsets) != DType::kInt32 || c.shape(packed_dropout::kOffsets).rank() != 1 ||
              c.shape(packed_dropout::kOffsets).dim(0) < 1) {
            return c.Error("needs int32 offsets [B + 1]");
          }
          if (c.type(packed_dropout::kRandomState) != TensorType{DType::kInt64, {3}}) {
            return c.Error("needs a random state int64[3]");
          }
          const double rate = c.attrs.GetFloat("dropout_rate");
          if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a rate in [0, 1), got ", rate));
          return std::vector<TensorType>{c.type(packed_dropout::kX)};
        },
        .gradient =
            [](const Node& node, absl::Span<const Value> dy) {
              return std::vector<Value>{Apply(op::PackedDropout,
                                              {dy[packed_dropout::kY], node.input(packed_dropout::kOffsets),
                                               node.input(packed_dropout::kRandomState)},
                                              node.attrs()),
                                        Value(), Value()};
            },
        .tolerance = {1e-6, 1e-2},
    }),
};

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
