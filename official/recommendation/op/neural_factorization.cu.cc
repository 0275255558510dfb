// CUDA kernels of neural factorization. The products of the perceptron are cuBLASLt's, in the network's type; a few
// kernels do everything around them, so that of a sample no more than the inputs of the layers and their gradients goes
// through memory. All else is computed in float. The gradients are those of the sum of the losses until they leave.

#include "official/recommendation/op/neural_factorization.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/recommendation/op/geometry.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cuda/channel_pieces.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/matmul/cublas_matmul.h"

namespace official::recommendation {
namespace {

namespace math = compute::math;
using compute::BFloat16;
using compute::ChannelPieces;
using compute::CublasMatMul;
using compute::CublasMatMulSpec;
using compute::CudaDevice;
using compute::CudaDeviceOf;
using compute::CudaStatus;
using compute::DataError;
using compute::DType;
using compute::DTypeOf;
using compute::DynamicShared;
using compute::Kernel;
using compute::KernelArgs;
using compute::KernelSpec;
using compute::kWidestLoad;
using compute::Launch;
using compute::LaunchStatus;
using compute::NumBlocks;
using compute::Pack;
using compute::RowThreads;
using compute::ScratchAt;
using compute::ScratchPlan;
using compute::TensorType;
using compute::ThreadIndex;
using compute::WithIndexType;

using Warp = RowThreads<32, 1>;
constexpr int kThreads = Warp::kBlock, kWarps = Warp::kRowsOfBlock, kLanes = Warp::kRowThreads;

__device__ float SumOfLanes(float value) {
  return Warp::Reduce(value, [](float a, float b) { return a + b; });
}

// Users and items of samples. Samples with a number outside the tables are computed from zeros.
struct Pairs {
  struct Pair {
    int32_t user, item;
    bool inside;
  };
  const int32_t *users, *items;
  uint32_t candidates;  // items of each user
  int32_t num_users, num_items;
  DataError user_error, item_error;

  __device__ bool HasUser(int32_t user) const { return user >= 0 && user < num_users; }
  __device__ bool HasItem(int32_t item) const { return item >= 0 && item < num_items; }
  __device__ Pair At(uint32_t sample) const {
    const int32_t user = users[sample / candidates], item = items[sample];
    return {user, item, HasUser(user) && HasItem(item)};
  }
  __device__ void Report(const Pair& pair) const {
    if (!HasUser(pair.user)) user_error.Report(pair.user);
    if (!HasItem(pair.item)) item_error.Report(pair.item);
  }
};

struct CopyJob {
  const float* from;
  void* to;
  int64_t count;
};
struct CopyJobs {
  CopyJob at[2 * kMaxFactorizationLayers + 1];
};

// Blocks y copies job y.
template <typename T>
__global__ void __launch_bounds__(kThreads) PackLayers(const CopyJobs __grid_constant__ jobs) {
  const CopyJob& job = jobs.at[blockIdx.y];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = ThreadIndex<int64_t>(); i < job.count; i += step) static_cast<T*>(job.to)[i] = T(job.from[i]);
}

// inputs [samples, 2 * half] = the rows of user and item, one behind the other; a thread for each kWidth elements.
template <typename T, int kWidth, typename Index>
__global__ void __launch_bounds__(kThreads) GatherInputs(Pairs pairs, Index packs, Index packs_of_sample, int64_t half,
                                                         const float* users, const float* items, T* inputs) {
  const Index i = ThreadIndex<Index>();
  if (i >= packs) return;
  const Pairs::Pair pair = pairs.At(static_cast<uint32_t>(i / packs_of_sample));
  const int64_t c = static_cast<int64_t>(i % packs_of_sample) * kWidth;
  Pack<float, kWidth> row = {};
  if (pair.inside) {
    const float* const from = c < half ? users + pair.user * half + c : items + pair.item * half + (c - half);
    row = *reinterpret_cast<const Pack<float, kWidth>*>(from);
  }
  reinterpret_cast<Pack<T, kWidth>*>(inputs)[i] = RoundPack<T>(row);
}

// What the score is made of.
template <typename T>
struct LastLayer {
  int64_t factors, width;            // of the product and of the perceptron's output
  const float *gmf_user, *gmf_item;  // [users, factors], [items, factors]
  const T* hidden;                   // [samples, width]
  const float *kernel, *bias;        // [factors + width], [1]

