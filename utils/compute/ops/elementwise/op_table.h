// The table of the ops of this family: the functor of math.h that each computes, and the types.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

struct ElementwiseOp {
  OpName name;
  absl::string_view functor;  // "" if the op only converts or repeats its input
  int num_inputs;
  std::vector<DType> key_types;  // types of input 0 that the op takes
};

// All ops except FusedElementwise.
const std::vector<ElementwiseOp>& ElementwiseOps();
// Returns nullptr if `op` is none of them.
const ElementwiseOp* FindElementwiseOp(OpName op);

// The type in which kernels compute a node of this family, including FusedElementwise: int32, int64 or, for all other
// types, float32.
DType ComputeType(const Node& node);

// The gradients of the inputs of a node of one of these ops, in the shape of its output, given that of its output.
std::vector<Value> ElementwiseGradient(const Node& node, absl::Span<const Value> output_gradients);
// True if the op has a gradient.
bool HasElementwiseGradient(OpName op);

}  // namespace official::compute
