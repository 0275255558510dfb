#include "utils/compute/ops/reduction/passes.h"

#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {

std::vector<bool> ReducedAxes(const Node& node) {
  const int rank = node.input(0).shape().rank();
  if (node.Is(op::BiasAddGrad)) {
    std::vector<bool> reduced(rank, true);
    reduced.back() = false;
    return reduced;
  }
  std::vector<bool> reduced(rank, false);
  for (const int64_t axis : node.attrs().GetInts("axes")) reduced[axis < 0 ? axis + rank : axis] = true;
  return reduced;
}

Shape ReducedShape(const Shape& shape, const std::vector<bool>& reduced, bool keep_dims) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!reduced[i]) {
      dims.push_back(shape.dim(i));
    } else if (keep_dims) {
      dims.push_back(1);
    }
  }
  return Shape(dims);
}

std::vector<ReductionPass> ReductionPasses(const Node& node) {
  const Shape& shape = node.input(0).shape();
  const std::vector<bool> reduced = ReducedAxes(node);
  struct Group {
    int64_t size;
    bool reduced;
  };
  std::vector<Group> groups;
  double reduced_elements = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (reduced[i]) reduced_elements *= static_cast<double>(shape.dim(i));
    if (!groups.empty() && groups.back().reduced == reduced[i]) {
      groups.back().size *= shape.dim(i);
    } else if (shape.dim(i) != 1) {
      groups.push_back({shape.dim(i), reduced[i]});
    }
  }
  std::vector<ReductionPass> passes;
  int64_t inner = 1;
  for (size_t g = groups.size(); g-- > 0;) {
    if (!groups[g].reduced) {
      inner *= groups[g].size;
      continue;
    }
    int64_t outer = 1;
    for (size_t k = 0; k < g; ++k) outer *= groups[k].size;
    passes.push_back({outer, groups[g].size, inner});
  }
  if (passes.empty()) passes.push_back({shape.num_elements(), 1, 1});  // axes of size 1 only
  if (node.Is(op::Mean)) passes.back().divisor = reduced_elements;
  return passes;
}

}  // namespace official::compute