  // For all lanes of a warp.
  __device__ float Score(const Pairs::Pair& pair, uint32_t sample) const {
    float sum = 0;
    if (pair.inside) {
      const float *const user = gmf_user + pair.user * factors, *const item = gmf_item + pair.item * factors;
      for (int64_t c = Warp::Lane(); c < factors; c += kLanes) sum += user[c] * item[c] * kernel[c];
    }
    const T* const x = hidden + sample * width;
    for (int64_t c = Warp::Lane(); c < width; c += kLanes) sum += static_cast<float>(x[c]) * kernel[factors + c];
    return SumOfLanes(sum) + *bias;
  }
};

// A warp for each sample.
template <typename T>
__global__ void __launch_bounds__(kThreads) Score(Pairs pairs, LastLayer<T> last, uint32_t samples, float* scores) {
  const int64_t sample = Warp::Row();
  if (sample >= samples) return;
  const Pairs::Pair pair = pairs.At(static_cast<uint32_t>(sample));
  const float score = last.Score(pair, static_cast<uint32_t>(sample));
  if (Warp::Lane() != 0) return;
  pairs.Report(pair);
  scores[sample] = score;
}

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

using MatMul = std::shared_ptr<CublasMatMul>;

// What both ops have in common: from the tables to the perceptron's output.
template <typename T>
class Forward {
 public:
  // Inputs of the node: users, items, and from `first` on the network. `keep`: the inputs of all layers stay.
  static absl::StatusOr<Forward> Make(const KernelSpec& spec, int first, bool keep) {
    Forward f(GeometryOf(spec.attrs(), spec.node.inputs(), first));
    const int64_t samples = spec.input(1).shape.num_elements();
    if (samples > std::numeric_limits<int32_t>::max()) {
      return absl::UnimplementedError(absl::StrCat(spec.node.op().name.text(), " of ", samples, " samples: too many"));
    }
    CudaDevice& device = CudaDeviceOf(spec);
    f.stream_ = device.stream();
    f.samples_ = static_cast<uint32_t>(samples);
    const auto outside = [&](const char* what, int64_t limit) {
      return device.AddDataError(spec.node, [what, limit](int32_t value) {
        return absl::StrCat(what, " ", value, " is outside [0, ", limit, ")");
      });
    };
    f.pairs_ = {.users = nullptr,
                .items = nullptr,
                .candidates = static_cast<uint32_t>(samples / std::max<int64_t>(1, spec.input(0).shape.num_elements())),
                .num_users = static_cast<int32_t>(f.g_.num_users),
                .num_items = static_cast<int32_t>(f.g_.num_items),
                .user_error = outside("user", f.g_.num_users),
                .item_error = outside("item", f.g_.num_items)};
    if (samples == 0) return f;
    for (size_t k = 0; k < f.g_.layers.size(); ++k) {
      const int64_t widest = *std::max_element(f.g_.layers.begin(), f.g_.layers.end());
      f.inputs_at_.push_back(keep || k < 2 ? f.scratch_.Add(samples * (keep ? f.g_.layers[k] : widest) * sizeof(T))
                                           : f.inputs_at_[k - 2]);
    }
    for (int k = 0; k < f.num_layers(); ++k) {
      const int64_t in = f.g_.layers[k], out = f.g_.layers[k + 1];
      f.weights_at_.push_back(f.scratch_.Add(in * out * sizeof(T)));
      f.biases_at_.push_back(f.scratch_.Add(out * sizeof(T)));
      ASSIGN_OR_RETURN(MatMul product, CublasMatMul::Make(device, {.geometry = {.m = samples, .n = out, .k = in},
                                                                   .dtype = f.dtype(),
                                                                   .result = f.dtype(),
                                                                   .has_bias = true,
                                                                   .relu = true}));
      f.AddWorkspace(*product);
      f.products_.push_back(std::move(product));
    }
    return f;
  }

