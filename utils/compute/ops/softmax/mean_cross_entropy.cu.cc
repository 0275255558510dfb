// CUDA kernel of MeanCrossEntropy: one block for the whole batch, a warp for each row, then one for each class. It
// computes as the kernels of the nodes that it replaces, in float and, where these sum over rows, in double.

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/softmax/cross_entropy.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/softmax/softmax_cuda.h"

namespace official::compute {
namespace {

namespace places = mean_cross_entropy;

using Warp = RowThreads<32, 1>;
using Block = RowThreads<1024, 1>;
constexpr int kWarps = Block::kBlock / 32;

enum Found : int32_t { kNaN, kInfinity, kMinusInfinity };

struct Smaller {
  __device__ int operator()(int a, int b) const { return b < a ? b : a; }
};

// Whether the row's largest element is at `label`: that which std::max_element finds, which stays with a NaN that comes
// first.
template <typename T>
__device__ bool IsLargest(const T* x, int64_t size, float max, int64_t label) {
  int first = static_cast<int>(size);
  Warp::ForEach(
      size, [&](int64_t i, float v) { first = v == max ? Smaller()(first, static_cast<int>(i)) : first; }, x);
  first = Warp::Reduce(first, Smaller());
  return label == (isnan(static_cast<float>(x[0])) ? 0 : first);
}

template <typename T, typename Label>
struct Step {
  const T* logits;
  const Label* labels;
  const float* loss_gradients;
  float *mean_loss, *correct;
  T *gradient, *bias_gradient;
};

template <typename T, typename Label>
__global__ void __launch_bounds__(Block::kBlock)
    MeanLoss(CrossEntropy c, Step<T, Label> step, bool checked, DataError bad_label, DataError bad_loss) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t size = c.rows.size;
  double total = 0;
  int correct = 0;
  for (int64_t row = warp; row < c.rows.count; row += kWarps) {
    const T* const x = step.logits + row * size;
    const int64_t label = step.labels[row];
    if (label < 0 || label >= size) {
      if (Warp::Lane() == 0) ReportLabel(label, bad_label);
      Warp::Map(
          size, step.gradient + row * size, [](int64_t, float) { return 0.0f; }, x);
      continue;
    }
    const float max = Max<Warp>(x, size), log = std::log(SumExp<Warp>(x, size, max)), log_sum = log + max;
    float log_probabilities = 0;
    if (c.IsSmooth()) {
      log_probabilities = Sum<Warp>(
          size, [=](float v) { return v - max; }, x);
    }
    const bool is_correct = IsLargest(x, size, max, label);
    if (Warp::Lane() == 0) {
      total += c.Loss(static_cast<float>(x[label]) - log_sum, log_probabilities - static_cast<float>(size) * log);
      correct += is_correct;
    }
    const float dy = step.loss_gradients[row];
    Warp::Map(
        size, step.gradient + row * size,
        [=](int64_t i, float v) { return (math::Exp()(v - log_sum) - (i == label ? c.target : c.other_target)) * dy; },
        x);
  }
  total = Block::Reduce(total, math::Add());  // also a barrier behind the gradients
  correct = Block::Reduce(correct, math::Add());
  if (threadIdx.x == 0) {
    const float mean = static_cast<float>(total / static_cast<double>(c.rows.count));
    *step.mean_loss = mean;
    *step.correct = static_cast<float>(correct);
    if (checked && !isfinite(mean)) bad_loss.Report(isnan(mean) ? kNaN : mean > 0 ? kInfinity : kMinusInfinity);
  }
  for (int64_t column = warp; column < size; column += kWarps) {
    double sum = 0;
    for (int64_t row = Warp::Lane(); row < c.rows.count; row += Warp::kRowThreads) {
      sum += static_cast<double>(static_cast<float>(step.gradient[row * size + column]));
    }
    sum = Warp::Reduce(sum, math::Add());
    if (Warp::Lane() == 0) step.bias_gradient[column] = T(static_cast<float>(sum));
  }
}

template <typename T, typename Label>
Kernel MakeKernel(const KernelSpec& spec) {
  const CrossEntropy c(spec.node);
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError bad_label = AddLabelError(device, spec.node, c);
  const DataError bad_loss = device.AddDataError(
      spec.node,
      [](int32_t found) {
        return absl::StrCat("the mean loss is ", found == kNaN ? "nan" : found == kInfinity ? "inf" : "-inf");
      },
      absl::StatusCode::kOutOfRange);
  return {[=, checked = spec.attrs().GetBool("checked"), stream = device.stream()](const KernelArgs& args) {
    const Step<T, Label> step{args.input<T>(places::kLogits),
                              args.input<Label>(places::kLabels),
                              args.input<float>(places::kLossGradients),
                              args.output<float>(places::kMeanLoss),
                              args.output<float>(places::kCorrect),
                              args.output<T>(places::kLogitsGradient),
                              args.output<T>(places::kBiasGradient)};
    Launch(MeanLoss<T, Label>, 1, Block::kBlock, 0, stream, c, step, checked, bad_label, bad_loss);
    return LaunchStatus("MeanLoss");
  }};
}

const bool registered = RegisterKernel({
    .op = op::MeanCrossEntropy,
    .device_kind = "cuda",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) {
      return spec.input(places::kLabels).dtype == DType::kInt32 ? MakeKernel<T, int32_t>(spec)
                                                                : MakeKernel<T, int64_t>(spec);
    }),
});

}  // namespace
}  // namespace official::compute
