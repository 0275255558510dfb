#include "utils/distribute/custom_loop/sample_weight.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::distribute {

using compute::Value;

Value AlignSampleWeight(Value sample_weight, Value values) {
  if (!sample_weight || !values) return Value();
  const compute::Shape &weights = sample_weight.shape(), &shape = values.shape();
  Value aligned = sample_weight;
  if (weights.rank() == shape.rank() + 1 && weights.dim(shape.rank()) == 1) {
    aligned = compute::Squeeze(sample_weight, -1);
  } else if (weights.rank() > 0 && weights.rank() == shape.rank() - 1) {
    aligned = compute::ExpandDims(sample_weight, -1);
  }
  const absl::StatusOr<compute::Shape> product = compute::BroadcastShape(aligned.shape(), shape);
  if (product.ok() && *product == shape) return aligned;
  values.graph()->Fail(
      absl::InvalidArgumentError(absl::StrCat("sample_weight has the shape ", weights.ToString(),
                                              ", which is not broadcast to that of the values, ", shape.ToString())));
  return Value();
}

}  // namespace official::distribute
