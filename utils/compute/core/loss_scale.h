// What the loss is multiplied by before its gradients are computed, and these divided by before the update, so that
// small gradients do not vanish in float16.
#pragma once

namespace official::compute {

struct LossScale {
  float value = 1;  // dynamic: the first one
  // Lowered when gradients are not finite, raised when they were for long (ops/loss_scale).
  bool dynamic = false;
};

// As TensorFlow's DynamicLossScale starts.
constexpr LossScale DynamicLossScale() { return {.value = 32768, .dynamic = true}; }

}  // namespace official::compute
