// CPU kernels of softmax and cross entropy: rows in parallel, each row in float whatever its storage type.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/rows/for_each_row.h"
#include "utils/compute/ops/softmax/cross_entropy.h"
#include "utils/compute/ops/softmax/softmax.h"

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

template <typename T>
Kernel MakeLogSumExp(const KernelSpec& spec) {
  return {[rows = RowsOf(spec.input(0).shape)](const KernelArgs& args) {
    ForEachRow(rows, [&](int64_t r) {
      const T* x = args.input<T>(0) + r * rows.size;
      const float max = Max(x, rows.size);
      args.output<float>(0)[r] = std::log(SumExp(x, rows.size, max)) + max;
    });
    return absl::OkStatus();
  }};
}

// dx = y * (dy - sum(y * dy))
template <typename T>
Kernel MakeSoftmaxGrad(const KernelSpec& spec) {
  return RowKernel(spec, [](const KernelArgs& args, int64_t offset, int64_t n) {
    const T* y = args.input<T>(softmax_grad::kY) + offset;
    const T* dy = args.input<T>(softmax_grad::kDy) + offset;
    T* dx = args.output<T>(softmax_grad::kDx) + offset;
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
    const T* y = args.input<T>(softmax_grad::kY) + offset;
    const T* dy = args.input<T>(softmax_grad::kDy) + offset;
    T* dx = args.output<T>(softmax_grad::kDx) + offset;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += static_cast<float>(dy[i]);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = T(static_cast<float>(dy[i]) - math::Exp()(static_cast<float>(y[i])) * sum);
    }
  });
}

// One row: the loss, and in `log_sum` the logarithm of the sum of the exponentials.
template <typename T>
inline float CrossEntropyRow(const CrossEntropy& c, const T* x, int64_t label, float& log_sum) {
  const int64_t n = c.classes;
  const float max = Max(x, n);
  float sum = 0, total = 0;
  if (c.IsSmooth()) {
#pragma omp simd reduction(+ : sum, total)
    for (int64_t i = 0; i < n; ++i) {
      const float v = static_cast<float>(x[i]) - max;
      sum += math::Exp()(v);
      total += v;
    }
  } else {
    sum = SumExp(x, n, max);
  }
  const float log = std::log(sum);
  log_sum = log + max;
  return c.Loss(static_cast<float>(x[label]) - log_sum, total - static_cast<float>(n) * log);
}

// One row of the gradient, (softmax - target) * dy, which may be written over the logits.
template <typename T>
inline void CrossEntropyGradRow(const CrossEntropy& c, const T* x, int64_t label, float log_sum, float dy, T* dx) {
  const float at_label = math::Exp()(static_cast<float>(x[label]) - log_sum) - c.target;
#pragma GCC ivdep
  for (int64_t i = 0; i < c.classes; ++i) {
    dx[i] = T((math::Exp()(static_cast<float>(x[i]) - log_sum) - c.other_target) * dy);
  }
  dx[label] = T(at_label * dy);
  std::fill(dx + c.classes, dx + c.rows.size, T(0.0f));
}

// The labels of the rows, an input of either type.
class Labels {
 public:
  Labels(const KernelArgs& args, int place, DType dtype)
      : int32_(dtype == DType::kInt32 ? args.input<int32_t>(place) : nullptr),
        int64_(dtype == DType::kInt32 ? nullptr : args.input<int64_t>(place)) {}

  inline int64_t operator[](int64_t row) const { return int32_ != nullptr ? int32_[row] : int64_[row]; }

 private:
  const int32_t* int32_;
  const int64_t* int64_;
};

absl::Status CheckLabels(const CrossEntropy& c, const Labels& labels) {
  for (int64_t row = 0; row < c.rows.count; ++row) {
    if (labels[row] >= 0 && labels[row] < c.classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("label ", labels[row], " of example ", row, " is outside [0, ", c.classes, ")"));
  }
  return absl::OkStatus();
}

