// CUDA kernels from the perceptron's output to the loss and the gradients.

#include <algorithm>
#include <utility>
#include <vector>

#include "official/recommendation/op/geometry.h"
#include "official/recommendation/op/neural_factorization.h"
#include "official/recommendation/op/neural_factorization_cuda.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cuda/channel_pieces.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/matmul/cublas_matmul.h"

namespace official::recommendation::factorization_cuda {
namespace {

namespace math = compute::math;
using compute::AskForShared;
using compute::BFloat16;
using compute::ChannelPieces;
using compute::CublasMatMul;
using compute::CublasMatMulSpec;
using compute::DType;
using compute::DynamicShared;
using compute::Kernel;
using compute::KernelArgs;
using compute::KernelSpec;
using compute::Launch;
using compute::LaunchStatus;
using compute::NumBlocks;
using compute::ScratchAt;
using compute::ScratchPlan;
using compute::TensorType;

struct Loss {
  float shift, limit;
};

// Sums over samples that Train makes, in pieces, and where they are in a row of sums.
struct LossSums {
  static constexpr int64_t kMaxPieces = 1024, kMinPieceSamples = 4 * kWarps;

  int64_t factors, width;
  int64_t piece_samples, pieces;
  float* sums;  // [pieces, columns()]

  LossSums(int64_t samples, int64_t factors, int64_t width)
      : factors(factors),
        width(width),
        piece_samples(std::max((samples + kMaxPieces - 1) / kMaxPieces, kMinPieceSamples)),
        pieces((samples + piece_samples - 1) / piece_samples),
        sums(nullptr) {}

