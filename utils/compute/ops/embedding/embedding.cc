#include "utils/compute/ops/embedding/embedding.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"

namespace official::compute {
namespace {

// Checks the last inputs: the offsets, in the given place, and the random state, which follows if there is dropout.
absl::Status CheckPacked(const InferContext& c, int offsets) {
  const double rate = c.attrs.GetFloat("dropout_rate");
  if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a dropout rate in [0, 1), got ", rate));
  if (c.num_inputs() != offsets + (rate > 0 ? 2 : 1)) return c.Error("needs offsets, and a random state for dropout");
  if (c.dtype(offsets) != DType::kInt32 || c.shape(offsets).rank() != 1 || c.shape(offsets).dim(0) < 1) {
    return c.Error("needs int32 offsets [B + 1]");
  }
  if (rate > 0 && c.type(offsets + 1) != TensorType{DType::kInt64, {3}}) {
    return c.Error("needs a random state int64[3]");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> EmbeddingType(const InferContext& c) {
  namespace in = embedding;
  if (c.num_inputs() <= in::kOffsets || c.shape(in::kTable).rank() != 2 || !IsStorageType(c.dtype(in::kTable)) ||
      c.shape(in::kIds).rank() != 1 || c.dtype(in::kIds) != DType::kInt32) {
    return c.Error("needs a table [V, H] of float32, bfloat16 or half and int32 ids [T]");
  }
  const int64_t size = c.shape(in::kTable).dim(1);
  if (c.dtype(in::kPositions) != DType::kFloat32 || c.shape(in::kPositions).rank() != 2 ||
      c.shape(in::kPositions).dim(1) != size) {
    return c.Error("needs float32 positions [L, H]");
  }
  RETURN_IF_ERROR(CheckPacked(c, in::kOffsets));
  return std::vector<TensorType>{{c.dtype(in::kTable), {c.shape(in::kIds).dim(0), size}}};
}

absl::StatusOr<std::vector<TensorType>> EmbeddingGradType(const InferContext& c) {
  namespace in = embedding_grad;
  if (c.num_inputs() <= in::kOffsets || c.shape(in::kDy).rank() != 2 ||
      c.type(in::kIds) != TensorType{DType::kInt32, {c.shape(in::kDy).dim(0)}}) {
    return c.Error("needs the gradient [T, H] and int32 ids [T]");
  }
  RETURN_IF_ERROR(CheckPacked(c, in::kOffsets));
  return std::vector<TensorType>{c.type(in::kDy), c.type(in::kIds)};
}

std::vector<Value> EmbeddingGradient(const Node& node, absl::Span<const Value> dy) {
  namespace forward = embedding;
  namespace backward = embedding_grad;
  std::vector<Value> gradients(node.num_inputs());
  if (!dy[forward::kY]) return gradients;
  std::vector<Value> inputs = {dy[forward::kY], node.input(forward::kIds), node.input(forward::kOffsets)};
  if (node.num_inputs() > forward::kRandomState) inputs.push_back(node.input(forward::kRandomState));
  Node* const rows = ApplyNode(op::EmbeddingGrad, inputs, node.attrs());
  gradients[forward::kTable] = IndexedSlices(OutputOf(rows, backward::kIndices), OutputOf(rows, backward::kRows),
                                             node.input(forward::kTable).shape());
  return gradients;
}

const bool registered = [] {
  RegisterOp({
      .name = op::Embedding,
      .infer = EmbeddingType,
      .gradient = EmbeddingGradient,
      .tolerance = {1e-5, 2e-2},
  });
  RegisterOp({.name = op::EmbeddingGrad, .infer = EmbeddingGradType});
  return true;
}();

}  // namespace

Tensor PositionSignal(int64_t length, int64_t size) {
  OFFICIAL_CHECK(size >= 4 && size % 2 == 0) << "a position signal of size " << size;
  Tensor signal(DType::kFloat32, {length, size});
  const int64_t frequencies = size / 2;
  const auto step = static_cast<float>(-std::log(1e4) / static_cast<double>(frequencies - 1));
  for (int64_t i = 0; i < frequencies; ++i) {
    const float frequency = std::exp(static_cast<float>(i) * step);
    for (int64_t p = 0; p < length; ++p) {
      const float angle = static_cast<float>(p) * frequency;
      float* const row = signal.data<float>() + p * size;
      row[i] = std::sin(angle);
      row[frequencies + i] = std::cos(angle);
    }
  }
  return signal;
}

Value Embedding(const EmbeddingInputs& in, const EmbeddingParams& params) {
  std::vector<Value> inputs = {in.table, in.ids, in.positions, in.offsets};
  if (params.dropout_rate > 0) inputs.push_back(in.random_state);
  return Apply(op::Embedding, inputs,
               Attrs{{"scale", params.scale},
                     {"shift_right", params.shift_right},
                     {"dropout_rate", params.dropout_rate},
                     {"stream", DropoutStream(params.name)}});
}

}  // namespace official::compute
