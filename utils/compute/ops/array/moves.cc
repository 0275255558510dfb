#include "utils/compute/ops/array/moves.h"

#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

// Where a box lies in an array.
struct Place {
  Shape array;
  std::vector<int64_t> begin;
};

// Adds a dimension inside the others, to the last of them if the two are one on both sides.
void AddDim(std::vector<MoveDim>& dims, const MoveDim& dim) {
  if (dim.size == 1) return;
  if (!dims.empty() && dims.back().from == dim.size * dim.from && dims.back().to == dim.size * dim.to) {
    dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
  } else {
    dims.push_back(dim);
  }
}

BoxCopy MakeBoxCopy(const Shape& box, const Place& from, const Place& to, int64_t element_bytes) {
  BoxCopy copy{.from_begin = 0, .to_begin = 0, .run_bytes = element_bytes, .dims = {}};
  // Dimensions in which the box is as large as both arrays belong to the run, and the first one that is not.
  int inner = box.rank();
  while (inner > 0) {
    --inner;
    copy.run_bytes *= box.dim(inner);
    if (box.dim(inner) != from.array.dim(inner) || box.dim(inner) != to.array.dim(inner)) break;
  }
  for (int d = 0; d < box.rank(); ++d) {
    const int64_t from_stride = from.array.Product(d + 1, box.rank()) * element_bytes;
    const int64_t to_stride = to.array.Product(d + 1, box.rank()) * element_bytes;
    copy.from_begin += from.begin[d] * from_stride;
    copy.to_begin += to.begin[d] * to_stride;
    if (d < inner) AddDim(copy.dims, {box.dim(d), from_stride, to_stride});
  }
  return copy;
}

std::vector<int64_t> Zeros(const Shape& shape) { return std::vector<int64_t>(shape.rank(), 0); }

}  // namespace

std::vector<DType> AllTypes() {
  return {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
          DType::kInt32,   DType::kInt64,    DType::kUInt8,   DType::kBool};
}

int64_t BoxCopy::num_runs() const {
  int64_t runs = 1;
  for (const MoveDim& d : dims) runs *= d.size;
  return runs;
}

std::vector<BoxCopy> BoxCopiesOf(const Node& node) {
  const Shape& input = node.input(0).shape();
  const Shape& output = node.output_types()[0].shape;
  const int64_t element_bytes = SizeOf(node.output_types()[0].dtype);
  if (node.Is(op::Slice)) {
    return {MakeBoxCopy(output, {input, node.attrs().GetInts("begin")}, {output, Zeros(output)}, element_bytes)};
  }
  Place to{output, Zeros(output)};
  if (node.Is(op::Pad)) {
    const std::vector<int64_t>& paddings = node.attrs().GetInts("paddings");
    for (int d = 0; d < output.rank(); ++d) to.begin[d] = paddings[2 * d];
    return {MakeBoxCopy(input, {input, Zeros(input)}, to, element_bytes)};
  }
  const int64_t axis = node.attrs().GetInt("axis"), at = axis < 0 ? axis + output.rank() : axis;
  std::vector<BoxCopy> copies;
  for (const Value& v : node.inputs()) {
    copies.push_back(MakeBoxCopy(v.shape(), {v.shape(), Zeros(output)}, to, element_bytes));
    to.begin[at] += v.shape().dim(static_cast<int>(at));
  }
  return copies;
}

std::vector<MoveDim> TransposeDims(const Node& node) {
  const Shape& input = node.input(0).shape();
  const Shape& output = node.output_types()[0].shape;
  const std::vector<int64_t>& perm = node.attrs().GetInts("perm");
  std::vector<MoveDim> dims;
  for (int d = 0; d < output.rank(); ++d) {
    const int source = static_cast<int>(perm[d]);
    AddDim(dims, {output.dim(d), input.Product(source + 1, input.rank()), output.Product(d + 1, output.rank())});
  }
  if (dims.empty()) dims.push_back({1, 1, 1});
  return dims;
}

}  // namespace official::compute