  // Behind the gradient of the rating's kernel [factors + width].
  __host__ __device__ int64_t last_bias() const { return factors + width; }  // of the perceptron's last layer [width]
  __host__ __device__ int64_t rating_bias() const { return factors + 2 * width; }
  __host__ __device__ int64_t loss() const { return factors + 2 * width + 1; }
  __host__ __device__ int64_t columns() const { return factors + 2 * width + 2; }
};

// The gradients of each sample that Train makes.
template <typename T>
struct SampleGradients {
  float scale;                 // of those that leave, in float: 1 / samples
  float *gmf_user, *gmf_item;  // [samples, factors]
  T* hidden;                   // [samples, width], by what the last layer's ReLU was given; nullptr without layers
  float *mlp_user, *mlp_item;  // without layers: [samples, width / 2] each
};

// From the outputs of the perceptron to the gradients by them. Block x has the samples of piece x, a warp one at a
// time.
template <typename T>
__global__ void __launch_bounds__(kThreads) Train(Pairs pairs, LastLayer<T> last, const float* labels, Loss loss,
                                                  uint32_t samples, SampleGradients<T> gradients, LossSums sums) {
  float* const of_warps = DynamicShared<float>();  // [kWarps][columns]
  const int64_t columns = sums.columns(), factors = last.factors, width = last.width;
  for (int64_t i = threadIdx.x; i < kWarps * columns; i += kThreads) of_warps[i] = 0;
  __syncthreads();
  const int warp = threadIdx.x / kLanes, lane = Warp::Lane();
  float* const own = of_warps + warp * columns;
  const int64_t begin = blockIdx.x * sums.piece_samples;
  const int64_t end = std::min<int64_t>(begin + sums.piece_samples, samples);
  for (int64_t sample = begin + warp; sample < end; sample += kWarps) {
    const Pairs::Pair pair = pairs.At(static_cast<uint32_t>(sample));
    const float shifted = last.Score(pair, static_cast<uint32_t>(sample)) - loss.shift;
    const float z = std::min(std::max(shifted, -loss.limit), loss.limit), label = labels[sample];
    const float e = math::Exp()(-std::abs(z)), inverse = 1 / (1 + e);
    const float p = z >= 0 ? inverse : e * inverse;
    const float d = z == shifted ? p - label : 0;
    if (lane == 0) {
      pairs.Report(pair);
      own[sums.loss()] += std::max(z, 0.0f) - label * z + math::Log()(1 + e);
      own[sums.rating_bias()] += d;
    }
    for (int64_t c = lane; c < factors; c += kLanes) {
      const float user = pair.inside ? last.gmf_user[pair.user * factors + c] : 0;
      const float item = pair.inside ? last.gmf_item[pair.item * factors + c] : 0;
      own[c] += d * (user * item);
      const float of_product = d * last.kernel[c] * gradients.scale;
      gradients.gmf_user[sample * factors + c] = of_product * item;
      gradients.gmf_item[sample * factors + c] = of_product * user;
    }
    for (int64_t c = lane; c < width; c += kLanes) {
      const float x = static_cast<float>(last.hidden[sample * width + c]);
      own[factors + c] += d * x;
      const float of_x = d * last.kernel[factors + c];
      if (gradients.hidden != nullptr) {
        const float masked = x > 0 ? of_x : 0;
        gradients.hidden[sample * width + c] = T(masked);
        own[sums.last_bias() + c] += masked;
      } else {
        const int64_t half = width / 2;
        float* const row = c < half ? gradients.mlp_user + sample * half : gradients.mlp_item + sample * half - half;
        row[c] = of_x * gradients.scale;
      }
    }
  }
  __syncthreads();
  for (int64_t c = threadIdx.x; c < columns; c += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += of_warps[w * columns + c];
    sums.sums[blockIdx.x * columns + c] = sum;
  }
}

// dx = 0 where the ReLU's result x is, and sums [piece][channels] over the rows of what is left.
template <typename T>
__global__ void __launch_bounds__(ChannelPieces::kThreads) MaskAndSum(ChannelPieces v, const T* x, T* dx, float* sums) {
  const float sum = v.Sum<float>([=](int64_t i) {
    const float g = static_cast<float>(x[i]) > 0 ? static_cast<float>(dx[i]) : 0;
    dx[i] = T(g);
    return g;
  });
  if (v.HasSum()) sums[blockIdx.y * v.channels + v.Channel()] = sum;
}

// to [columns] = scale * the sum of the pieces' rows, of which each begins `stride` behind the one before.
struct SumJob {
  const float* sums;
  int64_t pieces, stride, columns;
  float scale;
  float* to;
};
struct SumJobs {
  SumJob at[kMaxFactorizationLayers + 3];
};

// Blocks y make job y, a warp for each column.
__global__ void __launch_bounds__(kThreads) AddPieces(const SumJobs __grid_constant__ jobs) {
  const SumJob& job = jobs.at[blockIdx.y];
  const int64_t c = Warp::Row();
  if (c >= job.columns) return;
  float sum = 0;
  for (int64_t piece = Warp::Lane(); piece < job.pieces; piece += kLanes) sum += job.sums[piece * job.stride + c];
  sum = SumOfLanes(sum);
  if (Warp::Lane() == 0) job.to[c] = sum * job.scale;
}

// From the loss back to the gradients.
template <typename T>
class Backward {
 public:
  static absl::StatusOr<Backward> Make(const KernelSpec& spec) {
    constexpr int kFirst = 3;
    ASSIGN_OR_RETURN(Forward<T> forward, Forward<T>::Make(spec, kFirst, /*keep=*/true));
    Backward b(std::move(forward));
    const FactorizationGeometry& g = b.forward_.geometry();
    b.loss_ = {static_cast<float>(spec.attrs().GetFloat("shift")), static_cast<float>(spec.attrs().GetFloat("limit"))};
    ScratchPlan& scratch = b.forward_.scratch();
    b.sums_at_ = scratch.Add(b.sums_.pieces * b.sums_.columns() * sizeof(float));
    b.shared_bytes_ = static_cast<int>(kWarps * b.sums_.columns() * sizeof(float));
    RETURN_IF_ERROR(AskForShared(spec, Train<T>, b.shared_bytes_));
    const int num_layers = b.forward_.num_layers();
    if (num_layers == 0) return b;
    const int64_t samples = b.forward_.samples();
    const int64_t widest = *std::max_element(g.layers.begin() + 1, g.layers.end());
    for (int64_t& at : b.gradients_at_) at = scratch.Add(samples * widest * sizeof(T));
    b.item_weights_at_ = scratch.Add(g.layers[0] / 2 * g.layers[1] * sizeof(T));
    const auto make = [&](const CublasMatMulSpec& matmul) -> absl::StatusOr<MatMul> {
      ASSIGN_OR_RETURN(MatMul product, CublasMatMul::Make(spec, matmul));
      b.forward_.AddWorkspace(*product);
      return product;
    };
    const DType dtype = b.forward_.dtype();
    for (int k = 0; k < num_layers; ++k) {
      const int64_t in = g.layers[k], out = g.layers[k + 1];
      // Of all samples' inputs, transposed, and output gradients.
      ASSIGN_OR_RETURN(MatMul of_weights, make({.geometry = {.m = in, .n = out, .k = samples, .transpose_a = true},
                                                .dtype = dtype,
                                                .result = DType::kFloat32,
                                                .scale = b.scale_}));
      b.of_weights_.push_back(std::move(of_weights));
      // Of the output gradients and the weights, transposed. The first layer's inputs are those of users and of items.
      const bool first = k == 0;
      ASSIGN_OR_RETURN(MatMul of_input,
                       make({.geometry = {.m = samples, .n = first ? in / 2 : in, .k = out, .transpose_b = true},
                             .dtype = dtype,
                             .result = first ? DType::kFloat32 : dtype,
                             .scale = first ? b.scale_ : 1}));
      b.of_inputs_.push_back(std::move(of_input));
      b.pieces_.emplace_back(TensorType{dtype, {samples, out}});
      b.bias_sums_at_.push_back(scratch.Add(b.pieces_[k].pieces * out * sizeof(float)));
    }
    return b;
  }

