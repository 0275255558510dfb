// CUDA kernels of layer normalization: a warp or a block for each row; for gamma's and beta's gradients a column of
// threads for a chunk of rows, whose number depends on the shape alone.

#include "utils/compute/ops/layer_norm/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/packed/row_dropout_cuda.h"
#include "utils/compute/ops/rows/rows.h"

namespace official::compute {
namespace {

constexpr int kColumns = 32, kLanes = 8;  // of a block that sums over rows

// The variance is made of the differences to the mean, as on the CPU.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    NormalizeRows(Rows rows, const T* input, const float* gamma, const float* beta, float epsilon, T* output,
                  float* means, float* inverses) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  const T* const x = input + row * size;
  float sum = 0;
  Threads::ForEach(
      size, [&](int64_t, float v) { sum += v; }, x);
  const float mean = Threads::Reduce(sum, math::Add()) / static_cast<float>(size);
  float squares = 0;
  Threads::ForEach(
      size, [&](int64_t, float v) { squares += (v - mean) * (v - mean); }, x);
  const float variance = Threads::Reduce(squares, math::Add()) / static_cast<float>(size);
  const float inverse = 1 / std::sqrt(variance + epsilon);
  Threads::Map(
      size, output + row * size, [=](int64_t, float v, float g, float b) { return (v - mean) * inverse * g + b; }, x,
      gamma, beta);
  if (Threads::Lane() == 0) {
    means[row] = mean;
    inverses[row] = inverse;
  }
}

// What the gradients are made of; inputs of the op.
template <typename T>
struct Forward {
  const T* x;
  const float *gamma, *mean, *inverse;
};

// With g = dy * gamma and h the normalized x: dx = inverse * (g - mean(g) - h * mean(g * h)). dx may be x or dy.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) GradRows(Rows rows, Forward<T> forward, const T* dys, T* dxs) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  const T *const x = forward.x + row * size, *const dy = dys + row * size;
  const float mean = forward.mean[row], inverse = forward.inverse[row];
  float sum_g = 0, sum_gh = 0;
  Threads::ForEach(
      size,
      [&](int64_t, float d, float v, float gamma) {
        const float g = d * gamma;
        sum_g += g;
        sum_gh += g * ((v - mean) * inverse);
      },
      dy, x, forward.gamma);
  const float mean_g = Threads::Reduce(sum_g, math::Add()) / static_cast<float>(size);
  const float mean_gh = Threads::Reduce(sum_gh, math::Add()) / static_cast<float>(size);
  Threads::Map(
      size, dxs + row * size,
      [=](int64_t, float d, float v, float gamma) {
        return inverse * (d * gamma - mean_g - (v - mean) * inverse * mean_gh);
      },
      dy, x, forward.gamma);
}

// partials [chunks, 2, size]: the sums of dy * h and of dy over each chunk of rows, those from *num_rows on left out
// (nullptr: all). Block (column / kColumns, chunk).
template <typename T>
__global__ void __launch_bounds__(kColumns* kLanes)
    SumChunks(Rows rows, const int32_t* num_rows, Forward<T> forward, const T* dy, float* partials) {
  const int x = threadIdx.x % kColumns, lane = threadIdx.x / kColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + x;
  const int64_t begin = rows.count * blockIdx.y / gridDim.y;
  int64_t end = rows.count * (blockIdx.y + 1) / gridDim.y;
  if (num_rows != nullptr) end = min(end, static_cast<int64_t>(*num_rows));
  float dgamma = 0, dbeta = 0;
  if (column < rows.size) {
    for (int64_t r = begin + lane; r < end; r += kLanes) {
      const float d = static_cast<float>(dy[r * rows.size + column]);
      const float v = static_cast<float>(forward.x[r * rows.size + column]);
      dgamma += d * ((v - forward.mean[r]) * forward.inverse[r]);
      dbeta += d;
    }
  }
  __shared__ Shared<float[kLanes][kColumns]> dgammas, dbetas;
  dgammas[lane][x] = dgamma;
  dbetas[lane][x] = dbeta;
  __syncthreads();
  if (lane != 0 || column >= rows.size) return;
  for (int k = 1; k < kLanes; ++k) {
    dgamma += dgammas[k][x];
    dbeta += dbetas[k][x];
  }
  float* const to = partials + static_cast<int64_t>(blockIdx.y) * 2 * rows.size + column;
  to[0] = dgamma;
  to[rows.size] = dbeta;
}

