#include "utils/compute/ops/loss_scale/loss_scale.h"

#include <vector>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"

namespace official::compute {
namespace {

const TensorType kFloatScalar{DType::kFloat32, {}};
const TensorType kBoolScalar{DType::kBool, {}};

const bool registered[] = {
    RegisterOp({
        .name = op::AllFinite,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          const int first = c.attrs.GetBool("scaled") ? all_finite::kNumScalars : 0;
          if (c.num_inputs() <= first) return c.Error("needs at least one tensor");
          if (first > 0 && c.type(all_finite::kLossScale) != kFloatScalar) {
            return c.Error("needs a float32 scalar as loss scale");
          }
          for (int i = first; i < c.num_inputs(); ++i) {
            if (c.dtype(i) != DType::kFloat32) return c.Error("needs float32 tensors");
          }
          return std::vector<TensorType>{kBoolScalar};
        },
        .has_side_effect = true,
        .precedes_updates = true,
    }),
    RegisterOp({
        .name = op::UpdateLossScale,
        .infer = [](const InferContext& c) -> absl::StatusOr<std::vector<TensorType>> {
          if (c.num_inputs() != 3 || c.type(update_loss_scale::kLossScale) != kFloatScalar ||
              c.type(update_loss_scale::kGoodSteps) != TensorType{DType::kInt64, {}} ||
              c.type(update_loss_scale::kAllFinite) != kBoolScalar) {
            return c.Error("needs a float32 and an int64 scalar variable and a bool scalar");
          }
          return std::vector<TensorType>{};
        },
        .has_side_effect = true,
    }),
};

}  // namespace

Value AllFinite(absl::Span<const Value> tensors, const FiniteCheck& check) {
  std::vector<Value> inputs;
  if (check.loss_scale) inputs.push_back(check.loss_scale);
  for (const Value& tensor : tensors) {
    // So that a gradient that stays sparse is not made dense for this.
    const bool sparse = tensor && tensor.node()->Is(op::IndexedSlices);
    inputs.push_back(sparse ? tensor.node()->input(1) : tensor);
  }
  return Apply(op::AllFinite, inputs,
               Attrs{{"scaled", static_cast<bool>(check.loss_scale)}, {"barrier", check.barrier}});
}

Node* UpdateLossScale(Value loss_scale, Value good_steps, Value all_finite, int64_t growth_steps) {
  return ApplyNode(op::UpdateLossScale, {loss_scale, good_steps, all_finite}, Attrs{{"growth_steps", growth_steps}});
}

}  // namespace official::compute
