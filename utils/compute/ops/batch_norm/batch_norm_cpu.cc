// CPU kernels of batch normalization. Each reads its images twice: once for the sums per channel, once to write the
// result. The sums are made in pieces of a size that does not depend on the number of threads, so neither do the bits.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"

namespace official::compute {
namespace {

namespace training = fused_batch_norm;
namespace again = fused_batch_norm_again;
namespace inference = fused_batch_norm_inference;
namespace backward = fused_batch_norm_grad;

// Values as [outer, groups, rows, width]: row-major images are one group of C channels and N * H * W rows,
// channel-blocked ones N * C / 16 stretches of H * W rows of 16 channels.
class View {
 public:
  View(const TensorType& type, Layout layout) {
    const int64_t channels = type.shape.dim(-1);
    rows_ = type.shape.Product(0, type.shape.rank() - 1);
    width_ = channels;
    if (layout == Layout::kChannelBlocked) {
      outer_ = type.shape.dim(0);
      groups_ = channels / 16;
      width_ = 16;
      rows_ = type.shape.dim(1) * type.shape.dim(2);
    }
    // Several narrow rows count as one of at least 64 lanes: enough for the vectors of a loop over lanes to be
    // independent of each other.
    fold_ = (kMinLanes + width_ - 1) / std::max<int64_t>(width_, 1);
    const int64_t rows = std::max<int64_t>(kPieceElements / std::max<int64_t>(width_, 1), 16);
    piece_rows_ = (rows + fold_ - 1) / fold_ * fold_;
    pieces_ = (rows_ + piece_rows_ - 1) / piece_rows_;
  }

  int64_t channels() const { return groups_ * width_; }
  int64_t width() const { return width_; }
  int64_t lanes() const { return fold_ * width_; }
  // Values of each channel.
  int64_t count() const { return outer_ * rows_; }
  // Pieces that each channel is summed in.
  int64_t pieces() const { return outer_ * pieces_; }
  int64_t RowsOf(int64_t piece) const { return std::min(piece_rows_, rows_ - piece % pieces_ * piece_rows_); }

  // Calls f(piece, channel, offset, n) in parallel: the n elements from `offset` on belong to the piece and, over and
  // over again, to the channels [channel, channel + width).
  template <typename F>
  void ForPieces(F&& f) const {
    ParallelFor(outer_ * groups_ * pieces_, 1, [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t part = i % pieces_, group = i / pieces_ % groups_, outer = i / pieces_ / groups_;
          const int64_t first_row = (outer * groups_ + group) * rows_ + part * piece_rows_;
          const int64_t piece = outer * pieces_ + part;
          f(piece, group * width_, first_row * width_, RowsOf(piece) * width_);
        }
      });
    });
  }

  static constexpr int64_t kMinLanes = 64;

 private:
  static constexpr int64_t kPieceElements = 1 << 13;  // of float 32 KB: the second pass finds it in the cache

  int64_t outer_ = 1, groups_ = 1, rows_, width_, fold_, piece_rows_, pieces_;
};

// Numbers per channel repeated for every lane. Wide rows need no copy.
class Lanes {
 public:
  inline const float* Repeat(const View& v, const float* per_channel) {
    if (v.lanes() == v.width()) return per_channel;
    for (int64_t i = 0; i < v.lanes(); i += v.width()) std::copy_n(per_channel, v.width(), buffer_ + i);
    return buffer_;
  }

 private:
  float buffer_[2 * View::kMinLanes];
};

// sums[k][c] = the sum of f(element, lane)[k] over the elements [0, n) that belong to channel c.
template <size_t kSums, typename F>
inline void SumPerChannel(const View& v, int64_t n, const std::array<float*, kSums>& sums, F&& f) {
  float buffer[kSums][2 * View::kMinLanes];
  const int64_t lanes = v.lanes(), width = v.width();
  std::array<float*, kSums> partial = sums;
  for (size_t k = 0; k < kSums; ++k) {
    if (lanes != width) partial[k] = buffer[k];
    std::fill_n(partial[k], lanes, 0.0f);
  }
  for (int64_t e = 0; e < n; e += lanes) {
    const int64_t m = std::min(lanes, n - e);
#pragma GCC ivdep
    for (int64_t j = 0; j < m; ++j) {
      const std::array<float, kSums> values = f(e + j, j);
      for (size_t k = 0; k < kSums; ++k) partial[k][j] += values[k];
    }
  }
  if (lanes == width) return;
  for (size_t k = 0; k < kSums; ++k) {
    std::copy_n(partial[k], width, sums[k]);
    for (int64_t i = width; i < lanes; i += width) {
      for (int64_t c = 0; c < width; ++c) sums[k][c] += partial[k][i + c];
    }
  }
}

