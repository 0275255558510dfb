// CPU kernels of layer normalization, alone and behind a residual sum: rows in parallel; the passes over one row find
// it in the first-level cache.

#include <algorithm>
#include <cmath>

#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/layer_norm/layer_norm.h"
#include "utils/compute/ops/packed/row_dropout.h"
#include "utils/compute/ops/rows/for_each_row.h"

namespace official::compute {
namespace {

// The mean comes first and the variance from the differences to it: E[x^2] - E[x]^2 in one pass would lose the digits
// of rows that lie far from 0. Here and in GradRow the result may be written over x or dy: `ivdep` promises that
// iterations do not depend on each other, which "#pragma omp simd" would promise as well, but GCC 12 does not vectorize
// stores of 16-bit types under it.
template <typename T>
inline void NormalizeRow(const T* x, const float* gamma, const float* beta, int64_t n, float epsilon, T* y,
                         float& mean_out, float& inverse_out) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<float>(x[i]);
  const float mean = sum / static_cast<float>(n);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    const float d = static_cast<float>(x[i]) - mean;
    squares += d * d;
  }
  const float inverse = 1 / std::sqrt(squares / static_cast<float>(n) + epsilon);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = T((static_cast<float>(x[i]) - mean) * inverse * gamma[i] + beta[i]);
  mean_out = mean;
  inverse_out = inverse;
}

// With g = dy * gamma and h the normalized x:
//   dx = inverse * (g - mean(g) - h * mean(g * h));  dgamma += dy * h;  dbeta += dy
// store(i, dx[i]) is called for each i.
template <typename T, typename StoreElement>
inline void GradRow(const T* x, const float* gamma, float mean, float inverse, const T* dy, int64_t n, float* dgamma,
                    float* dbeta, StoreElement store) {
  float sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
  for (int64_t i = 0; i < n; ++i) {
    const float d = static_cast<float>(dy[i]);
    const float h = (static_cast<float>(x[i]) - mean) * inverse;
    const float g = d * gamma[i];
    sum_g += g;
    sum_gh += g * h;
    dgamma[i] += d * h;
    dbeta[i] += d;
  }
  const float mean_g = sum_g / static_cast<float>(n), mean_gh = sum_gh / static_cast<float>(n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float h = (static_cast<float>(x[i]) - mean) * inverse;
    store(i, inverse * (static_cast<float>(dy[i]) * gamma[i] - mean_g - h * mean_gh));
  }
}

template <typename T>
Kernel MakeLayerNorm(const KernelSpec& spec) {
  namespace places = layer_norm;
  const Rows rows = RowsOf(spec.input(places::kX).shape);
  const auto epsilon = static_cast<float>(spec.attrs().GetFloat("epsilon"));
  return {[rows, epsilon](const KernelArgs& args) {
    ForEachRow(rows, [&](int64_t row) {
      NormalizeRow(args.input<T>(places::kX) + row * rows.size, args.input<float>(places::kGamma),
                   args.input<float>(places::kBeta), rows.size, epsilon, args.output<T>(places::kY) + row * rows.size,
                   args.output<float>(places::kMean)[row], args.output<float>(places::kInverseDeviation)[row]);
    });
    return absl::OkStatus();
  }};
}

// result[i] = sum over k of partials[k * stride + i], for i in [begin, end).
inline void SumPartials(const float* partials, int64_t count, int64_t stride, int64_t begin, int64_t end,
                        float* result) {
  std::copy(partials + begin, partials + end, result + begin);
  for (int64_t k = 1; k < count; ++k) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) result[i] += partials[k * stride + i];
  }
}

// Runs the backward pass of rows: row(r, dgamma, dbeta) adds to the latter two. The sums over rows are made in chunks
// whose number depends on the shape alone, each into its own part of the scratch memory: dgamma and dbeta do not depend
// on how many threads there are.
class GradRows {
 public:
  explicit GradRows(const Rows& rows) : rows_(rows), chunks_(std::clamp<int64_t>(rows.count / 16, 1, 64)) {}