__global__ void AddChunks(const float* partials, int64_t chunks, int64_t size, float* dgamma, float* dbeta) {
  const auto i = ThreadIndex<int64_t>();
  if (i >= 2 * size) return;
  float sum = 0;
  for (int64_t k = 0; k < chunks; ++k) sum += partials[k * 2 * size + i];
  (i < size ? dgamma[i] : dbeta[i - size]) = sum;
}

template <typename T>
Kernel MakeLayerNorm(const KernelSpec& spec) {
  namespace places = layer_norm;
  const Rows rows = RowsOf(spec.input(places::kX).shape);
  const auto epsilon = static_cast<float>(spec.attrs().GetFloat("epsilon"));
  return {[rows, epsilon, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      Launch(NormalizeRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             args.input<T>(places::kX), args.input<float>(places::kGamma), args.input<float>(places::kBeta), epsilon,
             args.output<T>(places::kY), args.output<float>(places::kMean),
             args.output<float>(places::kInverseDeviation));
    });
    return LaunchStatus("NormalizeRows");
  }};
}

// Of ResidualLayerNorm: the sum of each row, then its normalization, as above. The thread that wrote an element of the
// sum reads it again.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    AddAndNormalizeRows(Rows rows, CudaRowDropout dropout, const int32_t* offsets, const int64_t* state, const T* input,
                        const T* sublayer, const float* gamma, const float* beta, float epsilon, T* sums, T* output,
                        float* means, float* inverses) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  dropout.CheckOffsets(offsets, row, rows.count);
  const PackedPosition at = PositionOfRow(offsets, dropout.batch, row);
  const bool padding = at.sequence == dropout.batch;
  T *const sum_row = sums + row * size, *const y = output + row * size;
  const T *const x = input + row * size, *const s = sublayer + row * size;
  float sum = 0;
  dropout.ForEach(state, at, size, Threads::Lane(), Threads::kRowThreads, [&](int64_t i, float factor) {
    const T v = T(padding ? 0.0f : static_cast<float>(x[i]) + static_cast<float>(s[i]) * factor);
    sum_row[i] = v;
    sum += static_cast<float>(v);
  });
  const float mean = Threads::Reduce(sum, math::Add()) / static_cast<float>(size);
  const auto for_each = [&](auto f) {
    for (int64_t draw = Threads::Lane(); draw < (size + kDrawColumns - 1) / kDrawColumns * kDrawLanes;
         draw += Threads::kRowThreads) {
      for (int k = 0; k < 4; ++k) {
        const int64_t i = draw / kDrawLanes * kDrawColumns + k * kDrawLanes + draw % kDrawLanes;
        if (i < size) f(i, static_cast<float>(sum_row[i]));
      }
    }
  };
  float squares = 0;
  for_each([&](int64_t, float v) { squares += (v - mean) * (v - mean); });
  const float variance = Threads::Reduce(squares, math::Add()) / static_cast<float>(size);
  const float inverse = padding ? 0.0f : 1 / std::sqrt(variance + epsilon);
  for_each([&](int64_t i, float v) { y[i] = T(padding ? 0.0f : (v - mean) * inverse * gamma[i] + beta[i]); });
  if (Threads::Lane() == 0) {
    means[row] = mean;
    inverses[row] = inverse;
  }
}

