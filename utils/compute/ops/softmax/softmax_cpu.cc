// CPU kernels of softmax and cross entropy: rows in parallel, each row in float whatever its storage type.

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/rows/for_each_row.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

// A NaN in the row may be passed over here, but not in the sum of exponentials.
template <typename T>
inline float Max(const T* x, int64_t n) {
  auto max = static_cast<float>(x[0]);
#pragma omp simd reduction(max : max)
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(x[i]);
    max = value > max ? value : max;
  }
  return max;
}

template <typename T>
inline float SumExp(const T* x, int64_t n, float max) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += math::Exp()(static_cast<float>(x[i]) - max);
  return sum;
}

// The kernel that calls row(args, offset of the row, its size) for each row of input 0. Results may be written over
// inputs: in the loops below `ivdep` promises that iterations do not depend on each other.
template <typename F>
Kernel RowKernel(const KernelSpec& spec, F row) {
  return {[rows = RowsOf(spec.input(0).shape), row](const KernelArgs& args) {
    ForEachRow(rows, [&](int64_t r) { row(args, r * rows.size, rows.size); });
    return absl::OkStatus();
  }};
}

template <typename T>
Kernel MakeSoftmax(const KernelSpec& spec) {
  return RowKernel(spec, [](const KernelArgs& args, int64_t offset, int64_t n) {
    const T* x = args.input<T>(0) + offset;
    T* y = args.output<T>(0) + offset;
    const float max = Max(x, n);
    const float scale = 1 / SumExp(x, n, max);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = T(math::Exp()(static_cast<float>(x[i]) - max) * scale);
  });
}

template <typename T>
Kernel MakeLogSoftmax(const KernelSpec& spec) {
  return RowKernel(spec, [](const KernelArgs& args, int64_t offset, int64_t n) {
    const T* x = args.input<T>(0) + offset;
    T* y = args.output<T>(0) + offset;
    const float max = Max(x, n);
    const float log_sum = std::log(SumExp(x, n, max));
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = T(static_cast<float>(x[i]) - max - log_sum);
  });
}

// dx = y * (dy - sum(y * dy))
template <typename T>
Kernel MakeSoftmaxGrad(const KernelSpec& spec) {
  return RowKernel(spec, [](const KernelArgs& args, int64_t offset, int64_t n) {
    const T* y = args.input<T>(0) + offset;
    const T* dy = args.input<T>(1) + offset;
    T* dx = args.output<T>(0) + offset;
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < n; ++i) dot += static_cast<float>(y[i]) * static_cast<float>(dy[i]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) dx[i] = T(static_cast<float>(y[i]) * (static_cast<float>(dy[i]) - dot));
  });
}

// dx = dy - exp(y) * sum(dy)
template <typename T>
Kernel MakeLogSoftmaxGrad(const KernelSpec& spec) {
  return RowKernel(spec, [](const KernelArgs& args, int64_t offset, int64_t n) {
    const T* y = args.input<T>(0) + offset;
    const T* dy = args.input<T>(1) + offset;
    T* dx = args.output<T>(0) + offset;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += static_cast<float>(dy[i]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = T(static_cast<float>(dy[i]) - math::Exp()(static_cast<float>(y[i])) * sum);
    }
  });
}

// One row: the loss, and softmax minus target in `gradient`, which may be `x` itself.
template <typename T>
inline float CrossEntropyRow(const T* x, int64_t n, int64_t label, float smoothing, T* gradient) {
  const float max = Max(x, n);
  const float sum = SumExp(x, n, max);
  const float low = smoothing / static_cast<float>(n), high = 1 - smoothing + low;
  const float log_sum = std::log(sum);
  float loss = (1 - smoothing) * (log_sum + max - static_cast<float>(x[label]));
  if (smoothing > 0) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += static_cast<float>(x[i]) - max;
    loss += smoothing * log_sum - low * total;
  }
  const float scale = 1 / sum;
  const float at_label = math::Exp()(static_cast<float>(x[label]) - max) * scale - high;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) gradient[i] = T(math::Exp()(static_cast<float>(x[i]) - max) * scale - low);
  gradient[label] = T(at_label);
  return loss;
}

template <typename T, typename Label>
Kernel MakeCrossEntropy(const KernelSpec& spec) {
  const Rows rows = RowsOf(spec.input(0).shape);
  const float smoothing = static_cast<float>(spec.attrs().GetFloat("label_smoothing"));
  return {[rows, smoothing](const KernelArgs& args) -> absl::Status {
    const Label* labels = args.input<Label>(1);
    for (int64_t row = 0; row < rows.count; ++row) {
      if (labels[row] < 0 || labels[row] >= rows.size) {
        return absl::InvalidArgumentError(
            absl::StrCat("label ", labels[row], " of example ", row, " is outside [0, ", rows.size, ")"));
      }
    }
    ForEachRow(rows, [&](int64_t row) {
      args.output<float>(0)[row] = CrossEntropyRow(args.input<T>(0) + row * rows.size, rows.size, labels[row],
                                                   smoothing, args.output<T>(1) + row * rows.size);
    });
    return absl::OkStatus();
  }};
}

template <typename T>
Kernel MakeSparseSoftmaxCrossEntropy(const KernelSpec& spec) {
  return spec.input(1).dtype == DType::kInt32 ? MakeCrossEntropy<T, int32_t>(spec) : MakeCrossEntropy<T, int64_t>(spec);
}

// `make` is called as make(spec, T()), T being the type of input 0.
template <typename Make>
bool Register(const char* op, Make make, std::vector<std::pair<int, int>> in_place) {
  return RegisterKernel({.op = op,
                         .device_kind = "cpu",
                         .dtypes = StorageTypes(),
                         .make = ForStorageType(make),
                         .in_place = std::move(in_place)});
}

const bool registered[] = {
    Register("Softmax", []<typename T>(const KernelSpec& spec, T) { return MakeSoftmax<T>(spec); }, {{0, 0}}),
    Register("SoftmaxGrad", []<typename T>(const KernelSpec& spec, T) { return MakeSoftmaxGrad<T>(spec); },
             {{0, 1}, {0, 0}}),
    Register("LogSoftmax", []<typename T>(const KernelSpec& spec, T) { return MakeLogSoftmax<T>(spec); }, {{0, 0}}),
    Register("LogSoftmaxGrad", []<typename T>(const KernelSpec& spec, T) { return MakeLogSoftmaxGrad<T>(spec); },
             {{0, 1}, {0, 0}}),
    Register("SparseSoftmaxCrossEntropy",
             []<typename T>(const KernelSpec& spec, T) { return MakeSparseSoftmaxCrossEntropy<T>(spec); }, {{1, 0}}),
};

}  // namespace
}  // namespace official::compute