  int64_t scratch_bytes() const { return chunks_ * 2 * rows_.size * static_cast<int64_t>(sizeof(float)); }

  template <typename Row>
  void Run(void* scratch, float* dgamma, float* dbeta, Row row) const {
    constexpr int64_t kGrain = 8192;  // elements worth a thread
    const int64_t n = rows_.size, chunk_elements = std::max<int64_t>(1, rows_.count * n / chunks_);
    auto* const partials = static_cast<float*>(scratch);  // [chunks, 2, n]
    ParallelFor(chunks_, std::max<int64_t>(1, kGrain / chunk_elements), [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        for (int64_t k = begin; k < end; ++k) {
          float* const partial = partials + k * 2 * n;
          std::fill_n(partial, 2 * n, 0.0f);
          for (int64_t r = rows_.count * k / chunks_; r < rows_.count * (k + 1) / chunks_; ++r) {
            row(r, partial, partial + n);
          }
        }
      });
    });
    ParallelFor(n, std::max<int64_t>(16, kGrain / chunks_), [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        SumPartials(partials, chunks_, 2 * n, begin, end, dgamma);
        SumPartials(partials + n, chunks_, 2 * n, begin, end, dbeta);
      });
    });
  }

 private:
  const Rows rows_;
  const int64_t chunks_;
};

template <typename T>
Kernel MakeLayerNormGrad(const KernelSpec& spec) {
  namespace places = layer_norm_grad;
  const int64_t n = RowsOf(spec.input(places::kX).shape).size;
  const GradRows rows(RowsOf(spec.input(places::kX).shape));
  Kernel kernel;
  kernel.scratch_bytes = rows.scratch_bytes();
  kernel.run = [rows, n](const KernelArgs& args) {
    float* const dgamma_sum = args.output<float>(places::kGammaGradient);
    float* const dbeta_sum = args.output<float>(places::kBetaGradient);
    rows.Run(args.scratch, dgamma_sum, dbeta_sum, [&](int64_t r, float* dgamma, float* dbeta) {
      T* const dx = args.output<T>(places::kDx) + r * n;
      GradRow(args.input<T>(places::kX) + r * n, args.input<float>(places::kGamma), args.input<float>(places::kMean)[r],
              args.input<float>(places::kInverseDeviation)[r], args.input<T>(places::kDy) + r * n, n, dgamma, dbeta,
              [=](int64_t i, float v) { dx[i] = T(v); });
    });
    return absl::OkStatus();
  };
  return kernel;
}

// Results may be written over inputs, element by element.
template <typename T>
Kernel MakeResidualLayerNorm(const KernelSpec& spec) {
  namespace places = residual_layer_norm;
  const Rows rows = RowsOf(spec.input(places::kX).shape);
  const int64_t n = rows.size;
  const auto epsilon = static_cast<float>(spec.attrs().GetFloat("epsilon"));
  const RowDropout dropout(spec, places::kOffsets, places::kRandomState);
  return {[=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(dropout.CheckOffsets(args));
    ForEachRow(rows, [&](int64_t r) {
      T *const sum = args.output<T>(places::kSum) + r * n, *const y = args.output<T>(places::kNormalized) + r * n;
      float &mean = args.output<float>(places::kMean)[r], &inverse = args.output<float>(places::kInverseDeviation)[r];
      const T *const x = args.input<T>(places::kX) + r * n, *const sublayer = args.input<T>(places::kSublayer) + r * n;
      const PackedPosition at = dropout.PositionOf(args, r);
      if (dropout.IsPadding(at)) {
        std::fill_n(sum, n, T(0.0f));
        std::fill_n(y, n, T(0.0f));
        mean = inverse = 0;
        return;
      }
      dropout.ForEach(args, at, n, [=](int64_t i, float factor) {
        sum[i] = T(static_cast<float>(x[i]) + static_cast<float>(sublayer[i]) * factor);
      });
      NormalizeRow(sum, args.input<float>(places::kGamma), args.input<float>(places::kBeta), n, epsilon, y, mean,
                   inverse);
    });
    return absl::OkStatus();
  }};
}