// y[e] = f(e, lane), rounded. y may be one of the arrays that f reads.
template <typename T, typename F>
inline void Write(const View& v, int64_t n, T* y, F&& f) {
  const int64_t lanes = v.lanes();
  for (int64_t e = 0; e < n; e += lanes) {
    const int64_t m = std::min(lanes, n - e);
#pragma GCC ivdep
    for (int64_t j = 0; j < m; ++j) y[e + j] = static_cast<T>(f(e + j, j));
  }
}

// What is computed from x alone, the same wherever it is computed: the gradient must find the sign that y had.
inline float Normalize(float x, float mean, float scale, float beta) { return __builtin_fmaf(x - mean, scale, beta); }

// Mean and sum of squared deviations of each channel in each piece: [piece][2][channels]. Summed about the piece's
// first row rather than zero, so that a mean far from zero does not swallow the variance.
template <typename T>
void PieceMoments(const View& v, const T* x, float* moments) {
  const int64_t channels = v.channels();
  v.ForPieces([&](int64_t piece, int64_t channel, int64_t offset, int64_t n) {
    const T* const from = x + offset;
    float* const mean = moments + 2 * piece * channels + channel;
    float* const squares = mean + channels;
    const auto deviations = [](T value, float center) {
      const float d = static_cast<float>(value) - center;
      return std::array{d, d * d};
    };
    if (v.lanes() == v.width()) {
      SumPerChannel<2>(v, n, {mean, squares},
                       [=](int64_t e, int64_t j) { return deviations(from[e], static_cast<float>(from[j])); });
    } else {
      float first[View::kMinLanes];
      for (int64_t c = 0; c < v.width(); ++c) first[c] = static_cast<float>(from[c]);
      Lanes lanes;
      const float* const center = lanes.Repeat(v, first);
      SumPerChannel<2>(v, n, {mean, squares}, [=](int64_t e, int64_t j) { return deviations(from[e], center[j]); });
    }
    const float rows = static_cast<float>(v.RowsOf(piece));
    for (int64_t c = 0; c < v.width(); ++c) {
      squares[c] = std::max(squares[c] - mean[c] * mean[c] / rows, 0.0f);
      mean[c] = static_cast<float>(from[c]) + mean[c] / rows;
    }
  });
}

// The pieces' moments put together in order (Chan, Golub, LeVeque 1979): mean and biased variance per channel.
void MergeMoments(const View& v, const float* moments, float* mean, float* variance) {
  const int64_t channels = v.channels();
  ParallelFor(channels, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double total = 0, center = 0, squares = 0;
      for (int64_t piece = 0; piece < v.pieces(); ++piece) {
        const float* const moment = moments + 2 * piece * channels + c;
        const double n = static_cast<double>(v.RowsOf(piece)), delta = moment[0] - center;
        squares += moment[channels] + delta * delta * (total * n / (total + n));
        center += delta * (n / (total + n));
        total += n;
      }
      mean[c] = static_cast<float>(center);
      variance[c] = static_cast<float>(total > 0 ? squares / total : 0);
    }
  });
}

