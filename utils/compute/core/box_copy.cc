#include "utils/compute/core/box_copy.h"

namespace official::compute {

int64_t BoxCopy::num_runs() const {
  int64_t runs = 1;
  for (const MoveDim& d : dims) runs *= d.size;
  return runs;
}

void AddDim(std::vector<MoveDim>& dims, const MoveDim& dim) {
  if (dim.size == 1) return;
  if (!dims.empty() && dims.back().from == dim.size * dim.from && dims.back().to == dim.size * dim.to) {
    dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
  } else {
    dims.push_back(dim);
  }
}

BoxCopy MakeBoxCopy(const Shape& box, const BoxPlace& from, const BoxPlace& to, int64_t element_bytes) {
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

}  // namespace official::compute