// As GradRows, plus the gradient of the sum itself (nullptr: none); then the sublayer's share of it. dxs may be the
// sum, dsublayers dy.
template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock)
    ResidualGradRows(Rows rows, CudaRowDropout dropout, const int32_t* offsets, const int64_t* state,
                     Forward<T> forward, const T* dys, const T* dsums, T* dxs, T* dsublayers) {
  const int64_t row = Threads::Row(), size = rows.size;
  if (row >= rows.count) return;
  const PackedPosition at = PositionOfRow(offsets, dropout.batch, row);
  const bool padding = at.sequence == dropout.batch;
  const T *const x = forward.x + row * size, *const dy = dys + row * size;
  const float mean = forward.mean[row], inverse = forward.inverse[row];
  float sum_g = 0, sum_gh = 0;
  Threads::ForEach(
      size,
      [&](int64_t, float d, float v, float gamma) {
        const float g = d * gamma;
        sum_g += g;
        sum_gh += g * ((v - mean) * inverse);
      },
      dy, x, forward.gamma);
  const float mean_g = Threads::Reduce(sum_g, math::Add()) / static_cast<float>(size);
  const float mean_gh = Threads::Reduce(sum_gh, math::Add()) / static_cast<float>(size);
  T *const dx = dxs + row * size, *const dsublayer = dsublayers + row * size;
  dropout.ForEach(state, at, size, Threads::Lane(), Threads::kRowThreads, [&](int64_t i, float factor) {
    const float h = (static_cast<float>(x[i]) - mean) * inverse;
    float d = inverse * (static_cast<float>(dy[i]) * forward.gamma[i] - mean_g - h * mean_gh);
    if (dsums != nullptr) d += static_cast<float>(dsums[row * size + i]);
    const T rounded = T(padding ? 0.0f : d);
    dx[i] = rounded;
    dsublayer[i] = T(padding ? 0.0f : static_cast<float>(rounded) * factor);
  });
}

// dgamma and dbeta. `partials` is scratch memory for ParameterChunks() * 2 rows.
int64_t ParameterChunks(const Rows& rows) {
  constexpr int64_t kRowsOfChunk = 64, kMaxChunks = 64;
  return std::clamp<int64_t>(rows.count / kRowsOfChunk, 1, kMaxChunks);
}
template <typename T>
absl::Status ParameterGradients(cudaStream_t stream, const Rows& rows, const int32_t* num_rows,
                                const Forward<T>& forward, const T* dy, float* partials, float* dgamma, float* dbeta) {
  constexpr int kThreads = 256;
  const int64_t chunks = ParameterChunks(rows);
  const dim3 grid(NumBlocks(rows.size, kColumns), static_cast<unsigned>(chunks));
  Launch(SumChunks<T>, grid, kColumns * kLanes, 0, stream, rows, num_rows, forward, dy, partials);
  RETURN_IF_ERROR(LaunchStatus("SumChunks"));
  Launch(AddChunks, NumBlocks(2 * rows.size, kThreads), kThreads, 0, stream, partials, chunks, rows.size, dgamma,
         dbeta);
  return LaunchStatus("AddChunks");
}

template <typename T>
Kernel MakeLayerNormGrad(const KernelSpec& spec) {
  namespace places = layer_norm_grad;
  const Rows rows = RowsOf(spec.input(places::kX).shape);
  Kernel kernel;
  kernel.scratch_bytes = ParameterChunks(rows) * 2 * rows.size * static_cast<int64_t>(sizeof(float));
  kernel.run = [rows, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    const Forward<T> forward{args.input<T>(places::kX), args.input<float>(places::kGamma),
                             args.input<float>(places::kMean), args.input<float>(places::kInverseDeviation)};
    const T* const dy = args.input<T>(places::kDy);
    RETURN_IF_ERROR(ParameterGradients(stream, rows, nullptr, forward, dy, static_cast<float*>(args.scratch),
                                       args.output<float>(places::kGammaGradient),
                                       args.output<float>(places::kBetaGradient)));
    if (rows.count == 0) return absl::OkStatus();
    // Last, since it may write over x or dy.
    WithRowThreads<kWidestLoad<T>>(rows.size, [&]<typename Threads>(Threads) {
      Launch(GradRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream, rows,
             forward, dy, args.output<T>(places::kDx));
    });
    return LaunchStatus("GradRows");
  };
  return kernel;
}

