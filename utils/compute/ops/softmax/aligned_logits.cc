// The logits of a tied embedding, x * table^T, whose classes do not fill whole loads of 16 bytes (33,708 of two bytes):
// where the device has a kernel for CastAndPadRows, the table is cast into more rows, so that the rows of logits and of
// their gradient are longer, and cross entropy, their only reader, is told the number of classes.
//
// Padding the cast copy leaves the variable, and with it checkpoints, exports and the optimizer, as it is, and costs no
// pass over memory: the copy is made anyhow, and all else that reads the table, or its gradient, takes the first rows
// of it in place. Logits that anything else reads (TopK in evaluation, beam search) are left alone, since each such op
// would need to know the classes or a copy without the padding.

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/graph/rewrite.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/softmax/softmax.h"

namespace official::compute {
namespace {

using Outputs = std::optional<std::vector<Value>>;

constexpr int64_t kOfLoad = 8;        // elements of two bytes that are loaded at once
constexpr int64_t kRowsOfTile = 128;  // what tiles of products on GPUs divide

bool IsNarrow(DType dtype) { return IsStorageType(dtype) && dtype != DType::kFloat32; }

absl::StatusOr<std::vector<TensorType>> InferCastAndPadRows(const InferContext& c) {
  const DType dtype = c.attrs.Get<DType>("dtype");
  const int64_t rows = c.attrs.GetInt("rows");
  if (c.num_inputs() != 1 || c.dtype(0) != DType::kFloat32 || c.shape(0).rank() < 1 || !IsNarrow(dtype)) {
    return c.Error("makes bfloat16 or half of a float32 input of rank 1 or more");
  }
  if (rows < c.shape(0).dim(0)) return c.Error(absl::StrCat("cannot put its rows into ", rows));
  TensorType type{dtype, c.shape(0)};
  type.shape.set_dim(0, rows);
  return std::vector<TensorType>{type};
}

const bool registered_op = RegisterOp({.name = op::CastAndPadRows, .infer = InferCastAndPadRows});

bool IsCrossEntropy(const Node& node) {
  return node.Is(op::SparseSoftmaxCrossEntropy) || node.Is(op::SparseSoftmaxCrossEntropyGrad);
}

// True if the product makes logits from x and a table of rows, and cross entropy is all that reads them.
bool MakesLogits(const Node& node, RewriteContext& context) {
  if (!node.attrs().GetBool("transpose_b") || node.attrs().GetBool("transpose_a")) return false;
  const Value logits = node.output(matmul::kY);
  const std::vector<const Node*>& readers = context.Readers(logits);
  return !readers.empty() && static_cast<int>(readers.size()) == context.UseCount(logits) &&
         std::all_of(readers.begin(), readers.end(), [](const Node* reader) { return IsCrossEntropy(*reader); });
}

// Cast(table), if it makes logits: the first rows of a copy that has more.
Outputs PadTable(const Node& cast, RewriteContext& context) {
  const Value table = cast.input(0), narrow = cast.output(0);
  if (table.shape().rank() != 2 || table.dtype() != DType::kFloat32 || !IsNarrow(narrow.dtype()) ||
      table.shape().dim(0) % kOfLoad == 0 || !context.DeviceHasKernel(op::CastAndPadRows, table.dtype())) {
    return std::nullopt;
  }
  const std::vector<const Node*> readers = context.Readers(narrow);  // asking for those of others may move them
  if (std::none_of(readers.begin(), readers.end(), [&](const Node* reader) {
        return reader->Is(op::MatMul) && reader->input(matmul::kB) == narrow && MakesLogits(*reader, context);
      })) {
    return std::nullopt;
  }
  const int64_t rows = table.shape().dim(0), padded_rows = (rows + kRowsOfTile - 1) / kRowsOfTile * kRowsOfTile;
  const Value padded =
      Apply(op::CastAndPadRows, {context.Mapped(table)}, Attrs{{"dtype", narrow.dtype()}, {"rows", padded_rows}});
  return std::vector<Value>{FirstRows(padded, rows)};
}

// The padded table of which a value of the new graph is the first rows; invalid if it is none.
Value PaddedTable(Value v) {
  const bool found = v.node()->Is(op::FirstRows) && v.node()->input(0).node()->Is(op::CastAndPadRows);
  return found ? v.node()->input(0) : Value();
}

// In the new graph, logits and their gradient are first columns, and a pass removes the copy once nothing reads it.
Value FirstColumns(Value padded, const Shape& shape) { return Slice(padded, {0, 0}, {shape.dim(0), shape.dim(1)}); }

// The padded logits, or with `gradient` their gradient, of which `v` is the first columns; invalid if it is none.
Value PaddedColumns(Value v, bool gradient) {
  if (!v.node()->Is(op::Slice)) return Value();
  const Value all = v.node()->input(0);
  const Node& node = *all.node();
  const bool found = gradient ? node.Is(op::SparseSoftmaxCrossEntropyGrad) && node.attrs().Has("classes")
                              : node.Is(op::MatMul) && node.attrs().GetBool("transpose_b") &&
                                    node.input(matmul::kB).node()->Is(op::CastAndPadRows);
  return found ? all : Value();
}

// The products of the table: the logits; the gradient of x, to which zeros add nothing; and the gradient of the table,
// whose last rows nothing reads.
Outputs PadProduct(const Node& node, RewriteContext& context) {
  const Value a = context.Mapped(node.input(matmul::kA)), b = context.Mapped(node.input(matmul::kB));
  const Value table = PaddedTable(b), gradient = PaddedColumns(a, /*gradient=*/true);
  const Shape& shape = node.output(matmul::kY).shape();
  const auto product = [&](Value left, Value right) {
    return OutputOf(context.graph().AddNode(op::MatMul, {left, right}, node.attrs(), node.name()), matmul::kY);
  };
  const bool transpose_a = node.attrs().GetBool("transpose_a"), transpose_b = node.attrs().GetBool("transpose_b");
  if (table && MakesLogits(node, context)) return std::vector<Value>{FirstColumns(product(a, table), shape)};
  if (!gradient || transpose_b) return std::nullopt;
  if (transpose_a) return std::vector<Value>{FirstRows(product(gradient, b), shape.dim(0))};
  return table ? Outputs({product(gradient, table)}) : std::nullopt;
}

Outputs PadCrossEntropy(const Node& node, RewriteContext& context) {
  const Value old = node.input(sparse_softmax_cross_entropy::kLogits);
  const Value logits = PaddedColumns(context.Mapped(old), /*gradient=*/false);
  if (!logits) return std::nullopt;
  std::vector<Value> inputs;
  for (const Value& v : node.inputs()) inputs.push_back(v == old ? logits : context.Mapped(v));
  Attrs attrs = node.attrs();
  attrs.Set("classes", old.shape().dim(1));
  const Node* const padded = context.graph().AddNode(node.op().name, inputs, attrs, node.name());
  OFFICIAL_CHECK(padded != nullptr) << context.graph().status().ToString();
  if (node.Is(op::SparseSoftmaxCrossEntropy)) return std::vector<Value>{padded->output(0), padded->output(1)};
  return std::vector<Value>{FirstColumns(padded->output(0), old.shape())};
}

Outputs AlignLogits(const Node& node, RewriteContext& context) {
  if (node.Is(op::Cast)) return PadTable(node, context);
  if (node.Is(op::MatMul)) return PadProduct(node, context);
  return IsCrossEntropy(node) ? PadCrossEntropy(node, context) : std::nullopt;
}

// Behind MeanCrossEntropy, which is for few logits.
const bool registered_fusion = RegisterFusion({.name = "AlignedLogits", .phase = 2, .rule = AlignLogits});

}  // namespace
}  // namespace official::compute
