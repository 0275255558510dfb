// CUDA kernels of softmax and cross entropy: a warp or a block for each row, in float whatever its storage type. A row
// is read a few times; all but the first find it in a cache.

#include "utils/compute/ops/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/rows/rows.h"
#include "utils/compute/ops/softmax/cross_entropy.h"
#include "utils/compute/ops/softmax/softmax_cuda.h"

namespace official::compute {
namespace {

struct SoftmaxRow {
  template <typename Threads, typename T>
  __device__ static void Run(const T* x, T* y, int64_t size) {
    const float max = Max<Threads>(x, size);
    const float scale = 1 / SumExp<Threads>(x, size, max);
    Threads::Map(
        size, y, [=](int64_t, float v) { return math::Exp()(v - max) * scale; }, x);
  }
};

struct LogSoftmaxRow {
  template <typename Threads, typename T>
  __device__ static void Run(const T* x, T* y, int64_t size) {
    const float max = Max<Threads>(x, size);
    const float log_sum = std::log(SumExp<Threads>(x, size, max));
    Threads::Map(
        size, y, [=](int64_t, float v) { return v - max - log_sum; }, x);
  }
};

// dx = y * (dy - sum(y * dy))
struct SoftmaxGradRow {
  template <typename Threads, typename T>
  __device__ static void Run(const T* y, const T* dy, T* dx, int64_t size) {
    const float dot = Sum<Threads>(
        size, [](float v, float d) { return v * d; }, y, dy);
    Threads::Map(
        size, dx, [=](int64_t, float v, float d) { return v * (d - dot); }, y, dy);
  }
};

// dx = dy - exp(y) * sum(dy)
struct LogSoftmaxGradRow {
  template <typename Threads, typename T>
  __device__ static void Run(const T* y, const T* dy, T* dx, int64_t size) {
    const float sum = Sum<Threads>(
        size, [](float d) { return d; }, dy);
    Threads::Map(
        size, dx, [=](int64_t, float v, float d) { return d - math::Exp()(v) * sum; }, y, dy);
  }
};

template <typename Row, typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) OneInput(Rows rows, const T* x, T* y) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  Row::template Run<Threads>(x + row * rows.size, y + row * rows.size, rows.size);
}

template <typename Row, typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) TwoInputs(Rows rows, const T* a, const T* b, T* y) {
  const int64_t row = Threads::Row(), offset = row * rows.size;
  if (row >= rows.count) return;
  Row::template Run<Threads>(a + offset, b + offset, y + offset, rows.size);
}

template <typename Row, typename T>
Kernel MakeOneInput(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(0).shape), stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      Launch(OneInput<Row, Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             args.input<T>(0), args.output<T>(0));
    });
    return LaunchStatus("softmax");
  }};
}

template <typename Row, typename T>
Kernel MakeTwoInputs(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(softmax_grad::kY).shape),
           stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      Launch(TwoInputs<Row, Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             args.input<T>(softmax_grad::kY), args.input<T>(softmax_grad::kDy), args.output<T>(softmax_grad::kDx));
    });
    return LaunchStatus("softmax gradient");
  }};
}

template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) LogSums(Rows rows, const T* x, float* log_sums) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  const float max = Max<Threads>(x + row * rows.size, rows.size);
  const float log = std::log(SumExp<Threads>(x + row * rows.size, rows.size, max));
  if (Threads::Lane() == 0) log_sums[row] = log + max;
}

template <typename T>
Kernel MakeLogSumExp(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(0).shape), stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      Launch(LogSums<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             args.input<T>(0), args.output<float>(0));
    });
    return LaunchStatus("LogSums");
  }};
}

// The losses, and the logarithm of the sum of each row's exponentials. A row whose label is outside the classes is left
// alone.
template <typename Threads, typename T, typename Label>
__global__ void __launch_bounds__(Threads::kBlock)
    Losses(CrossEntropy c, const T* logits, const Label* labels, float* losses, float* log_sums, DataError error) {
  const int64_t row = Threads::Row();
  if (row >= c.rows.count) return;
  const int64_t label = labels[row], size = c.classes;
  if (label < 0 || label >= size) {
    if (Threads::Lane() == 0) ReportLabel(label, error);
    return;
  }
  if (c.IsPadding(label)) {
    if (Threads::Lane() == 0) losses[row] = log_sums[row] = 0;
    return;
  }
  const T* const x = logits + row * c.rows.size;
  // Each thread brings one of the classes behind the last whole pack of them, if there is one for it.
  const int64_t in_packs = size - size % Threads::kElements, behind = in_packs + Threads::Lane();
  const bool has_more = behind < size;
  const float more = has_more ? static_cast<float>(x[behind]) : -std::numeric_limits<float>::infinity();
  const float max = Max<Threads>(x, in_packs, more);
  const float log = std::log(SumExp<Threads>(x, in_packs, max, math::Exp()(more - max)));
  float total = 0;
  if (c.IsSmooth()) {
    total = SumWith<Threads>(
        has_more ? more - max : 0.0f, in_packs, [=](float v) { return v - max; }, x);
  }
  if (Threads::Lane() == 0) {
    losses[row] = c.Loss(static_cast<float>(x[label]) - (log + max), total - static_cast<float>(size) * log);
    log_sums[row] = log + max;
  }
}