  int64_t FinishScratch() { return forward_.FinishScratch(); }

  absl::Status Run(const KernelArgs& args) const {
    const FactorizationGeometry& g = forward_.geometry();
    const int num_layers = forward_.num_layers();
    std::vector<CopyJob> more;
    if (num_layers > 0) {
      const int64_t count = g.layers[0] / 2 * g.layers[1];
      more.push_back({args.input<float>(g.kernel(0)) + count, ScratchAt(args, item_weights_at_), count});
    }
    RETURN_IF_ERROR(forward_.Run(args, more));
    RETURN_IF_ERROR(RunTrain(args));
    SumJobs jobs = {};
    unsigned count = 0;
    const auto of_train = [&](int64_t first, int64_t columns, float* to) {
      jobs.at[count++] = {Sums(args, sums_at_) + first, sums_.pieces, sums_.columns(), columns, scale_, to};
    };
    of_train(sums_.loss(), 1, args.output<float>(0));
    of_train(0, sums_.factors + sums_.width, Gradient(args, g.rating));
    of_train(sums_.rating_bias(), 1, Gradient(args, g.rating + 1));
    if (num_layers > 0) of_train(sums_.last_bias(), sums_.width, Gradient(args, g.kernel(num_layers - 1) + 1));
    T *dy = At(args, gradients_at_[0]), *dx = At(args, gradients_at_[1]);
    void* const workspace = forward_.Workspace(args);
    for (int k = num_layers; k-- > 0;) {
      RETURN_IF_ERROR(
          of_weights_[k]->Run(forward_.Input(args, k), dy, nullptr, Gradient(args, g.kernel(k)), workspace));
      if (k == 0) {
        RETURN_IF_ERROR(of_inputs_[0]->Run(dy, forward_.Weights(args, 0), nullptr, Gradient(args, g.mlp), workspace));
        RETURN_IF_ERROR(
            of_inputs_[0]->Run(dy, At(args, item_weights_at_), nullptr, Gradient(args, g.mlp + 1), workspace));
        break;
      }
      RETURN_IF_ERROR(of_inputs_[k]->Run(dy, forward_.Weights(args, k), nullptr, dx, workspace));
      const ChannelPieces& pieces = pieces_[k - 1];
      float* const sums = Sums(args, bias_sums_at_[k - 1]);
      Launch(MaskAndSum<T>, pieces.PieceBlocks(), ChannelPieces::kThreads, 0, forward_.stream(), pieces,
             forward_.Input(args, k), dx, sums);
      RETURN_IF_ERROR(LaunchStatus("MaskAndSum"));
      jobs.at[count++] = {
          sums, pieces.pieces, pieces.channels, pieces.channels, scale_, Gradient(args, g.kernel(k - 1) + 1)};
      std::swap(dx, dy);
    }
    int64_t most = 0;
    for (unsigned i = 0; i < count; ++i) most = std::max(most, jobs.at[i].columns);
    Launch(AddPieces, dim3(NumBlocks(most, kWarps), count), kThreads, 0, forward_.stream(), jobs);
    return LaunchStatus("AddPieces");
  }