template <typename T>
Kernel MakeResidualLayerNorm(const KernelSpec& spec) {
  namespace places = residual_layer_norm;
  const Rows rows = RowsOf(spec.input(places::kX).shape);
  const auto epsilon = static_cast<float>(spec.attrs().GetFloat("epsilon"));
  const CudaRowDropout dropout(spec, places::kOffsets);
  return {[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) {
    if (rows.count == 0) return absl::OkStatus();
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
      Launch(AddAndNormalizeRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream,
             rows, dropout, args.input<int32_t>(places::kOffsets),
             dropout.drop ? args.input<int64_t>(places::kRandomState) : nullptr, args.input<T>(places::kX),
             args.input<T>(places::kSublayer), args.input<float>(places::kGamma), args.input<float>(places::kBeta),
             epsilon, args.output<T>(places::kSum), args.output<T>(places::kNormalized),
             args.output<float>(places::kMean), args.output<float>(places::kInverseDeviation));
    });
    return LaunchStatus("AddAndNormalizeRows");
  }};
}

template <typename T>
Kernel MakeResidualLayerNormGrad(const KernelSpec& spec) {
  namespace places = residual_layer_norm_grad;
  const Rows rows = RowsOf(spec.input(places::kNormalizedGradient).shape);
  const CudaRowDropout dropout(spec, places::kOffsets);
  const int added = spec.attrs().GetBool("adds") ? spec.node.num_inputs() - 1 : -1;
  Kernel kernel;
  kernel.scratch_bytes = ParameterChunks(rows) * 2 * rows.size * static_cast<int64_t>(sizeof(float));
  kernel.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    const Forward<T> forward{args.input<T>(places::kSum), args.input<float>(places::kGamma),
                             args.input<float>(places::kMean), args.input<float>(places::kInverseDeviation)};
    const T* const dy = args.input<T>(places::kNormalizedGradient);
    const int32_t* const offsets = args.input<int32_t>(places::kOffsets);
    RETURN_IF_ERROR(ParameterGradients(stream, rows, offsets + dropout.batch, forward, dy,
                                       static_cast<float*>(args.scratch), args.output<float>(places::kGammaGradient),
                                       args.output<float>(places::kBetaGradient)));
    if (rows.count == 0) return absl::OkStatus();
    // Last, since it may write over its inputs.
    WithRowThreads<1>(rows.size, [&]<typename Threads>(Threads) {
      Launch(ResidualGradRows<Threads, T>, NumBlocks(rows.count, Threads::kRowsOfBlock), Threads::kBlock, 0, stream,
             rows, dropout, offsets, dropout.drop ? args.input<int64_t>(places::kRandomState) : nullptr, forward, dy,
             added < 0 ? nullptr : args.input<T>(added), args.output<T>(places::kDx),
             args.output<T>(places::kSublayerGradient));
    });
    return LaunchStatus("ResidualGradRows");
  };
  return kernel;
}

const bool registered = [] {
  RegisterKernel({
      .op = op::LayerNorm,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeLayerNorm<T>(spec); }),
      .in_place = {{layer_norm::kY, layer_norm::kX}},
  });
  RegisterKernel({
      .op = op::LayerNormGrad,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeLayerNormGrad<T>(spec); }),
      .in_place = {{layer_norm_grad::kDx, layer_norm_grad::kDy}, {layer_norm_grad::kDx, layer_norm_grad::kX}},
  });
  RegisterKernel({
      .op = op::ResidualLayerNorm,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeResidualLayerNorm<T>(spec); }),
      .in_place = {{residual_layer_norm::kSum, residual_layer_norm::kX},
                   {residual_layer_norm::kSum, residual_layer_norm::kSublayer},
                   {residual_layer_norm::kNormalized, residual_layer_norm::kSublayer}},
  });
  RegisterKernel({
      .op = op::ResidualLayerNormGrad,
      .device_kind = "cuda",
      .dtypes = StorageTypes(),
      .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeResidualLayerNormGrad<T>(spec); }),
      .in_place = {{residual_layer_norm_grad::kDx, residual_layer_norm_grad::kSum},
                   {residual_layer_norm_grad::kSublayerGradient, residual_layer_norm_grad::kNormalizedGradient}},
  });
  return true;
}();

}  // namespace
}  // namespace official::compute
