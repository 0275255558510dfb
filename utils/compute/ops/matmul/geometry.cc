#include "utils/compute/ops/matmul/geometry.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/matmul/matmul.h"

namespace official::compute {

absl::StatusOr<MatMulGeometry> ResolveMatMul(const InferContext& c) {
  const Shape &a = c.shape(matmul::kA), &b = c.shape(matmul::kB);
  const int rank = a.rank();
  if (c.dtype(matmul::kA) != c.dtype(matmul::kB) || !IsFloating(c.dtype(matmul::kA))) {
    return c.Error("both matrices must have one floating type");
  }
  if (rank < 2 || rank > 4 || b.rank() != rank)
    return c.Error("takes two matrices, or batches of them, of rank 2 to 4");
  for (int i = 0; i < rank - 2; ++i) {
    if (a.dim(i) != b.dim(i)) return c.Error(absl::StrCat("batch dimensions ", i, " differ"));
  }
  MatMulGeometry g;
  g.transpose_a = c.attrs.GetBool("transpose_a");
  g.transpose_b = c.attrs.GetBool("transpose_b");
  g.batch = a.Product(0, rank - 2);
  g.m = a.dim(g.transpose_a ? -1 : -2);
  g.k = a.dim(g.transpose_a ? -2 : -1);
  g.n = b.dim(g.transpose_b ? -2 : -1);
  const int64_t k = b.dim(g.transpose_b ? -1 : -2);
  if (k != g.k) return c.Error(absl::StrCat("a has ", g.k, " columns, b ", k, " rows"));
  return g;
}

MatMulGeometry MatMulGeometryOf(const Node& node) {
  // The node's own shape rule has accepted these.
  return ResolveMatMul({node.op().name, node.inputs(), node.attrs()}).value();
}

}  // namespace official::compute
