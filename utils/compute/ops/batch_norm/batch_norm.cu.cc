// CUDA kernels of batch normalization. Each reads its images twice: once for the sums per channel, once to write the
// result.

#include "utils/compute/ops/batch_norm/batch_norm.h"

#include <algorithm>
#include <string>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/channel_pieces.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/cuda/row_threads.h"

namespace official::compute {
namespace {

namespace training = fused_batch_norm;
namespace inference = fused_batch_norm_inference;
namespace backward = fused_batch_norm_grad;

constexpr int kThreads = ChannelPieces::kThreads;

// What is computed from x alone, the same wherever it is computed: the gradient must find the sign that y had.
__device__ float Normalize(float x, float mean, float scale, float beta) { return fmaf(x - mean, scale, beta); }

struct Pair {
  float x, y;
  __device__ void operator+=(const Pair& other) {
    x += other.x;
    y += other.y;
  }
};

// Mean and sum of squared deviations of each channel in each piece: [piece][2][channels]. Summed about the piece's
// first row rather than zero, so that a mean far from zero does not swallow the variance.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) PieceMoments(ChannelPieces v, const T* x, float* moments) {
  const int64_t first_row = v.FirstRow(blockIdx.y);
  Pack<T, kWidth> center = {};
  if (v.HasRows<kWidth>()) center = LoadPack<kWidth>(x + first_row * v.channels + v.Channel<kWidth>());
  const Pair sum = v.Sum<Pair, kWidth>([=](int64_t i) { return LoadPack<kWidth>(x + i); },
                                       [=](Pair(&sums)[kWidth], const Pack<T, kWidth>& loaded) {
#pragma unroll
                                         for (int k = 0; k < kWidth; ++k) {
                                           const float d = loaded.Float(k) - center.Float(k);
                                           sums[k] += Pair{d, d * d};
                                         }
                                       });
  if (!v.HasSum<kWidth>()) return;
  const int64_t channel = v.SumChannel<kWidth>();
  const float n = static_cast<float>(v.LastRow(blockIdx.y) - first_row);
  float* const moment = moments + 2 * blockIdx.y * v.channels + channel;
  const float squares = sum.y - sum.x * sum.x / n;
  moment[0] = static_cast<float>(x[first_row * v.channels + channel]) + sum.x / n;
  moment[v.channels] = squares < 0.0f ? 0.0f : squares;
}

// The threads that merge the pieces of a channel.
using Warp = RowThreads<32, 1>;

unsigned MergeBlocks(const ChannelPieces& v) { return NumBlocks(v.channels, Warp::kRowsOfBlock); }

// The sum of f(piece) over the pieces of a channel: each lane of a warp adds up every 32nd piece, the lanes a tree.
template <typename F>
__device__ double SumOfPieces(const ChannelPieces& v, F f) {
  double sum = 0;
#pragma unroll 4
  for (int64_t piece = Warp::Lane(); piece < v.pieces; piece += Warp::kRowThreads) sum += f(piece);
  return Warp::Reduce(sum, [](double a, double b) { return a + b; });
}

// Mean and variance of the pieces together, a warp for each channel: the mean first, so that the squared deviations
// about it are a plain sum, too. scale = gamma * inverse_std
__global__ void MergeMoments(ChannelPieces v, const float* moments, const float* gamma, float epsilon, float* mean,
                             float* variance, float* inverse_std, float* scale) {
  const int64_t c = Warp::Row();
  if (c >= v.channels) return;
  const auto rows_of = [&v](int64_t piece) { return static_cast<double>(v.LastRow(piece) - v.FirstRow(piece)); };
  const auto at = [=](int64_t piece, int k) { return static_cast<double>(moments[(2 * piece + k) * v.channels + c]); };
  const double total = static_cast<double>(v.rows), divisor = v.rows > 0 ? total : 1.0;
  const double center = SumOfPieces(v, [&](int64_t piece) { return rows_of(piece) * at(piece, 0); }) / divisor;
  const double squares = SumOfPieces(v, [&](int64_t piece) {
    const double delta = at(piece, 0) - center;
    return at(piece, 1) + rows_of(piece) * delta * delta;
  });
  if (Warp::Lane() != 0) return;
  const float biased = static_cast<float>(squares / divisor);
  const float bessel = static_cast<float>(total / std::max(total - 1, 1.0));
  const float inverse = 1.0f / sqrtf(biased + epsilon);
  mean[c] = static_cast<float>(center);
  variance[c] = biased * bessel;
  inverse_std[c] = inverse;
  scale[c] = gamma[c] * inverse;
}

__global__ void InferenceScale(ChannelPieces v, const float* gamma, const float* variance, float epsilon,
                               float* scale) {
  const int64_t c = ThreadIndex<int64_t>();
  if (c < v.channels) scale[c] = gamma[c] / sqrtf(variance[c] + epsilon);
}

// y = activation((x - mean) * scale + beta + residual), the last of which may be absent. y may lie over x or residual.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) Apply(ChannelPieces v, const T* x, const float* mean, const float* scale,
                                                  const float* beta, const T* residual, bool relu, T* y) {
  if (!v.HasRows<kWidth>()) return;
  const int64_t channel = v.Channel<kWidth>();
  const auto means = LoadPack<kWidth>(mean + channel), scales = LoadPack<kWidth>(scale + channel);
  const auto betas = LoadPack<kWidth>(beta + channel);
  struct Loaded {
    Pack<T, kWidth> x, residual;
  };
  const auto load = [=](int64_t i) {
    Loaded loaded;
    loaded.x = LoadPack<kWidth>(x + i);
    if (residual != nullptr) loaded.residual = LoadPack<kWidth>(residual + i);
    return loaded;
  };
  v.ForRows<kWidth>(load, [=](int64_t i, const Loaded& loaded) {
    Pack<float, kWidth> values;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      float value = Normalize(loaded.x.Float(k), means.at[k], scales.at[k], betas.at[k]);
      if (residual != nullptr) value += loaded.residual.Float(k);
      values.at[k] = relu && value < 0.0f ? 0.0f : value;  // NaN stays NaN
    }
    StorePack(y + i, RoundPack<T>(values));
  });
}

