// The inputs and the guard of an update, as the CUDA kernels of updates use them. Only for CUDA code.
#pragma once

#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/optimizer/clip.h"
#include "utils/compute/ops/optimizer/optimizer.h"

namespace official::compute {

// The guard of an update: the inputs after the rule's scalars in a guarded update; else both are nullptr.
struct Guard {
  const float* loss_scale = nullptr;
  const bool* apply = nullptr;
  float limit = kNoClip;  // of the magnitude of an element

  __device__ bool Applies() const { return apply == nullptr || *apply; }
  // Takes the loss scale off an element of a gradient, and clips it.
  __device__ float Unscale(float g) const { return Unscale(g, Scale()); }
  // The same with Scale(), which a loop reads once: fewer registers.
  __device__ float Unscale(float g, float scale) const {
    return loss_scale == nullptr ? g : ClipByValue(g / scale, limit);
  }
  __device__ float Scale() const { return loss_scale == nullptr ? 1 : *loss_scale; }
};

// The places of an update's inputs.
struct Places {
  Places(const KernelSpec& spec, int scalars)
      : guarded(spec.attrs().GetBool("guarded")), limit(ClipValueOf(spec.attrs())), scalars(scalars) {}

  int first() const { return scalars + (guarded ? update_guard::kNumScalars : 0); }  // after all scalars
  Guard GuardOf(const KernelArgs& args) const {
    if (!guarded) return {};
    return {args.input<float>(scalars + update_guard::kLossScale), args.input<bool>(scalars + update_guard::kApply),
            limit};
  }

  bool guarded;
  float limit;
  int scalars;
};

template <int kScalars>
struct Scalars {
  explicit Scalars(const KernelArgs& args) {
    for (int k = 0; k < kScalars; ++k) values[k] = args.input<float>(k);
  }
  const float* values[kScalars + 1];  // the last one is not used
};

}  // namespace official::compute
