// The arithmetic of Adam, one element at a time, for the kernels that share it.
#pragma once

#include <cmath>
#include <cstdint>

#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/optimizer/optimizer.h"

namespace official::compute {

struct AdamStep {
  float alpha;  // lr * sqrt(1 - beta2^t) / (1 - beta1^t)
  float one_minus_beta1, one_minus_beta2, epsilon;

  // Makes a step, in TensorFlow's order of operations.
  OFFICIAL_HOST_DEVICE void operator()(float& variable, float& m, float& v, float g) const {
    m += (g - m) * one_minus_beta1;
    v += (g * g - v) * one_minus_beta2;
    variable -= (m * alpha) / (std::sqrt(v) + epsilon);
  }
};

// The elements of a variable and their moments.
struct AdamState {
  float *variable, *m, *v;

  AdamState At(int64_t i) const { return {variable + i, m + i, v + i}; }
};

// The step for the attributes beta1, beta2 and epsilon, with alpha still unset.
inline AdamStep AdamStepOf(const Attrs& attrs) {
  const auto beta1 = static_cast<float>(attrs.GetFloat("beta1"));
  const auto beta2 = static_cast<float>(attrs.GetFloat("beta2"));
  return {0, 1 - beta1, 1 - beta2, static_cast<float>(attrs.GetFloat("epsilon"))};
}

OFFICIAL_HOST_DEVICE inline float AdamAlpha(float lr, float beta1_power, float beta2_power) {
  return lr * std::sqrt(1 - beta2_power) / (1 - beta1_power);
}

// The alpha of a run whose scalars are those of apply_adam.
inline float AdamAlpha(const KernelArgs& args) {
  return AdamAlpha(*args.input<float>(apply_adam::kLearningRate), *args.input<float>(apply_adam::kBeta1Power),
                   *args.input<float>(apply_adam::kBeta2Power));
}

}  // namespace official::compute