template <typename T>
void LaunchApply(cudaStream_t stream, const ChannelPieces& v, const T* x, const float* mean, const float* scale,
                 const float* beta, const T* residual, bool relu, T* y) {
  WithWidth<T>(v, [&](auto width) {
    Launch(Apply<T, width()>, v.PieceBlocks(), kThreads, 0, stream, v, x, mean, scale, beta, residual, relu, y);
  });
}

struct NormOptions {
  float epsilon;
  bool relu, residual;
};
// `residual` is the place of the residual, the last input if there is one.
NormOptions OptionsOf(const KernelSpec& spec, int residual) {
  return {static_cast<float>(spec.attrs().GetFloat("epsilon")), spec.attrs().Get<std::string>("activation") == "Relu",
          spec.node.num_inputs() > residual};
}

template <typename T>
absl::StatusOr<Kernel> MakeTraining(const KernelSpec& spec) {
  const ChannelPieces v = ChannelPieces::Packed(spec.input(training::kX));
  Kernel kernel;
  kernel.scratch_bytes = (v.pieces * 2 + 1) * v.channels * static_cast<int64_t>(sizeof(float));
  kernel.run = [=, options = OptionsOf(spec, training::kResidual),
                stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    if (v.channels == 0) return absl::OkStatus();
    float* const scale = static_cast<float*>(args.scratch);
    float* const moments = scale + v.channels;
    float* const mean = args.output<float>(training::kMean);
    if (!v.empty()) {
      WithWidth<T>(v, [&](auto width) {
        Launch(PieceMoments<T, width()>, v.PieceBlocks(), kThreads, 0, stream, v, args.input<T>(training::kX), moments);
      });
      RETURN_IF_ERROR(LaunchStatus("PieceMoments"));
    }
    Launch(MergeMoments, MergeBlocks(v), Warp::kBlock, 0, stream, v, moments, args.input<float>(training::kGamma),
           options.epsilon, mean, args.output<float>(training::kVariance),
           args.output<float>(training::kInverseDeviation), scale);
    RETURN_IF_ERROR(LaunchStatus("MergeMoments"));
    if (v.empty()) return absl::OkStatus();
    LaunchApply(stream, v, args.input<T>(training::kX), mean, scale, args.input<float>(training::kBeta),
                options.residual ? args.input<T>(training::kResidual) : nullptr, options.relu,
                args.output<T>(training::kY));
    return LaunchStatus("Apply");
  };
  return kernel;
}

template <typename T>
absl::StatusOr<Kernel> MakeInference(const KernelSpec& spec) {
  const ChannelPieces v = ChannelPieces::Packed(spec.input(inference::kX));
  Kernel kernel;
  kernel.scratch_bytes = v.channels * static_cast<int64_t>(sizeof(float));
  kernel.run = [=, options = OptionsOf(spec, inference::kResidual),
                stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    if (v.empty()) return absl::OkStatus();
    float* const scale = static_cast<float*>(args.scratch);
    Launch(InferenceScale, v.ChannelBlocks(), kThreads, 0, stream, v, args.input<float>(inference::kGamma),
           args.input<float>(inference::kVariance), options.epsilon, scale);
    RETURN_IF_ERROR(LaunchStatus("InferenceScale"));
    LaunchApply(stream, v, args.input<T>(inference::kX), args.input<float>(inference::kMean), scale,
                args.input<float>(inference::kBeta), options.residual ? args.input<T>(inference::kResidual) : nullptr,
                options.relu, args.output<T>(0));
    return LaunchStatus("Apply");
  };
  return kernel;
}

