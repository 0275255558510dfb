// CUDA kernels of the optimizers: one launch for the variables of an update, each block taking a piece of one of them.
// If an earlier kernel of the step found wrong data, the variables stay as they are.

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/kernels.h"
#include "utils/compute/cuda/sorted_indices.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kPiece = 2048;      // elements of a block
constexpr int kMaxTensors = 256;  // of a launch: the list is a kernel argument, of which 32,764 bytes fit

// An update rule is a value of the first kScalars inputs, which are read in the kernel, and is applied to each element
// of groups of kGroup tensors.
struct GradientDescentRule {
  static constexpr int kScalars = 1, kGroup = 2;
  struct Params {
    explicit Params(const Attrs&) {}
  };
  float lr;

  __device__ GradientDescentRule(const Params&, const float* const* scalars) : lr(*scalars[0]) {}
  __device__ void operator()(float* const* tensors, int64_t i) const { tensors[0][i] -= lr * tensors[1][i]; }
};

struct MomentumRule {
  static constexpr int kScalars = 1, kGroup = 3;
  struct Params {
    float momentum;
    bool nesterov;
    explicit Params(const Attrs& attrs)
        : momentum(static_cast<float>(attrs.GetFloat("momentum"))), nesterov(attrs.GetBool("nesterov")) {}
  };
  Params params;
  float lr;

  __device__ MomentumRule(const Params& params, const float* const* scalars) : params(params), lr(*scalars[0]) {}
  __device__ void operator()(float* const* tensors, int64_t i) const {
    const float g = tensors[2][i], a = tensors[1][i] * params.momentum + g;
    tensors[1][i] = a;
    tensors[0][i] -= params.nesterov ? g * lr + a * params.momentum * lr : a * lr;
  }
};

struct AdamRule {
  static constexpr int kScalars = 3, kGroup = 4;
  struct Params {
    float one_minus_beta1, one_minus_beta2, epsilon;
    explicit Params(const Attrs& attrs)
        : one_minus_beta1(1 - static_cast<float>(attrs.GetFloat("beta1"))),
          one_minus_beta2(1 - static_cast<float>(attrs.GetFloat("beta2"))),
          epsilon(static_cast<float>(attrs.GetFloat("epsilon"))) {}
  };
  Params params;
  float alpha;  // lr * sqrt(1 - beta2^t) / (1 - beta1^t)

  __device__ AdamRule(const Params& params, const float* const* scalars)
      : params(params), alpha(*scalars[0] * std::sqrt(1 - *scalars[2]) / (1 - *scalars[1])) {}
  // In TensorFlow's order of operations.
  __device__ void Update(float& variable, float& m, float& v, float g) const {
    m += (g - m) * params.one_minus_beta1;
    v += (g * g - v) * params.one_minus_beta2;
    variable -= (m * alpha) / (std::sqrt(v) + params.epsilon);
  }
  __device__ void operator()(float* const* tensors, int64_t i) const {
    Update(tensors[0][i], tensors[1][i], tensors[2][i], tensors[3][i]);
  }
};

struct MovingAverageRule {
  static constexpr int kScalars = 0, kGroup = 2;
  struct Params {
    float decay;
    explicit Params(const Attrs& attrs) : decay(static_cast<float>(1 - attrs.GetFloat("momentum"))) {}
  };
  Params params;

  __device__ MovingAverageRule(const Params& params, const float* const*) : params(params) {}
  __device__ void operator()(float* const* tensors, int64_t i) const {
    tensors[0][i] -= (tensors[0][i] - tensors[1][i]) * params.decay;
  }
};

template <typename Rule>
struct Launch {
  const float* scalars[Rule::kScalars + 1];  // the last one is not used
  int num_groups = 0;
  int first_block[kMaxTensors + 1] = {0};  // of each group, and the end
  int64_t sizes[kMaxTensors];
  float* tensors[kMaxTensors][Rule::kGroup];
};

template <typename Rule>
__global__ void __launch_bounds__(kThreads) UpdateAll(const __grid_constant__ Launch<Rule> launch,
                                                      typename Rule::Params params, const unsigned long long* error) {
  if (HasDataError(error)) return;
  const int block = static_cast<int>(blockIdx.x);
  // The last group that begins at this block or before, and has elements.
  int low = 0, high = launch.num_groups;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (launch.first_block[middle] <= block ? low : high) = middle;
  }
  const Rule rule(params, launch.scalars);
  const int64_t begin = static_cast<int64_t>(block - launch.first_block[low]) * kPiece;
  const int64_t end = begin + kPiece < launch.sizes[low] ? begin + kPiece : launch.sizes[low];
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) rule(launch.tensors[low], i);
}

template <typename Rule>
absl::StatusOr<Kernel> MakeUpdate(const KernelSpec& spec) {
  const auto launches = std::make_shared<std::vector<Launch<Rule>>>();
  for (int i = Rule::kScalars; i < spec.node.num_inputs(); i += Rule::kGroup) {
    if (launches->empty() || launches->back().num_groups == kMaxTensors) launches->emplace_back();
    Launch<Rule>& launch = launches->back();
    const int group = launch.num_groups++;
    launch.sizes[group] = spec.input(i).shape.num_elements();
    launch.first_block[group + 1] =
        launch.first_block[group] + static_cast<int>((launch.sizes[group] + kPiece - 1) / kPiece);
  }
  const CudaDevice& device = CudaDeviceOf(spec);
  return Kernel{[launches, params = typename Rule::Params(spec.attrs()), stream = device.stream(),
                 error = device.data_error_word()](const KernelArgs& args) -> absl::Status {
    int next = Rule::kScalars;
    for (Launch<Rule>& launch : *launches) {
      for (int k = 0; k < Rule::kScalars; ++k) launch.scalars[k] = args.input<float>(k);
      for (int g = 0; g < launch.num_groups; ++g) {
        for (int k = 0; k < Rule::kGroup; ++k) launch.tensors[g][k] = args.variable<float>(next++);
      }
      const int num_blocks = launch.first_block[launch.num_groups];
      if (num_blocks == 0) continue;
      UpdateAll<Rule><<<num_blocks, kThreads, 0, stream>>>(launch, params, error);
      RETURN_IF_ERROR(LaunchStatus("optimizer update"));
    }
    return absl::OkStatus();
  }};
}

