// CUDA kernels of softmax and cross entropy: a warp or a block for each row, in float whatever its storage type. A row
// is read a few times; all but the first find it in a cache.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/kernels.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {
namespace {

// A NaN may be passed over here, but not in the sum of exponentials.
struct Larger {
  __device__ float operator()(float a, float b) const { return b > a ? b : a; }
};

template <typename Threads, typename T>
__device__ float Max(const T* x, int64_t size) {
  float max = -std::numeric_limits<float>::infinity();
  Threads::ForEach(
      size, [&](int64_t, float v) { max = Larger()(max, v); }, x);
  return Threads::Reduce(max, Larger());
}

// The sum of f(x[i]...) over the row.
template <typename Threads, typename F, typename... X>
__device__ float Sum(int64_t size, F f, const X*... x) {
  float sum = 0;
  Threads::ForEach(
      size, [&](int64_t, auto... v) { sum += f(v...); }, x...);
  return Threads::Reduce(sum, math::Add());
}

template <typename Threads, typename T>
__device__ float SumExp(const T* x, int64_t size, float max) {
  return Sum<Threads>(
      size, [=](float v) { return math::Exp()(v - max); }, x);
}

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
      OneInput<Row, Threads><<<NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream>>>(
          rows, args.input<T>(0), args.output<T>(0));
    });
    return LaunchStatus("softmax");
  }};
}

template <typename Row, typename T>
Kernel MakeTwoInputs(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(0).shape), stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      TwoInputs<Row, Threads><<<NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream>>>(
          rows, args.input<T>(0), args.input<T>(1), args.output<T>(0));
    });
    return LaunchStatus("softmax gradient");
  }};
}

// The losses, and softmax minus target in `gradient`, which may be `x` itself. A row whose label is outside the classes
// is left alone.
template <typename Threads, typename T, typename Label>
__global__ void __launch_bounds__(Threads::kBlock)
    CrossEntropy(Rows rows, const T* logits, const Label* labels, float smoothing, float* losses, T* gradients,
                 DataError error) {
  const int64_t row = Threads::Row();
  if (row >= rows.count) return;
  const int64_t label = labels[row], size = rows.size;
  if (label < 0 || label >= size) {
    constexpr int64_t kLowest = std::numeric_limits<int32_t>::min(), kHighest = std::numeric_limits<int32_t>::max();
    if (Threads::Lane() == 0) {
      error.Report(static_cast<int32_t>(label < kLowest ? kLowest : label > kHighest ? kHighest : label));
    }
    return;
  }
  const T* const x = logits + row * size;
  const float max = Max<Threads>(x, size), sum = SumExp<Threads>(x, size, max);
  const float low = smoothing / static_cast<float>(size), high = 1 - smoothing + low;
  const float log_sum = std::log(sum), scale = 1 / sum;
  float smoothed = 0;
  if (smoothing > 0) {
    smoothed = smoothing * log_sum - low * Sum<Threads>(
                                               size, [=](float v) { return v - max; }, x);
  }
  // The thread that has the label's logit writes the loss, since no other may read the logit any more.
  Threads::Map(
      size, gradients + row * size,
      [=](int64_t i, float v) {
        const float p = math::Exp()(v - max) * scale;
        if (i != label) return p - low;
        losses[row] = (1 - smoothing) * (log_sum + max - v) + smoothed;
        return p - high;
      },
      x);
}

template <typename T, typename Label>
Kernel MakeCrossEntropy(const KernelSpec& spec) {
  const Rows rows = RowsOf(spec.input(0).shape);
  const float smoothing = static_cast<float>(spec.attrs().GetFloat("label_smoothing"));
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError error = device.AddDataError(spec.node, [size = rows.size](int32_t label) {
    return absl::StrCat("label ", label, " is outside [0, ", size, ")");
  });
  return {[=, stream = device.stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      CrossEntropy<Threads><<<NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream>>>(
          rows, args.input<T>(0), args.input<Label>(1), smoothing, args.output<float>(0), args.output<T>(1), error);
    });
    return LaunchStatus("CrossEntropy");
  }};
}

template <typename T>
Kernel MakeSparseSoftmaxCrossEntropy(const KernelSpec& spec) {
  return spec.input(1).dtype == DType::kInt32 ? MakeCrossEntropy<T, int32_t>(spec) : MakeCrossEntropy<T, int64_t>(spec);
}

}  // namespace

void RegisterSoftmaxCuda(KernelRegistry& kernels) {
  const auto add = [&](const char* op, auto make, std::vector<std::pair<int, int>> in_place) {
    kernels.Add({op, "cuda", StorageTypes(), ForStorageType(make), std::move(in_place)});
  };
  add("LogSoftmax", []<typename T>(const KernelSpec& spec, T) { return MakeOneInput<LogSoftmaxRow, T>(spec); },
      {{0, 0}});
  add("LogSoftmaxGrad", []<typename T>(const KernelSpec& spec, T) { return MakeTwoInputs<LogSoftmaxGradRow, T>(spec); },
      {{0, 1}, {0, 0}});
  add("Softmax", []<typename T>(const KernelSpec& spec, T) { return MakeOneInput<SoftmaxRow, T>(spec); }, {{0, 0}});
  add("SoftmaxGrad", []<typename T>(const KernelSpec& spec, T) { return MakeTwoInputs<SoftmaxGradRow, T>(spec); },
      {{0, 1}, {0, 0}});
  add("SparseSoftmaxCrossEntropy",
      []<typename T>(const KernelSpec& spec, T) { return MakeSparseSoftmaxCrossEntropy<T>(spec); }, {{1, 0}});
}

}  // namespace official::compute