template <typename T>
struct GradientInputs {
  const T *dy, *x;
  const float *gamma, *mean, *inverse_std, *beta;  // beta: nullptr without ReLU
};

// A row's elements of dy and x.
template <typename T, int kWidth>
struct GradientPacks {
  Pack<T, kWidth> dy, x;

  __device__ static GradientPacks Load(const GradientInputs<T>& inputs, int64_t i) {
    return {LoadPack<kWidth>(inputs.dy + i), LoadPack<kWidth>(inputs.x + i)};
  }
  __device__ float Dy(int k) const { return dy.Float(k); }
  __device__ float X(int k) const { return x.Float(k); }
};

// The gradient before the normalization: dy or, with ReLU, dy where y was positive.
template <int kWidth>
struct Gradient {
  bool relu;
  Pack<float, kWidth> mean, scale, beta;  // of the thread's channels

  template <typename T>
  __device__ Gradient(const GradientInputs<T>& inputs, int64_t channel)
      : relu(inputs.beta != nullptr), mean(LoadPack<kWidth>(inputs.mean + channel)), beta() {
    const auto gamma = LoadPack<kWidth>(inputs.gamma + channel);
    const auto inverse_std = LoadPack<kWidth>(inputs.inverse_std + channel);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) scale.at[k] = gamma.at[k] * inverse_std.at[k];
    if (relu) beta = LoadPack<kWidth>(inputs.beta + channel);
  }

  template <typename T>
  __device__ float At(const GradientPacks<T, kWidth>& packs, int k) const {
    const bool positive = Normalize(packs.X(k), mean.at[k], scale.at[k], beta.at[k]) > 0.0f;
    return positive | !relu ? packs.Dy(k) : 0.0f;
  }
};

// Sums of g and of g * (x - mean) per piece and channel: [piece][2][channels]. With more than two blocks on a
// multiprocessor its threads would have too few registers.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    PieceGradientSums(ChannelPieces v, GradientInputs<T> inputs, float* sums) {
  const int64_t channel = v.Channel<kWidth>();
  const Gradient<kWidth> gradient(inputs, channel < v.channels ? channel : 0);
  using Packs = GradientPacks<T, kWidth>;
  const Pair sum = v.Sum<Pair, kWidth>([=](int64_t i) { return Packs::Load(inputs, i); },
                                       [=](Pair(&of_channels)[kWidth], const Packs& packs) {
#pragma unroll
                                         for (int k = 0; k < kWidth; ++k) {
                                           const float g = gradient.At(packs, k);
                                           of_channels[k] += Pair{g, g * (packs.X(k) - gradient.mean.at[k])};
                                         }
                                       });
  if (!v.HasSum<kWidth>()) return;
  float* const to = sums + 2 * blockIdx.y * v.channels + v.SumChannel<kWidth>();
  to[0] = sum.x;
  to[v.channels] = sum.y;
}

// Per channel dx = gamma * inverse_std * g + b * (x - mean) + c.
struct GradientFactors {
  float *b, *c;
};

// dgamma = sum g (x - mean) / std, dbeta = sum g,
// dx = gamma / std * (g - dbeta / n - (x - mean) / std * dgamma / n).
__global__ void MergeGradientSums(ChannelPieces v, const float* sums, const float* gamma, const float* inverse_std,
                                  GradientFactors factors, float* d_gamma, float* d_beta) {
  const int64_t c = Warp::Row();
  if (c >= v.channels) return;
  const double plain = SumOfPieces(v, [=](int64_t piece) { return sums[2 * piece * v.channels + c]; });
  const double centered = SumOfPieces(v, [=](int64_t piece) { return sums[(2 * piece + 1) * v.channels + c]; });
  if (Warp::Lane() != 0) return;
  const double n = static_cast<double>(std::max(v.rows, int64_t{1}));
  const float a = gamma[c] * inverse_std[c];
  const float scaled = static_cast<float>(centered * inverse_std[c]);
  d_beta[c] = static_cast<float>(plain);
  d_gamma[c] = scaled;
  factors.b[c] = static_cast<float>(-a * inverse_std[c] * scaled / n);
  factors.c[c] = static_cast<float>(-a * plain / n);
}

