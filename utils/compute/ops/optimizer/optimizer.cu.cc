// CUDA kernels of the optimizers: one launch for the variables of an update, each block taking a piece of one of them.
// If an earlier kernel of the step found wrong data, the variables stay as they are.

#include "utils/compute/ops/optimizer/optimizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/tensor_groups.h"
#include "utils/compute/ops/optimizer/adam_step.h"
#include "utils/compute/ops/optimizer/guarded_update.h"
#include "utils/compute/ops/optimizer/moving_average.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

// An update rule is a value of the first kScalars inputs, which are read in the kernel, and is applied to each element
// of groups of kGroup tensors, of which the last is the gradient `g`. The header of the family names the places of
// both.
struct GradientDescentRule {
  static constexpr int kScalars = apply_gradient_descent::kNumScalars, kGroup = apply_gradient_descent::kGroupSize;
  struct Params {
    explicit Params(const Attrs&) {}
  };
  float lr;

  __device__ GradientDescentRule(const Params&, const float* const* scalars)
      : lr(*scalars[apply_gradient_descent::kLearningRate]) {}
  __device__ void operator()(float* const* tensors, int64_t i, float g) const {
    tensors[apply_gradient_descent::kVariable][i] -= lr * g;
  }
};

struct MomentumRule {
  static constexpr int kScalars = apply_momentum::kNumScalars, kGroup = apply_momentum::kGroupSize;
  struct Params {
    float momentum;
    bool nesterov;
    explicit Params(const Attrs& attrs)
        : momentum(static_cast<float>(attrs.GetFloat("momentum"))), nesterov(attrs.GetBool("nesterov")) {}
  };
  Params params;
  float lr;

  __device__ MomentumRule(const Params& params, const float* const* scalars)
      : params(params), lr(*scalars[apply_momentum::kLearningRate]) {}
  __device__ void operator()(float* const* tensors, int64_t i, float g) const {
    const float a = tensors[apply_momentum::kMomentum][i] * params.momentum + g;
    tensors[apply_momentum::kMomentum][i] = a;
    tensors[apply_momentum::kVariable][i] -= params.nesterov ? g * lr + a * params.momentum * lr : a * lr;
  }
};

struct AdamRule {
  static constexpr int kScalars = apply_adam::kNumScalars, kGroup = apply_adam::kGroupSize;
  struct Params {
    AdamStep step;
    explicit Params(const Attrs& attrs) : step(AdamStepOf(attrs)) {}
  };
  AdamStep step;

  __device__ AdamRule(const Params& params, const float* const* scalars) : step(params.step) {
    step.alpha = AdamAlpha(*scalars[apply_adam::kLearningRate], *scalars[apply_adam::kBeta1Power],
                           *scalars[apply_adam::kBeta2Power]);
  }
  __device__ void operator()(float* const* tensors, int64_t i, float g) const {
    step(tensors[apply_adam::kVariable][i], tensors[apply_adam::kM][i], tensors[apply_adam::kV][i], g);
  }
};

struct MovingAverageRule {
  static constexpr int kScalars = update_moving_averages::kNumScalars, kGroup = update_moving_averages::kGroupSize;
  struct Params {
    float rate;
    explicit Params(const Attrs& attrs) : rate(MovingAverageRate(attrs)) {}
  };
  Params params;

  __device__ MovingAverageRule(const Params& params, const float* const*) : params(params) {}
  __device__ void operator()(float* const* tensors, int64_t i, float value) const {
    // Rounded after each operation: TensorFlow runs a kernel for each.
    float& average = tensors[update_moving_averages::kVariable][i];
    average -= __fmul_rn(average - value, params.rate);
  }
};

template <typename Rule>
__global__ void __launch_bounds__(kThreads)
    UpdateAll(const TensorGroups<Rule::kGroup> __grid_constant__ groups, Scalars<Rule::kScalars> scalars, Guard guard,
              typename Rule::Params params, const unsigned long long* error) {
  if (HasDataError(error) || !guard.Applies()) return;
  const auto piece = groups.PieceOf(static_cast<int>(blockIdx.x));
  const Rule rule(params, scalars.values);
  float* const* const tensors = groups.tensors[piece.group];
  const float* const gradient = tensors[Rule::kGroup - 1];
  // Two loops: one for both, unrolled, needs more registers than there are.
  if (guard.loss_scale == nullptr) {
    for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += kThreads) rule(tensors, i, gradient[i]);
    return;
  }
  const float scale = guard.Scale();
#pragma unroll 1
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += kThreads) {
    rule(tensors, i, guard.Unscale(gradient[i], scale));
  }
}

template <typename Rule>
absl::StatusOr<Kernel> MakeUpdate(const KernelSpec& spec) {
  const Places places(spec, Rule::kScalars);
  const CudaDevice& device = CudaDeviceOf(spec);
  return Kernel{[places, launches = TensorLaunches<Rule::kGroup>(spec, places.first()),
                 params = typename Rule::Params(spec.attrs()), stream = device.stream(),
                 error = device.data_error_word()](const KernelArgs& args) {
    return launches.ForEach(args, [&](const TensorGroups<Rule::kGroup>& groups) {
      Launch(UpdateAll<Rule>, groups.num_blocks(), kThreads, 0, stream, groups, Scalars<Rule::kScalars>(args),
             places.GuardOf(args), params, error);
      return LaunchStatus("optimizer update");
    });
  }};
}

using AccumulateGroups = TensorGroups<accumulate::kGroupSize>;