// (softmax - target) * dy, and 0 behind the classes, which may be written over the logits.
template <typename Threads, typename T, typename Label>
__global__ void __launch_bounds__(Threads::kBlock)
    LossGradients(CrossEntropy c, const T* logits, const Label* labels, const float* log_sums, const float* dys,
                  T* gradients) {
  const int64_t row = Threads::Row();
  if (row >= c.rows.count) return;
  const int64_t label = labels[row];
  const bool padding = c.IsPadding(label);
  const float log_sum = log_sums[row], dy = dys[row];
  Threads::Map(
      c.rows.size, gradients + row * c.rows.size,
      [=](int64_t i, float v) {
        return padding || i >= c.classes ? 0.0f
                                         : (math::Exp()(v - log_sum) - (i == label ? c.target : c.other_target)) * dy;
      },
      logits + row * c.rows.size);
}

template <typename T, typename Label>
Kernel MakeCrossEntropy(const KernelSpec& spec) {
  namespace places = sparse_softmax_cross_entropy;
  const CrossEntropy c(spec.node);
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError error = AddLabelError(device, spec.node, c);
  return {[=, stream = device.stream()](const KernelArgs& args) {
    if (c.rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(c.rows.size, [&]<typename Threads>(Threads) {
      Launch(Losses<Threads, T, Label>, NumBlocks(c.rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, c,
             args.input<T>(places::kLogits), args.input<Label>(places::kLabels), args.output<float>(places::kLosses),
             args.output<float>(places::kLogSums), error);
    });
    return LaunchStatus("Losses");
  }};
}

template <typename T, typename Label>
Kernel MakeCrossEntropyGrad(const KernelSpec& spec) {
  namespace places = sparse_softmax_cross_entropy_grad;
  return {[c = CrossEntropy(spec.node), stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (c.rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(c.rows.size, [&]<typename Threads>(Threads) {
      Launch(LossGradients<Threads, T, Label>, NumBlocks(c.rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0,
             stream, c, args.input<T>(places::kLogits), args.input<Label>(places::kLabels),
             args.input<float>(places::kLogSums), args.input<float>(places::kLossGradients),
             args.output<T>(places::kLogitsGradient));
    });
    return LaunchStatus("LossGradients");
  }};
}

template <typename T>
Kernel MakeSparseSoftmaxCrossEntropy(const KernelSpec& spec) {
  namespace in = sparse_softmax_cross_entropy;
  return spec.input(in::kLabels).dtype == DType::kInt32 ? MakeCrossEntropy<T, int32_t>(spec)
                                                        : MakeCrossEntropy<T, int64_t>(spec);
}

template <typename T>
Kernel MakeSparseSoftmaxCrossEntropyGrad(const KernelSpec& spec) {
  namespace in = sparse_softmax_cross_entropy_grad;
  return spec.input(in::kLabels).dtype == DType::kInt32 ? MakeCrossEntropyGrad<T, int32_t>(spec)
                                                        : MakeCrossEntropyGrad<T, int64_t>(spec);
}

const bool registered = [] {
  const auto add = [](OpName op, auto make, std::vector<std::pair<int, int>> in_place) {
    RegisterKernel({op, "cuda", StorageTypes(), ForStorageType(make), std::move(in_place)});
  };
  add(op::LogSoftmax, []<typename T>(const KernelSpec& spec, T) { return MakeOneInput<LogSoftmaxRow, T>(spec); },
      {{0, 0}});
  add(op::LogSoftmaxGrad,
      []<typename T>(const KernelSpec& spec, T) { return MakeTwoInputs<LogSoftmaxGradRow, T>(spec); },
      {{softmax_grad::kDx, softmax_grad::kDy}, {softmax_grad::kDx, softmax_grad::kY}});
  add(op::LogSumExp, []<typename T>(const KernelSpec& spec, T) { return MakeLogSumExp<T>(spec); }, {});
  add(op::Softmax, []<typename T>(const KernelSpec& spec, T) { return MakeOneInput<SoftmaxRow, T>(spec); }, {{0, 0}});
  add(op::SoftmaxGrad, []<typename T>(const KernelSpec& spec, T) { return MakeTwoInputs<SoftmaxGradRow, T>(spec); },
      {{softmax_grad::kDx, softmax_grad::kDy}, {softmax_grad::kDx, softmax_grad::kY}});
  add(op::SparseSoftmaxCrossEntropy,
      []<typename T>(const KernelSpec& spec, T) { return MakeSparseSoftmaxCrossEntropy<T>(spec); }, {});
  add(op::SparseSoftmaxCrossEntropyGrad,
      []<typename T>(const KernelSpec& spec, T) { return MakeSparseSoftmaxCrossEntropyGrad<T>(spec); },
      {{sparse_softmax_cross_entropy_grad::kLogitsGradient, sparse_softmax_cross_entropy_grad::kLogits}});
  return true;
}();

}  // namespace
}  // namespace official::compute