  const FactorizationGeometry& geometry() const { return g_; }
  int num_layers() const { return std::max(0, static_cast<int>(g_.layers.size()) - 1); }
  uint32_t samples() const { return samples_; }
  cudaStream_t stream() const { return stream_; }
  DType dtype() const { return DTypeOf<T>(); }
  // What else the op needs.
  ScratchPlan& scratch() { return scratch_; }
  void AddWorkspace(const CublasMatMul& product) {
    workspace_bytes_ = std::max(workspace_bytes_, product.scratch_bytes());
  }
  // To be called once, when all else has its place.
  int64_t FinishScratch() {
    workspace_at_ = scratch_.Add(workspace_bytes_);
    return scratch_.bytes();
  }

  // The input of layer k; of k = num_layers() the perceptron's output.
  T* Input(const KernelArgs& args, int k) const { return At(args, inputs_at_[k]); }
  const T* Weights(const KernelArgs& args, int k) const { return At(args, weights_at_[k]); }
  void* Workspace(const KernelArgs& args) const { return ScratchAt(args, workspace_at_); }
  Pairs PairsOf(const KernelArgs& args) const {
    Pairs pairs = pairs_;
    pairs.users = args.input<int32_t>(0);
    pairs.items = args.input<int32_t>(1);
    return pairs;
  }
  LastLayer<T> Last(const KernelArgs& args) const {
    LastLayer<T> last = {.factors = g_.factors,
                         .width = g_.layers.empty() ? 0 : g_.layers.back(),
                         .gmf_user = nullptr,
                         .gmf_item = nullptr,
                         .hidden = nullptr,
                         .kernel = args.input<float>(g_.rating),
                         .bias = args.input<float>(g_.rating + 1)};
    if (g_.factors > 0) {
      last.gmf_user = args.input<float>(g_.gmf);
      last.gmf_item = args.input<float>(g_.gmf + 1);
    }
    if (!g_.layers.empty()) last.hidden = Input(args, num_layers());
    return last;
  }

  // Up to the perceptron's output. `more`: is copied along with the layers.
  absl::Status Run(const KernelArgs& args, absl::Span<const CopyJob> more = {}) const {
    if (g_.layers.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(RunPack(args, more));
    RETURN_IF_ERROR(RunGather(args));
    for (int k = 0; k < num_layers(); ++k) {
      RETURN_IF_ERROR(products_[k]->Run(Input(args, k), Weights(args, k), At(args, biases_at_[k]), Input(args, k + 1),
                                        Workspace(args)));
    }
    return absl::OkStatus();
  }

 private:
  explicit Forward(FactorizationGeometry geometry) : g_(std::move(geometry)) {}
  static T* At(const KernelArgs& args, int64_t offset) { return static_cast<T*>(ScratchAt(args, offset)); }

  absl::Status RunPack(const KernelArgs& args, absl::Span<const CopyJob> more) const {
    if (num_layers() == 0) return absl::OkStatus();
    CopyJobs jobs = {};
    unsigned count = 0;
    for (int k = 0; k < num_layers(); ++k) {
      jobs.at[count++] = {args.input<float>(g_.kernel(k)), At(args, weights_at_[k]), g_.layers[k] * g_.layers[k + 1]};
      jobs.at[count++] = {args.input<float>(g_.kernel(k) + 1), At(args, biases_at_[k]), g_.layers[k + 1]};
    }
    for (const CopyJob& job : more) jobs.at[count++] = job;
    constexpr unsigned kBlocks = 32;
    Launch(PackLayers<T>, dim3(kBlocks, count), kThreads, 0, stream_, jobs);
    return LaunchStatus("PackLayers");
  }

  absl::Status RunGather(const KernelArgs& args) const {
    const int64_t half = g_.layers[0] / 2;
    const auto gather = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
      const int64_t packs_of_sample = g_.layers[0] / kWidth, packs = samples_ * packs_of_sample;
      WithIndexType(packs, [&]<typename Index>(Index) {
        Launch(GatherInputs<T, kWidth, Index>, NumBlocks(packs, kThreads), kThreads, 0, stream_, PairsOf(args),
               static_cast<Index>(packs), static_cast<Index>(packs_of_sample), half, args.input<float>(g_.mlp),
               args.input<float>(g_.mlp + 1), Input(args, 0));
      });
    };
    constexpr int kWide = kWidestLoad<float>;
    if (half % kWide == 0) {
      gather(std::integral_constant<int, kWide>());
    } else {
      gather(std::integral_constant<int, 1>());
    }
    return LaunchStatus("GatherInputs");
  }