// y = activation((x - mean) * scale + beta + residual), the last of which may be absent.
template <typename T>
void Apply(const View& v, const T* x, const float* mean, const float* scale, const float* beta, const T* residual,
           bool relu, T* y) {
  v.ForPieces([&](int64_t, int64_t channel, int64_t offset, int64_t n) {
    Lanes lanes[3];
    const float* const m = lanes[0].Repeat(v, mean + channel);
    const float* const s = lanes[1].Repeat(v, scale + channel);
    const float* const b = lanes[2].Repeat(v, beta + channel);
    const T* const from = x + offset;
    const T* const added = residual + offset;
    const auto plain = [=](int64_t e, int64_t j) { return Normalize(static_cast<float>(from[e]), m[j], s[j], b[j]); };
    const auto sum = [=](int64_t e, int64_t j) { return plain(e, j) + static_cast<float>(added[e]); };
    // NaN stays NaN.
    const auto cut = [](float value) { return value < 0.0f ? 0.0f : value; };
    T* const to = y + offset;
    if (residual == nullptr) {
      if (relu) {
        Write(v, n, to, [=](int64_t e, int64_t j) { return cut(plain(e, j)); });
      } else {
        Write(v, n, to, plain);
      }
    } else if (relu) {
      Write(v, n, to, [=](int64_t e, int64_t j) { return cut(sum(e, j)); });
    } else {
      Write(v, n, to, sum);
    }
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
  const View v(spec.input(training::kX), spec.input_layouts[training::kX]);
  ScratchPlan scratch;
  const int64_t moments_at = scratch.Add(v.pieces() * 2 * v.channels() * sizeof(float));
  const int64_t scale_at = scratch.Add(v.channels() * sizeof(float));
  return Kernel{.run =
                    [=, options = OptionsOf(spec, training::kResidual)](const KernelArgs& args) {
                      const int64_t channels = v.channels();
                      float* const moments = static_cast<float*>(ScratchAt(args, moments_at));
                      float* const scale = static_cast<float*>(ScratchAt(args, scale_at));
                      float* const mean = args.output<float>(training::kMean);
                      float* const variance = args.output<float>(training::kVariance);
                      float* const inverse_std = args.output<float>(training::kInverseDeviation);
                      PieceMoments(v, args.input<T>(training::kX), moments);
                      MergeMoments(v, moments, mean, variance);
                      const double n = static_cast<double>(v.count());
                      const float bessel = static_cast<float>(n / std::max(n - 1, 1.0));
                      const float* const gamma = args.input<float>(training::kGamma);
                      for (int64_t c = 0; c < channels; ++c) {
                        inverse_std[c] = 1.0f / std::sqrt(variance[c] + options.epsilon);
                        scale[c] = gamma[c] * inverse_std[c];
                        variance[c] *= bessel;
                      }
                      Apply(v, args.input<T>(training::kX), mean, scale, args.input<float>(training::kBeta),
                            options.residual ? args.input<T>(training::kResidual) : nullptr, options.relu,
                            args.output<T>(training::kY));
                      return absl::OkStatus();
                    },
                .scratch_bytes = scratch.bytes()};
}

template <typename T>
absl::StatusOr<Kernel> MakeAgain(const KernelSpec& spec) {
  const View v(spec.input(again::kX), spec.input_layouts[again::kX]);
  return Kernel{.run =
                    [=, options = OptionsOf(spec, 5)](const KernelArgs& args) {
                      float* const scale = static_cast<float*>(args.scratch);
                      const float* const gamma = args.input<float>(again::kGamma);
                      const float* const inverse_std = args.input<float>(again::kInverseDeviation);
                      for (int64_t c = 0; c < v.channels(); ++c) scale[c] = gamma[c] * inverse_std[c];
                      Apply<T>(v, args.input<T>(again::kX), args.input<float>(again::kMean), scale,
                               args.input<float>(again::kBeta), nullptr, options.relu, args.output<T>(0));
                      return absl::OkStatus();
                    },
                .scratch_bytes = static_cast<int64_t>(v.channels() * sizeof(float))};
}

template <typename T>
absl::StatusOr<Kernel> MakeInference(const KernelSpec& spec) {
  const View v(spec.input(inference::kX), spec.input_layouts[inference::kX]);
  return Kernel{.run =
                    [=, options = OptionsOf(spec, inference::kResidual)](const KernelArgs& args) {
                      float* const scale = static_cast<float*>(args.scratch);
                      const float* const gamma = args.input<float>(inference::kGamma);
                      const float* const variance = args.input<float>(inference::kVariance);
                      for (int64_t c = 0; c < v.channels(); ++c) {
                        scale[c] = gamma[c] / std::sqrt(variance[c] + options.epsilon);
                      }
                      Apply(v, args.input<T>(inference::kX), args.input<float>(inference::kMean), scale,
                            args.input<float>(inference::kBeta),
                            options.residual ? args.input<T>(inference::kResidual) : nullptr, options.relu,
                            args.output<T>(0));
                      return absl::OkStatus();
                    },
                .scratch_bytes = static_cast<int64_t>(v.channels() * sizeof(float))};
}

// Sums of g and of g * (x - mean) per piece and channel, where g is dy or, with ReLU, dy where y was positive.
template <typename T, typename Gradient>
void PieceGradientSums(const View& v, const T* x, const float* mean, Gradient gradient, float* sums) {
  const int64_t channels = v.channels();
  v.ForPieces([&](int64_t piece, int64_t channel, int64_t offset, int64_t n) {
    float* const plain = sums + 2 * piece * channels + channel;
    Lanes mean_lanes;
    const float* const center = mean_lanes.Repeat(v, mean + channel);
    const T* const from = x + offset;
    const auto g = gradient(channel, offset);
    SumPerChannel<2>(v, n, {plain, plain + channels}, [&](int64_t e, int64_t j) {
      const float value = g(e, j);
      return std::array{value, value * (static_cast<float>(from[e]) - center[j])};
    });
  });
}

// The gradient before the normalization as a function of the element, for one piece.
template <typename T>
struct PlainGradient {
  const T* dy;
  inline float operator()(int64_t e, int64_t) const { return static_cast<float>(dy[e]); }
};
template <typename T>
struct ReluGradient {
  const T *dy, *x;
  Lanes lanes[3];
  const float *mean, *scale, *beta;

  inline ReluGradient(const View& v, const T* dy, const T* x, const float* mean, const float* scale, const float* beta)
      : dy(dy), x(x) {
    this->mean = lanes[0].Repeat(v, mean);
    this->scale = lanes[1].Repeat(v, scale);
    this->beta = lanes[2].Repeat(v, beta);
  }
  ReluGradient(const ReluGradient&) = delete;
  inline float operator()(int64_t e, int64_t j) const {
    const float y = Normalize(static_cast<float>(x[e]), mean[j], scale[j], beta[j]);
    return y > 0.0f ? static_cast<float>(dy[e]) : 0.0f;
  }
};

// Per channel dx = a * g + b * (x - mean) + c.
struct GradientFactors {
  float *a, *b, *c;
};

// dgamma = sum g (x - mean) / std, dbeta = sum g,
// dx = gamma / std * (g - dbeta / n - (x - mean) / std * dgamma / n).
void MergeGradientSums(const View& v, const float* sums, const float* gamma, const float* inverse_std,
                       const GradientFactors& factors, float* d_gamma, float* d_beta) {
  const int64_t channels = v.channels();
  const double n = static_cast<double>(std::max<int64_t>(v.count(), 1));
  ParallelFor(channels, 64, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double plain = 0, centered = 0;
      for (int64_t piece = 0; piece < v.pieces(); ++piece) {
        plain += sums[2 * piece * channels + c];
        centered += sums[(2 * piece + 1) * channels + c];
      }
      d_beta[c] = static_cast<float>(plain);
      d_gamma[c] = static_cast<float>(centered * inverse_std[c]);
      factors.a[c] = gamma[c] * inverse_std[c];
      factors.b[c] = static_cast<float>(-factors.a[c] * inverse_std[c] * d_gamma[c] / n);
      factors.c[c] = static_cast<float>(-factors.a[c] * plain / n);
    }
  });
}

