#include "utils/compute/ops/array/moves.h"

#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

std::vector<int64_t> Zeros(const Shape& shape) { return std::vector<int64_t>(shape.rank(), 0); }

}  // namespace

std::vector<DType> AllTypes() {
  return {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
          DType::kInt32,   DType::kInt64,    DType::kUInt8,   DType::kBool};
}

std::vector<BoxCopy> BoxCopiesOf(const Node& node) {
  const Shape& input = node.input(0).shape();
  const Shape& output = node.output_types()[0].shape;
  const int64_t element_bytes = SizeOf(node.output_types()[0].dtype);
  if (node.Is(op::Slice)) {
    return {MakeBoxCopy(output, {input, node.attrs().GetInts("begin")}, {output, Zeros(output)}, element_bytes)};
  }
  BoxPlace to{output, Zeros(output)};
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