// dx, plus the addend if there is one. dx may lie over dy, x or the addend, and over beta where there is one row.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    WriteGradient(ChannelPieces v, GradientInputs<T> inputs, GradientFactors factors, const T* addend, T* dx) {
  if (!v.HasRows<kWidth>()) return;
  const int64_t channel = v.Channel<kWidth>();
  const Gradient<kWidth> gradient(inputs, channel);
  const auto b = LoadPack<kWidth>(factors.b + channel), c = LoadPack<kWidth>(factors.c + channel);
  struct Loaded {
    GradientPacks<T, kWidth> packs;
    Pack<T, kWidth> addend;
  };
  const auto load = [=](int64_t i) {
    Loaded loaded;
    loaded.packs = GradientPacks<T, kWidth>::Load(inputs, i);
    if (addend != nullptr) loaded.addend = LoadPack<kWidth>(addend + i);
    return loaded;
  };
  v.ForRows<kWidth>(load, [=](int64_t i, const Loaded& loaded) {
    Pack<float, kWidth> values;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float centered = loaded.packs.X(k) - gradient.mean.at[k];
      values.at[k] = gradient.scale.at[k] * gradient.At(loaded.packs, k) + b.at[k] * centered + c.at[k];
      if (addend != nullptr) values.at[k] += loaded.addend.Float(k);
    }
    StorePack(dx + i, RoundPack<T>(values));
  });
}

template <typename T>
absl::StatusOr<Kernel> MakeGradient(const KernelSpec& spec) {
  const ChannelPieces v = ChannelPieces::Packed(spec.input(backward::kDy));
  const backward::OptionalInputs optional = backward::OptionalInputsOf(spec.node);
  Kernel kernel;
  kernel.scratch_bytes = (v.pieces * 2 + 2) * v.channels * static_cast<int64_t>(sizeof(float));
  kernel.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    if (v.channels == 0) return absl::OkStatus();
    float* const scratch = static_cast<float*>(args.scratch);
    const GradientFactors factors{scratch, scratch + v.channels};
    float* const sums = scratch + 2 * v.channels;
    const GradientInputs<T> inputs{args.input<T>(backward::kDy),
                                   args.input<T>(backward::kX),
                                   args.input<float>(backward::kGamma),
                                   args.input<float>(backward::kMean),
                                   args.input<float>(backward::kInverseDeviation),
                                   optional.beta ? args.input<float>(backward::kBeta) : nullptr};
    if (!v.empty()) {
      WithWidth<T>(v, [&](auto width) {
        Launch(PieceGradientSums<T, width()>, v.PieceBlocks(), kThreads, 0, stream, v, inputs, sums);
      });
      RETURN_IF_ERROR(LaunchStatus("PieceGradientSums"));
    }
    Launch(MergeGradientSums, MergeBlocks(v), Warp::kBlock, 0, stream, v, sums, inputs.gamma, inputs.inverse_std,
           factors, args.output<float>(backward::kGammaGradient), args.output<float>(backward::kBetaGradient));
    RETURN_IF_ERROR(LaunchStatus("MergeGradientSums"));
    if (v.empty()) return absl::OkStatus();
    WithWidth<T>(v, [&](auto width) {
      Launch(WriteGradient<T, width()>, v.PieceBlocks(), kThreads, 0, stream, v, inputs, factors,
             optional.addend ? args.input<T>(*optional.addend) : nullptr, args.output<T>(backward::kDx));
    });
    return LaunchStatus("WriteGradient");
  };
  return kernel;
}

const bool registered = [] {
  const auto add = [](OpName op, auto make, std::vector<std::pair<int, int>> in_place) {
    RegisterKernel({.op = op,
                    .device_kind = "cuda",
                    .dtypes = StorageTypes(),
                    .make = ForStorageType(make),
                    .in_place = std::move(in_place)});
  };
  add(op::FusedBatchNorm, []<typename T>(const KernelSpec& spec, T) { return MakeTraining<T>(spec); },
      {{training::kY, training::kX}, {training::kY, training::kResidual}});
  add(op::FusedBatchNormGrad, []<typename T>(const KernelSpec& spec, T) { return MakeGradient<T>(spec); },
      {{backward::kDx, backward::kDy},
       {backward::kDx, backward::kAddendWithoutBeta},
       {backward::kDx, backward::kAddend},
       {backward::kDx, backward::kX}});
  add(op::FusedBatchNormInference, []<typename T>(const KernelSpec& spec, T) { return MakeInference<T>(spec); },
      {{0, inference::kX}, {0, inference::kResidual}});
  return true;
}();

}  // namespace
}  // namespace official::compute
