// The clipping of gradients by value, as the kernels of all devices do it.
#pragma once

#include <cmath>
#include <limits>

#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute {

// The largest magnitude of an element of a gradient: the attribute "clip_value", or infinity without it.
inline constexpr float kNoClip = std::numeric_limits<float>::infinity();
inline float ClipValueOf(const Attrs& attrs) {
  return attrs.Has("clip_value") ? static_cast<float>(attrs.GetFloat("clip_value")) : kNoClip;
}

// Returns g within [-limit, limit], as tf.clip_by_value; NaN stays.
OFFICIAL_HOST_DEVICE inline float ClipByValue(float g, float limit) {
  return fabsf(g) > limit ? copysignf(limit, g) : g;
}

}  // namespace official::compute