struct LazyAdamTensors {
  const float* scalars[AdamRule::kScalars];
  float *variable, *m, *v;
  const float* gradient_rows;
};

// A warp for each place in the sorted order; the first place of each row sums the gradients of all, in the order of
// their positions, and updates the row.
__global__ void UpdateRows(LazyAdamTensors tensors, AdamRule::Params params, const int32_t* indices,
                           const int32_t* positions, int32_t count, int64_t row, const unsigned long long* error) {
  if (HasDataError(error)) return;
  const int32_t i = (blockIdx.x * kThreads + threadIdx.x) / warpSize;
  if (i >= count || (i > 0 && indices[i - 1] == indices[i])) return;
  const AdamRule rule(params, tensors.scalars);
  for (int64_t c = threadIdx.x % warpSize; c < row; c += warpSize) {
    float g = 0;
    for (int32_t j = i; j < count && indices[j] == indices[i]; ++j) g += tensors.gradient_rows[positions[j] * row + c];
    const int64_t at = indices[i] * row + c;
    rule.Update(tensors.variable[at], tensors.m[at], tensors.v[at], g);
  }
}

absl::StatusOr<Kernel> MakeLazyAdam(const KernelSpec& spec) {
  const auto count = static_cast<int32_t>(spec.input(6).shape.num_elements());
  const auto num_rows = static_cast<int32_t>(spec.input(3).shape.dim(0));
  const int64_t row = spec.input(3).shape.num_elements() / std::max<int32_t>(1, num_rows);
  CudaDevice& device = CudaDeviceOf(spec);
  ASSIGN_OR_RETURN(const SortedIndices sort, SortedIndices::Make(device, spec.node, "row", count, num_rows));
  Kernel kernel;
  kernel.scratch_bytes = sort.scratch_bytes();
  kernel.run = [=, params = AdamRule::Params(spec.attrs()), stream = device.stream(),
                error = device.data_error_word()](const KernelArgs& args) -> absl::Status {
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const SortedIndices::Result sorted, sort.Sort(args.input<int32_t>(6), args.scratch));
    const LazyAdamTensors tensors{{args.input<float>(0), args.input<float>(1), args.input<float>(2)},
                                  args.variable<float>(3),
                                  args.variable<float>(4),
                                  args.variable<float>(5),
                                  args.input<float>(7)};
    constexpr int kWarps = kThreads / 32;
    UpdateRows<<<(count + kWarps - 1) / kWarps, kThreads, 0, stream>>>(tensors, params, sorted.indices,
                                                                       sorted.positions, count, row, error);
    return LaunchStatus("UpdateRows");
  };
  return kernel;
}

template <typename T>
__global__ void AddScalar(T* variable, const T* delta, const unsigned long long* error) {
  if (!HasDataError(error)) *variable += *delta;
}

template <typename T>
Kernel MakeAssignAddOf(const KernelSpec& spec) {
  const CudaDevice& device = CudaDeviceOf(spec);
  return Kernel{[stream = device.stream(), error = device.data_error_word()](const KernelArgs& args) {
    AddScalar<T><<<1, 1, 0, stream>>>(args.variable<T>(0), args.input<T>(1), error);
    return LaunchStatus("AddScalar");
  }};
}

absl::StatusOr<Kernel> MakeAssignAdd(const KernelSpec& spec) {
  return spec.input(0).dtype == DType::kInt64 ? MakeAssignAddOf<int64_t>(spec) : MakeAssignAddOf<float>(spec);
}

__global__ void ScaleScalar(float* variable, float factor, const unsigned long long* error) {
  if (!HasDataError(error)) *variable *= factor;
}

absl::StatusOr<Kernel> MakeAssignScale(const KernelSpec& spec) {
  const CudaDevice& device = CudaDeviceOf(spec);
  const auto factor = static_cast<float>(spec.attrs().GetFloat("factor"));
  return Kernel{[factor, stream = device.stream(), error = device.data_error_word()](const KernelArgs& args) {
    ScaleScalar<<<1, 1, 0, stream>>>(args.variable<float>(0), factor, error);
    return LaunchStatus("ScaleScalar");
  }};
}

}  // namespace

void RegisterOptimizerCuda(KernelRegistry& kernels) {
  const auto add = [&](const char* op, KernelFactory make, std::vector<DType> dtypes = {DType::kFloat32}) {
    kernels.Add({.op = op, .device_kind = "cuda", .dtypes = std::move(dtypes), .make = std::move(make)});
  };
  add("ApplyGradientDescent", MakeUpdate<GradientDescentRule>);
  add("ApplyMomentum", MakeUpdate<MomentumRule>);
  add("ApplyAdam", MakeUpdate<AdamRule>);
  add("ApplyLazyAdam", MakeLazyAdam);
  add("UpdateMovingAverages", MakeUpdate<MovingAverageRule>);
  add("AssignAdd", MakeAssignAdd, {DType::kInt64, DType::kFloat32});
  add("AssignScale", MakeAssignScale);
}

}  // namespace official::compute