template <typename T>
Kernel MakeResidualLayerNormGrad(const KernelSpec& spec) {
  namespace places = residual_layer_norm_grad;
  const int64_t n = RowsOf(spec.input(places::kNormalizedGradient).shape).size;
  const GradRows rows(RowsOf(spec.input(places::kNormalizedGradient).shape));
  const RowDropout dropout(spec, places::kOffsets, places::kRandomState);
  const int added = spec.attrs().GetBool("adds") ? spec.node.num_inputs() - 1 : -1;
  Kernel kernel;
  kernel.scratch_bytes = rows.scratch_bytes();
  kernel.run = [=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(dropout.CheckOffsets(args));
    float* const dgamma_sum = args.output<float>(places::kGammaGradient);
    float* const dbeta_sum = args.output<float>(places::kBetaGradient);
    rows.Run(args.scratch, dgamma_sum, dbeta_sum, [&](int64_t r, float* dgamma, float* dbeta) {
      T* const dx = args.output<T>(places::kDx) + r * n;
      T* const dsublayer = args.output<T>(places::kSublayerGradient) + r * n;
      const PackedPosition at = dropout.PositionOf(args, r);
      if (dropout.IsPadding(at)) {
        std::fill_n(dx, n, T(0.0f));
        std::fill_n(dsublayer, n, T(0.0f));
        return;
      }
      const T* const dsum = added < 0 ? nullptr : args.input<T>(added) + r * n;
      const auto grad_row = [&](auto store) {
        GradRow(args.input<T>(places::kSum) + r * n, args.input<float>(places::kGamma),
                args.input<float>(places::kMean)[r], args.input<float>(places::kInverseDeviation)[r],
                args.input<T>(places::kNormalizedGradient) + r * n, n, dgamma, dbeta, store);
      };
      if (dsum == nullptr) {
        grad_row([=](int64_t i, float v) { dx[i] = T(v); });
      } else {
        grad_row([=](int64_t i, float v) { dx[i] = T(v + static_cast<float>(dsum[i])); });
      }
      dropout.ForEach(args, at, n,
                      [=](int64_t i, float factor) { dsublayer[i] = T(static_cast<float>(dx[i]) * factor); });
    });
    return absl::OkStatus();
  };
  return kernel;
}

const bool registered[] = {
    RegisterKernel({
        .op = op::LayerNorm,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeLayerNorm<T>(spec); }),
        .in_place = {{layer_norm::kY, layer_norm::kX}},
    }),
    RegisterKernel({
        .op = op::LayerNormGrad,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeLayerNormGrad<T>(spec); }),
        .in_place = {{layer_norm_grad::kDx, layer_norm_grad::kDy}, {layer_norm_grad::kDx, layer_norm_grad::kX}},
    }),
    RegisterKernel({
        .op = op::ResidualLayerNorm,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeResidualLayerNorm<T>(spec); }),
        .in_place = {{residual_layer_norm::kSum, residual_layer_norm::kX},
                     {residual_layer_norm::kSum, residual_layer_norm::kSublayer},
                     {residual_layer_norm::kNormalized, residual_layer_norm::kSublayer}},
    }),
    RegisterKernel({
        .op = op::ResidualLayerNormGrad,
        .device_kind = "cpu",
        .dtypes = StorageTypes(),
        .make =
            ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeResidualLayerNormGrad<T>(spec); }),
        .in_place = {{residual_layer_norm_grad::kDx, residual_layer_norm_grad::kSum},
                     {residual_layer_norm_grad::kSublayerGradient, residual_layer_norm_grad::kNormalizedGradient}},
    }),
};

}  // namespace
}  // namespace official::compute
