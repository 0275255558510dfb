// The factor by which the loss is multiplied before its gradients are computed, and by which these are divided before
// the update, so that small gradients do not vanish in float16.
#pragma once

namespace official::compute {

struct LossScale {
  float value = 1;  // if dynamic: the initial scale
  // True if the scale is lowered when gradients are not finite and raised when they have been finite for many steps
  // (ops/loss_scale).
  bool dynamic = false;
};

// The initial state of TensorFlow's DynamicLossScale.
constexpr LossScale DynamicLossScale() { return {.value = 32768, .dynamic = true}; }

}  // namespace official::compute