 private:
  explicit Backward(Forward<T> forward)
      : forward_(std::move(forward)),
        scale_(1 / static_cast<float>(forward_.samples())),
        sums_(forward_.samples(), forward_.geometry().factors,
              forward_.geometry().layers.empty() ? 0 : forward_.geometry().layers.back()) {}
  static T* At(const KernelArgs& args, int64_t offset) { return static_cast<T*>(ScratchAt(args, offset)); }
  static float* Sums(const KernelArgs& args, int64_t offset) { return static_cast<float*>(ScratchAt(args, offset)); }
  // Of an input of the node.
  static float* Gradient(const KernelArgs& args, int input) { return args.output<float>(input - 2); }

  absl::Status RunTrain(const KernelArgs& args) const {
    const FactorizationGeometry& g = forward_.geometry();
    SampleGradients<T> gradients = {.scale = scale_};
    if (g.factors > 0) {
      gradients.gmf_user = Gradient(args, g.gmf);
      gradients.gmf_item = Gradient(args, g.gmf + 1);
    }
    if (forward_.num_layers() > 0) {
      gradients.hidden = At(args, gradients_at_[0]);
    } else if (!g.layers.empty()) {
      gradients.mlp_user = Gradient(args, g.mlp);
      gradients.mlp_item = Gradient(args, g.mlp + 1);
    }
    LossSums sums = sums_;
    sums.sums = Sums(args, sums_at_);
    Launch(Train<T>, static_cast<unsigned>(sums.pieces), kThreads, shared_bytes_, forward_.stream(),
           forward_.PairsOf(args), forward_.Last(args), args.input<float>(2), loss_, forward_.samples(), gradients,
           sums);
    return LaunchStatus("Train");
  }

  Forward<T> forward_;
  Loss loss_ = {};
  float scale_;
  LossSums sums_;
  int shared_bytes_ = 0;
  std::vector<MatMul> of_weights_, of_inputs_;  // by layer
  std::vector<ChannelPieces> pieces_;           // of its output's gradient
  // In bytes, of the scratch memory.
  int64_t sums_at_ = 0, item_weights_at_ = 0;
  int64_t gradients_at_[2] = {0, 0};
  std::vector<int64_t> bias_sums_at_;
};

template <typename T>
absl::StatusOr<Kernel> MakeLossOf(const KernelSpec& spec) {
  ASSIGN_OR_RETURN(Backward<T> backward, Backward<T>::Make(spec));
  Kernel kernel;
  kernel.scratch_bytes = backward.FinishScratch();
  kernel.run = [backward](const KernelArgs& args) { return backward.Run(args); };
  return kernel;
}

absl::StatusOr<Kernel> MakeLoss(const KernelSpec& spec) {
  return spec.attrs().Get<DType>("dtype") == DType::kBFloat16 ? MakeLossOf<BFloat16>(spec) : MakeLossOf<float>(spec);
}

const bool registered = [] {
  compute::RegisterKernel(
      {.op = op::NeuralFactorizationLoss, .device_kind = "cuda", .dtypes = {DType::kInt32}, .make = MakeLoss});
  return true;
}();

}  // namespace
}  // namespace official::recommendation::factorization_cuda