  FactorizationGeometry g_;
  uint32_t samples_ = 0;
  cudaStream_t stream_ = nullptr;
  Pairs pairs_ = {};
  std::vector<MatMul> products_;
  // In bytes, of the scratch memory.
  ScratchPlan scratch_;
  std::vector<int64_t> inputs_at_, weights_at_, biases_at_;
  int64_t workspace_at_ = 0, workspace_bytes_ = 0;
};

template <typename T>
absl::StatusOr<Kernel> MakeScoresOf(const KernelSpec& spec) {
  ASSIGN_OR_RETURN(Forward<T> forward, Forward<T>::Make(spec, 2, /*keep=*/false));
  if (forward.samples() == 0) {
    return Kernel{[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  Kernel kernel;
  kernel.scratch_bytes = forward.FinishScratch();
  kernel.run = [forward](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(forward.Run(args));
    Launch(Score<T>, NumBlocks(forward.samples(), kWarps), kThreads, 0, forward.stream(), forward.PairsOf(args),
           forward.Last(args), forward.samples(), args.output<float>(0));
    return LaunchStatus("Score");
  };
  return kernel;
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
    CudaDevice& device = CudaDeviceOf(spec);
    b.loss_ = {static_cast<float>(spec.attrs().GetFloat("shift")), static_cast<float>(spec.attrs().GetFloat("limit"))};
    ScratchPlan& scratch = b.forward_.scratch();
    b.sums_at_ = scratch.Add(b.sums_.pieces * b.sums_.columns() * sizeof(float));
    b.shared_bytes_ = static_cast<int>(kWarps * b.sums_.columns() * sizeof(float));
    const auto most_shared_bytes = static_cast<int>(device.properties().sharedMemPerBlockOptin);
    if (b.shared_bytes_ > most_shared_bytes) {
      return absl::UnimplementedError(
          absl::StrCat(spec.node.op().name.text(), ": ", b.sums_.columns(), " columns before the rating are too many"));
    }
    RETURN_IF_ERROR(
        CudaStatus(cudaFuncSetAttribute(Train<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_bytes),
                   "cudaFuncSetAttribute"));
    const int num_layers = b.forward_.num_layers();
    if (num_layers == 0) return b;
    const int64_t samples = b.forward_.samples();
    const int64_t widest = *std::max_element(g.layers.begin() + 1, g.layers.end());
    for (int64_t& at : b.gradients_at_) at = scratch.Add(samples * widest * sizeof(T));
    b.item_weights_at_ = scratch.Add(g.layers[0] / 2 * g.layers[1] * sizeof(T));
    const auto make = [&](const CublasMatMulSpec& matmul) -> absl::StatusOr<MatMul> {
      ASSIGN_OR_RETURN(MatMul product, CublasMatMul::Make(device, matmul));
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

const bool registered = [] {
  const auto add = [](compute::OpName op, auto make) {
    const auto make_for_type = [make](const KernelSpec& spec) {
      return spec.attrs().Get<DType>("dtype") == DType::kBFloat16 ? make(spec, BFloat16()) : make(spec, 0.0f);
    };
    compute::RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = {DType::kInt32}, .make = make_for_type});
  };
  add(op::NeuralFactorizationScores, []<typename T>(const KernelSpec& spec, T) { return MakeScoresOf<T>(spec); });
  add(op::NeuralFactorizationLoss, []<typename T>(const KernelSpec& spec, T) { return MakeLossOf<T>(spec); });
  return true;
}();

}  // namespace
}  // namespace official::recommendation
