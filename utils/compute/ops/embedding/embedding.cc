#include "utils/compute/ops/embedding/embedding.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"

namespace official::compute {
namespace {

// Inputs from `first` on: offsets[, random state].
absl::Status CheckPacked(const InferContext& c, int first) {
  const double rate = c.attrs.GetFloat("dropout_rate");
  if (!(rate >= 0 && rate < 1)) return c.Error(absl::StrCat("needs a dropout rate in [0, 1), got ", rate));
  if (c.num_inputs() != first + (rate > 0 ? 2 : 1)) return c.Error("needs offsets, and a random state for dropout");
  if (c.dtype(first) != DType::kInt32 || c.shape(first).rank() != 1 || c.shape(first).dim(0) < 1) {
    return c.Error("needs int32 offsets [B + 1]");
  }
  if (rate > 0 && c.type(first + 1) != TensorType{DType::kInt64, {3}}) {
    return c.Error("needs a random state int64[3]");
  }
  return absl::OkStatus();
}

// Inputs table, ids, positions, offsets[, random state].
absl::StatusOr<std::vector<TensorType>> EmbeddingType(const InferContext& c) {
  if (c.num_inputs() < 4 || c.shape(0).rank() != 2 || !IsStorageType(c.dtype(0)) || c.shape(1).rank() != 1 ||
      c.dtype(1) != DType::kInt32) {
    return c.Error("needs a table [V, H] of float32, bfloat16 or half and int32 ids [T]");
  }
  const int64_t size = c.shape(0).dim(1);
  if (c.dtype(2) != DType::kFloat32 || c.shape(2).rank() != 2 || c.shape(2).dim(1) != size) {
    return c.Error("needs float32 positions [L, H]");
  }
  RETURN_IF_ERROR(CheckPacked(c, 3));
  return std::vector<TensorType>{{c.dtype(0), {c.shape(1).dim(0), size}}};
}

// Inputs dy, ids, offsets[, random state]; outputs: the gradients of the rows of the table and their indices, row by
// row. Where none flows, zeros for index 0.
absl::StatusOr<std::vector<TensorType>> EmbeddingGradType(const InferContext& c) {
  if (c.num_inputs() < 3 || c.shape(0).rank() != 2 || c.type(1) != TensorType{DType::kInt32, {c.shape(0).dim(0)}}) {
    return c.Error("needs the gradient [T, H] and int32 ids [T]");
  }
  RETURN_IF_ERROR(CheckPacked(c, 2));
  return std::vector<TensorType>{c.type(0), c.type(1)};
}

std::vector<Value> EmbeddingGradient(const Node& node, absl::Span<const Value> dy) {
  std::vector<Value> gradients(node.num_inputs());
  if (!dy[0]) return gradients;
  std::vector<Value> inputs = {dy[0], node.input(1), node.input(3)};
  if (node.num_inputs() == 5) inputs.push_back(node.input(4));
  Node* const rows = ApplyNode(op::EmbeddingGrad, inputs, node.attrs());
  gradients[0] = IndexedSlices(OutputOf(rows, 1), OutputOf(rows, 0), node.input(0).shape());
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