// dx, plus the addend if there is one. dx may lie over dy, x or the addend, and over beta where there is one row.
template <typename T, typename Gradient>
void WriteGradient(const View& v, const T* x, const float* mean, const GradientFactors& factors, Gradient gradient,
                   const T* addend, T* dx) {
  v.ForPieces([&](int64_t, int64_t channel, int64_t offset, int64_t n) {
    Lanes lanes[4];
    const float* const center = lanes[0].Repeat(v, mean + channel);
    const float* const a = lanes[1].Repeat(v, factors.a + channel);
    const float* const b = lanes[2].Repeat(v, factors.b + channel);
    const float* const c = lanes[3].Repeat(v, factors.c + channel);
    const T* const from = x + offset;
    const auto g = gradient(channel, offset);
    const auto value = [&](int64_t e, int64_t j) {
      return a[j] * g(e, j) + b[j] * (static_cast<float>(from[e]) - center[j]) + c[j];
    };
    const T* const added = addend + offset;
    if (addend == nullptr) {
      Write(v, n, dx + offset, value);
    } else {
      Write(v, n, dx + offset, [&](int64_t e, int64_t j) { return value(e, j) + static_cast<float>(added[e]); });
    }
  });
}

template <typename T>
absl::StatusOr<Kernel> MakeGradient(const KernelSpec& spec) {
  const View v(spec.input(backward::kDy), spec.input_layouts[backward::kDy]);
  ScratchPlan scratch;
  const int64_t sums_at = scratch.Add(v.pieces() * 2 * v.channels() * sizeof(float));
  const int64_t factors_at = scratch.Add(3 * v.channels() * sizeof(float));
  const backward::OptionalInputs optional = backward::OptionalInputsOf(spec.node);
  return Kernel{
      .run =
          [=](const KernelArgs& args) {
            const int64_t channels = v.channels();
            const T *const dy = args.input<T>(backward::kDy), *const x = args.input<T>(backward::kX);
            const float* const gamma = args.input<float>(backward::kGamma);
            const float* const mean = args.input<float>(backward::kMean);
            const float* const inverse_std = args.input<float>(backward::kInverseDeviation);
            float* const sums = static_cast<float*>(ScratchAt(args, sums_at));
            float* const per_channel = static_cast<float*>(ScratchAt(args, factors_at));
            const GradientFactors factors{per_channel, per_channel + channels, per_channel + 2 * channels};
            const auto run = [&](auto gradient) {
              PieceGradientSums(v, x, mean, gradient, sums);
              MergeGradientSums(v, sums, gamma, inverse_std, factors, args.output<float>(backward::kGammaGradient),
                                args.output<float>(backward::kBetaGradient));
              WriteGradient(v, x, mean, factors, gradient, optional.addend ? args.input<T>(*optional.addend) : nullptr,
                            args.output<T>(backward::kDx));
            };
            if (optional.beta) {
              // The forward pass's scale: MergeGradientSums writes the same numbers there again.
              float* const scale = factors.a;
              for (int64_t c = 0; c < channels; ++c) scale[c] = gamma[c] * inverse_std[c];
              run([=, &v, beta = args.input<float>(backward::kBeta)](int64_t channel, int64_t offset) {
                return ReluGradient<T>(v, dy + offset, x + offset, mean + channel, scale + channel, beta + channel);
              });
            } else {
              run([=](int64_t, int64_t offset) { return PlainGradient<T>{dy + offset}; });
            }
            return absl::OkStatus();
          },
      .scratch_bytes = scratch.bytes()};
}

