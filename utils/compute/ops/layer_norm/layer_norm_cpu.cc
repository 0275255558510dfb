// CPU kernels of layer normalization: rows in parallel; the passes over one row find it in the first-level cache.

#include <algorithm>
#include <cmath>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/rows/for_each_row.h"
#include "utils/compute/runtime/kernel.h"

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
template <typename T>
inline void GradRow(const T* x, const float* gamma, float mean, float inverse, const T* dy, int64_t n, T* dx,
                    float* dgamma, float* dbeta) {
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
    dx[i] = T(inverse * (static_cast<float>(dy[i]) * gamma[i] - mean_g - h * mean_gh));
  }
}

template <typename T>
Kernel MakeLayerNorm(const KernelSpec& spec) {
  const Rows rows = RowsOf(spec.input(0).shape);
  const auto epsilon = static_cast<float>(spec.attrs().GetFloat("epsilon"));
  return {[rows, epsilon](const KernelArgs& args) {
    ForEachRow(rows, [&](int64_t row) {
      NormalizeRow(args.input<T>(0) + row * rows.size, args.input<float>(1), args.input<float>(2), rows.size, epsilon,
                   args.output<T>(0) + row * rows.size, args.output<float>(1)[row], args.output<float>(2)[row]);
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

// The sums over rows are made in chunks whose number depends on the shape alone, each into its own part of the scratch
// memory: dgamma and dbeta do not depend on how many threads there are.
template <typename T>
Kernel MakeLayerNormGrad(const KernelSpec& spec) {
  constexpr int64_t kGrain = 8192;  // elements worth a thread
  const Rows rows = RowsOf(spec.input(0).shape);
  const int64_t n = rows.size;
  const int64_t chunks = std::clamp<int64_t>(rows.count / 16, 1, 64);
  Kernel kernel;
  kernel.scratch_bytes = chunks * 2 * n * static_cast<int64_t>(sizeof(float));
  kernel.run = [rows, n, chunks](const KernelArgs& args) {
    auto* partials = static_cast<float*>(args.scratch);  // [chunks, 2, n]
    const int64_t chunk_elements = std::max<int64_t>(1, rows.count * n / chunks);
    ParallelFor(chunks, std::max<int64_t>(1, kGrain / chunk_elements), [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        for (int64_t k = begin; k < end; ++k) {
          float* dgamma = partials + k * 2 * n;
          std::fill_n(dgamma, 2 * n, 0.0f);
          for (int64_t r = rows.count * k / chunks; r < rows.count * (k + 1) / chunks; ++r) {
            GradRow(args.input<T>(0) + r * n, args.input<float>(1), args.input<float>(2)[r], args.input<float>(3)[r],
                    args.input<T>(4) + r * n, n, args.output<T>(0) + r * n, dgamma, dgamma + n);
          }
        }
      });
    });
    ParallelFor(n, std::max<int64_t>(16, kGrain / chunks), [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        SumPartials(partials, chunks, 2 * n, begin, end, args.output<float>(1));
        SumPartials(partials + n, chunks, 2 * n, begin, end, args.output<float>(2));
      });
    });
    return absl::OkStatus();
  };
  return kernel;
}

const bool layer_norm = RegisterKernel({
    .op = "LayerNorm",
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeLayerNorm<T>(spec); }),
    .in_place = {{0, 0}},
});

const bool layer_norm_grad = RegisterKernel({
    .op = "LayerNormGrad",
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeLayerNormGrad<T>(spec); }),
    .in_place = {{0, 4}, {0, 0}},
});

}  // namespace
}  // namespace official::compute
