#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/loss_scale/loss_scale.h"

namespace official::compute {
namespace {

// Of float32 numbers: the bits without the sign grow with the magnitude, and infinity is below all NaNs.
bool RangeIsFinite(const float* values, int64_t begin, int64_t end) {
  int32_t largest = 0;
  WithSimd([&, x = values + begin, n = end - begin] {
    int32_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t magnitude = std::bit_cast<int32_t>(x[i]) & 0x7fffffff;
      most = magnitude > most ? magnitude : most;
    }
    largest = most;
  });
  return largest < 0x7f800000;
}

// "element 3 of input 1, float32[2,2], is nan"
absl::Status FirstNonFinite(const KernelArgs& args, const std::vector<TensorType>& types) {
  for (size_t k = 0; k < types.size(); ++k) {
    const Tensor x(types[k], const_cast<void*>(args.inputs[k]));
    const auto found = FindNonFinite(x);
    if (!found) continue;
    return absl::OutOfRangeError(
        absl::StrCat("element ", *found, " of input ", k, ", ", types[k].ToString(), ", is ", x.data<float>()[*found]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Kernel> MakeAllFinite(const KernelSpec& spec) {
  const bool scaled = spec.attrs().GetBool("scaled");
  const int first = scaled ? all_finite::kNumScalars : 0;
  std::vector<TensorType> types;
  int64_t elements = 0;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    types.push_back(spec.input(i));
    if (i >= first) elements += spec.input(i).shape.num_elements();
  }
  // Devices, and their threads, have a part of each tensor: of rows for a batch that they have computed, most often.
  constexpr int64_t kGrain = 1 << 13;
  const UpdatePart device = spec.update_part;
  if (device.parts > 1 && !spec.attrs().GetBool("barrier")) {
    return absl::FailedPreconditionError("devices that share variables need a barrier here: FiniteCheck::barrier");
  }
  const int64_t threads = std::clamp<int64_t>(elements / device.parts / kGrain, 1, NumThreads());
  Communicator* const others = device.parts > 1 ? spec.device.communicator() : nullptr;
  return Kernel{[=](const KernelArgs& args) -> absl::Status {
    std::atomic<bool> finite = true;
    ParallelFor(threads, 1, [&](int64_t begin, int64_t end) {
      for (size_t k = first; k < types.size(); ++k) {
        const Share own = ShareOf(types[k].shape.num_elements(), device.part, device.parts);
        const float* const x = args.input<float>(static_cast<int>(k)) + own.begin;
        if (!RangeIsFinite(x, own.size() * begin / threads, own.size() * end / threads)) {
          finite.store(false, std::memory_order_relaxed);
        }
      }
    });
    if (others != nullptr) {  // the barrier
      ASSIGN_OR_RETURN(finite, others->AllTrue(finite));
    }
    *args.output<bool>(0) = finite;
    if (finite || (scaled && *args.input<float>(all_finite::kLossScale) > 1)) return absl::OkStatus();
    RETURN_IF_ERROR(FirstNonFinite(args, types));
    return absl::OutOfRangeError("another device has an element that is not finite");
  }};
}

absl::StatusOr<Kernel> MakeUpdateLossScale(const KernelSpec& spec) {
  const int64_t growth_steps = spec.attrs().GetInt("growth_steps");
  return Kernel{[growth_steps](const KernelArgs& args) {
    float& scale = *args.variable<float>(update_loss_scale::kLossScale);
    int64_t& good_steps = *args.variable<int64_t>(update_loss_scale::kGoodSteps);
    if (!*args.input<bool>(update_loss_scale::kAllFinite)) {
      scale = std::max(scale / 2, 1.0f);
      good_steps = 0;
    } else if (++good_steps >= growth_steps) {
      if (std::isfinite(scale * 2)) scale *= 2;
      good_steps = 0;
    }
    return absl::OkStatus();
  }};
}

const bool registered[] = {
    // The key type is that of the loss scale or of the first tensor: float32 both.
    RegisterKernel({.op = op::AllFinite, .device_kind = "cpu", .dtypes = {DType::kFloat32}, .make = MakeAllFinite}),
    RegisterKernel(
        {.op = op::UpdateLossScale, .device_kind = "cpu", .dtypes = {DType::kFloat32}, .make = MakeUpdateLossScale}),
};

}  // namespace
}  // namespace official::compute