template <typename T>
Kernel MakeSparseSoftmaxCrossEntropy(const KernelSpec& spec) {
  namespace places = sparse_softmax_cross_entropy;
  const DType label_dtype = spec.input(places::kLabels).dtype;
  return {[c = CrossEntropy(spec.node), label_dtype](const KernelArgs& args) -> absl::Status {
    const Labels labels(args, places::kLabels, label_dtype);
    RETURN_IF_ERROR(CheckLabels(c, labels));
    ForEachRow(c.rows, [&](int64_t row) {
      float &loss = args.output<float>(places::kLosses)[row], &log_sum = args.output<float>(places::kLogSums)[row];
      loss = log_sum = 0;
      if (c.IsPadding(labels[row])) return;
      loss = CrossEntropyRow(c, args.input<T>(places::kLogits) + row * c.rows.size, labels[row], log_sum);
    });
    return absl::OkStatus();
  }};
}

template <typename T>
Kernel MakeSparseSoftmaxCrossEntropyGrad(const KernelSpec& spec) {
  namespace places = sparse_softmax_cross_entropy_grad;
  const DType label_dtype = spec.input(places::kLabels).dtype;
  return {[c = CrossEntropy(spec.node), label_dtype](const KernelArgs& args) {
    const Labels labels(args, places::kLabels, label_dtype);
    ForEachRow(c.rows, [&](int64_t row) {
      T* const dx = args.output<T>(places::kLogitsGradient) + row * c.rows.size;
      if (c.IsPadding(labels[row])) {
        std::fill_n(dx, c.rows.size, T(0.0f));
        return;
      }
      CrossEntropyGradRow(c, args.input<T>(places::kLogits) + row * c.rows.size, labels[row],
                          args.input<float>(places::kLogSums)[row], args.input<float>(places::kLossGradients)[row], dx);
    });
    return absl::OkStatus();
  }};
}

// `make` is called as make(spec, T()), T being the type of input 0.
template <typename Make>
bool Register(OpName op, Make make, std::vector<std::pair<int, int>> in_place) {
  return RegisterKernel({.op = op,
                         .device_kind = "cpu",
                         .dtypes = StorageTypes(),
                         .make = ForStorageType(make),
                         .in_place = std::move(in_place)});
}

const bool registered[] = {
    Register(op::Softmax, []<typename T>(const KernelSpec& spec, T) { return MakeSoftmax<T>(spec); }, {{0, 0}}),
    Register(op::SoftmaxGrad, []<typename T>(const KernelSpec& spec, T) { return MakeSoftmaxGrad<T>(spec); },
             {{softmax_grad::kDx, softmax_grad::kDy}, {softmax_grad::kDx, softmax_grad::kY}}),
    Register(op::LogSoftmax, []<typename T>(const KernelSpec& spec, T) { return MakeLogSoftmax<T>(spec); }, {{0, 0}}),
    Register(op::LogSoftmaxGrad, []<typename T>(const KernelSpec& spec, T) { return MakeLogSoftmaxGrad<T>(spec); },
             {{softmax_grad::kDx, softmax_grad::kDy}, {softmax_grad::kDx, softmax_grad::kY}}),
    Register(op::LogSumExp, []<typename T>(const KernelSpec& spec, T) { return MakeLogSumExp<T>(spec); }, {}),
    Register(op::SparseSoftmaxCrossEntropy,
             []<typename T>(const KernelSpec& spec, T) { return MakeSparseSoftmaxCrossEntropy<T>(spec); }, {}),
    Register(op::SparseSoftmaxCrossEntropyGrad,
             []<typename T>(const KernelSpec& spec, T) { return MakeSparseSoftmaxCrossEntropyGrad<T>(spec); },
             {{sparse_softmax_cross_entropy_grad::kLogitsGradient, sparse_softmax_cross_entropy_grad::kLogits}}),
};

}  // namespace
}  // namespace official::compute