__global__ void __launch_bounds__(kThreads)
    AccumulateAll(const AccumulateGroups __grid_constant__ groups, const bool* add, const unsigned long long* error) {
  if (HasDataError(error)) return;
  const auto piece = groups.PieceOf(static_cast<int>(blockIdx.x));
  float* const sum = groups.tensors[piece.group][accumulate::kVariable];
  const float* const value = groups.tensors[piece.group][accumulate::kValue];
  const bool adds = *add;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += kThreads) {
    sum[i] = adds ? sum[i] + value[i] : value[i];
  }
}

absl::StatusOr<Kernel> MakeAccumulate(const KernelSpec& spec) {
  const CudaDevice& device = CudaDeviceOf(spec);
  return Kernel{[launches = TensorLaunches<accumulate::kGroupSize>(spec, accumulate::kNumScalars),
                 stream = device.stream(), error = device.data_error_word()](const KernelArgs& args) {
    return launches.ForEach(args, [&](const AccumulateGroups& groups) {
      Launch(AccumulateAll, groups.num_blocks(), kThreads, 0, stream, groups, args.input<bool>(accumulate::kAdd),
             error);
      return LaunchStatus("AccumulateAll");
    });
  }};
}

// What is done to scalars, one by each thread.
constexpr int kMaxScalars = 64;

struct Additions {
  int count = 0;
  struct {
    void* variable;
    const void* delta;
    bool is_int64;
  } of[kMaxScalars];
};

__global__ void AddScalars(const Additions __grid_constant__ additions, const unsigned long long* error) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= additions.count || HasDataError(error)) return;
  const auto& addition = additions.of[i];
  if (addition.is_int64) {
    *static_cast<int64_t*>(addition.variable) += *static_cast<const int64_t*>(addition.delta);
  } else {
    *static_cast<float*>(addition.variable) += *static_cast<const float*>(addition.delta);
  }
}

absl::StatusOr<Kernel> MakeAssignAdd(const KernelSpec& spec) {
  const CudaDevice& device = CudaDeviceOf(spec);
  std::vector<Additions> launches;
  for (int i = 0; i < spec.node.num_inputs(); i += assign_add::kGroupSize) {
    if (launches.empty() || launches.back().count == kMaxScalars) launches.emplace_back();
    Additions& additions = launches.back();
    additions.of[additions.count++] = {nullptr, nullptr, spec.input(i).dtype == DType::kInt64};
  }
  return Kernel{[launches, stream = device.stream(),
                 error = device.data_error_word()](const KernelArgs& args) mutable -> absl::Status {
    int first = 0;
    for (Additions& additions : launches) {
      for (int i = 0; i < additions.count; ++i, first += assign_add::kGroupSize) {
        additions.of[i].variable = args.variable<char>(first + assign_add::kVariable);
        additions.of[i].delta = args.inputs[first + assign_add::kDelta];
      }
      Launch(AddScalars, 1, kMaxScalars, 0, stream, additions, error);
      RETURN_IF_ERROR(LaunchStatus("AddScalars"));
    }
    return absl::OkStatus();
  }};
}

struct Scalings {
  int count = 0;
  float* variables[kMaxScalars];
  float factors[kMaxScalars];
};

__global__ void ScaleScalars(const Scalings __grid_constant__ scalings, Guard guard, const unsigned long long* error) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < scalings.count && !HasDataError(error) && guard.Applies()) *scalings.variables[i] *= scalings.factors[i];
}

absl::StatusOr<Kernel> MakeAssignScale(const KernelSpec& spec) {
  const CudaDevice& device = CudaDeviceOf(spec);
  const Tensor& factors = spec.attrs().Get<Tensor>("factors");
  Scalings scalings;
  scalings.count = static_cast<int>(factors.num_elements());
  if (scalings.count > kMaxScalars) {
    return absl::UnimplementedError(
        absl::StrCat(spec.node.name(), " can scale up to ", kMaxScalars, " variables, not ", scalings.count));
  }
  std::copy_n(factors.data<float>(), scalings.count, scalings.factors);
  const bool guarded = spec.node.num_inputs() > scalings.count;
  return Kernel{
      [scalings, guarded, stream = device.stream(), error = device.data_error_word()](const KernelArgs& args) mutable {
        for (int i = 0; i < scalings.count; ++i) scalings.variables[i] = args.variable<float>(i);
        const Guard guard{.apply = guarded ? args.input<bool>(scalings.count) : nullptr};
        Launch(ScaleScalars, 1, kMaxScalars, 0, stream, scalings, guard, error);
        return LaunchStatus("ScaleScalars");
      }};
}

const bool registered = [] {
  const auto add = [](OpName op, KernelFactory make, std::vector<DType> dtypes = {DType::kFloat32}) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = std::move(dtypes), .make = std::move(make)});
  };
  add(op::ApplyGradientDescent, MakeUpdate<GradientDescentRule>);
  add(op::ApplyMomentum, MakeUpdate<MomentumRule>);
  add(op::ApplyAdam, MakeUpdate<AdamRule>);
  add(op::UpdateMovingAverages, MakeUpdate<MovingAverageRule>);
  add(op::Accumulate, MakeAccumulate, {DType::kBool});
  add(op::AssignAdd, MakeAssignAdd, {DType::kInt64, DType::kFloat32});
  add(op::AssignScale, MakeAssignScale);
  return true;
}();

}  // namespace
}  // namespace official::compute