// x, y, their gradients and the residual in one layout, blocked as soon as one of them is; all else row-major.
LayoutChoice NormLayouts(const Node& node, absl::Span<const Layout> current) {
  LayoutChoice choice = AllRowMajor(node);
  const TensorType& images = node.input(0).type();
  bool blocked = false;
  for (int i = 0; i < node.num_inputs(); ++i) blocked |= current[i] == Layout::kChannelBlocked;
  if (!blocked) return choice;
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.input(i).type() == images) choice.inputs[i] = Layout::kChannelBlocked;
  }
  choice.outputs[0] = Layout::kChannelBlocked;
  return choice;
}

// `make` is called as make(spec, T()), T being the type of input 0.
template <typename Make>
bool RegisterNorm(OpName op, Make make, std::vector<std::pair<int, int>> in_place) {
  return RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = ForStorageType(make),
      .in_place = std::move(in_place),
      .layout = NormLayouts,
  });
}

const bool registered[] = {
    RegisterNorm(op::FusedBatchNorm, []<typename T>(const KernelSpec& spec, T) { return MakeTraining<T>(spec); },
                 {{training::kY, training::kX}, {training::kY, training::kResidual}}),
    RegisterNorm(op::FusedBatchNormInference,
                 []<typename T>(const KernelSpec& spec, T) { return MakeInference<T>(spec); },
                 {{0, inference::kX}, {0, inference::kResidual}}),
    RegisterNorm(op::FusedBatchNormAgain, []<typename T>(const KernelSpec& spec, T) { return MakeAgain<T>(spec); }, {}),
    RegisterNorm(op::FusedBatchNormGrad, []<typename T>(const KernelSpec& spec, T) { return MakeGradient<T>(spec); },
                 {{backward::kDx, backward::kDy},
                  {backward::kDx, backward::kAddendWithoutBeta},
                  {backward::kDx, backward::kAddend},
                  {backward::kDx, backward::kX}}),
};

}  // namespace
}  // namespace official::compute
