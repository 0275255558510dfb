// CUDA kernels that look for gradients that are not finite and adapt the loss scale.

#include "utils/compute/ops/loss_scale/loss_scale.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/tensor_groups.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

// Stores false in `all_finite`, which is true before, if an element is not; reports the tensor's number among the
// inputs, the first of which has `first_input`, where no loss scale above 1 may be the reason.
__global__ void __launch_bounds__(kThreads)
    FindNonFiniteIn(const TensorGroups<1> __grid_constant__ groups, const float* loss_scale, int first_input,
                    bool* all_finite, DataError error) {
  const auto piece = groups.PieceOf(static_cast<int>(blockIdx.x));
  const float* const x = groups.tensors[piece.group][0];
  bool found = false;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += kThreads) found |= !isfinite(x[i]);
  if (!found) return;
  *all_finite = false;
  if (loss_scale == nullptr || !(*loss_scale > 1)) error.Report(first_input + groups.first_number + piece.group);
}

absl::StatusOr<Kernel> MakeAllFinite(const KernelSpec& spec) {
  const bool scaled = spec.attrs().GetBool("scaled");
  const int first = scaled ? all_finite::kNumScalars : 0;
  std::vector<std::string> types;
  for (int i = 0; i < spec.node.num_inputs(); ++i) types.push_back(spec.input(i).ToString());
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError error = device.AddDataError(
      spec.node,
      [types](int32_t input) {
        return absl::StrCat("an element of input ", input, ", ", types[input], ", is not finite");
      },
      absl::StatusCode::kOutOfRange);
  return Kernel{[=, launches = TensorLaunches<1>(spec, first),
                 stream = device.stream()](const KernelArgs& args) -> absl::Status {
    const float* const loss_scale = scaled ? args.input<float>(all_finite::kLossScale) : nullptr;
    bool* const all_finite = args.output<bool>(0);
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(all_finite, 1, sizeof(bool), stream), "cudaMemsetAsync"));
    return launches.ForEach(args, [&](const TensorGroups<1>& groups) {
      Launch(FindNonFiniteIn, groups.num_blocks(), kThreads, 0, stream, groups, loss_scale, first, all_finite, error);
      return LaunchStatus("FindNonFiniteIn");
    });
  }};
}

__global__ void UpdateScale(float* scale, int64_t* good_steps, const bool* all_finite, int64_t growth_steps,
                            const unsigned long long* error) {
  if (HasDataError(error)) return;
  if (!*all_finite) {
    *scale = fmaxf(*scale / 2, 1.0f);
    *good_steps = 0;
  } else if (++*good_steps >= growth_steps) {
    if (isfinite(*scale * 2)) *scale *= 2;
    *good_steps = 0;
  }
}

absl::StatusOr<Kernel> MakeUpdateLossScale(const KernelSpec& spec) {
  const CudaDevice& device = CudaDeviceOf(spec);
  return Kernel{[growth_steps = spec.attrs().GetInt("growth_steps"), stream = device.stream(),
                 error = device.data_error_word()](const KernelArgs& args) {
    Launch(UpdateScale, 1, 1, 0, stream, args.variable<float>(update_loss_scale::kLossScale),
           args.variable<int64_t>(update_loss_scale::kGoodSteps), args.input<bool>(update_loss_scale::kAllFinite),
           growth_steps, error);
    return LaunchStatus("UpdateScale");
  }};
}

const bool registered = [] {
  const auto add = [](OpName op, KernelFactory make) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = {DType::kFloat32}, .make = std::move(make)});
  };
  add(op::AllFinite, MakeAllFinite);
  add(op::UpdateLossScale, MakeUpdateLossScale);
  return true;
}();

}  // namespace
}  // namespace official::compute
