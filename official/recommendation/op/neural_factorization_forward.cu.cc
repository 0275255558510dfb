// CUDA kernels from the tables to the perceptron's output, which both ops run, and the scores.

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/recommendation/op/geometry.h"
#include "official/recommendation/op/neural_factorization.h"
#include "official/recommendation/op/neural_factorization_cuda.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/matmul/cublas_matmul.h"

namespace official::recommendation::factorization_cuda {
namespace {

using compute::BFloat16;
using compute::CublasMatMul;
using compute::CudaDevice;
using compute::CudaDeviceOf;
using compute::DType;
using compute::Kernel;
using compute::KernelArgs;
using compute::KernelSpec;
using compute::kWidestLoad;
using compute::Launch;
using compute::LaunchStatus;
using compute::NumBlocks;
using compute::Pack;
using compute::RoundPack;
using compute::ThreadIndex;
using compute::WithIndexType;

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

}  // namespace

template <typename T>
absl::StatusOr<Forward<T>> Forward<T>::Make(const KernelSpec& spec, int first, bool keep) {
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
    ASSIGN_OR_RETURN(MatMul product, CublasMatMul::Make(spec, {.geometry = {.m = samples, .n = out, .k = in},
                                                               .dtype = f.dtype(),
                                                               .result = f.dtype(),
                                                               .has_bias = true,
                                                               .relu = true}));
    f.AddWorkspace(*product);
    f.products_.push_back(std::move(product));
  }
  return f;
}

template <typename T>
absl::Status Forward<T>::Run(const KernelArgs& args, absl::Span<const CopyJob> more) const {
  if (g_.layers.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(RunPack(args, more));
  RETURN_IF_ERROR(RunGather(args));
  for (int k = 0; k < num_layers(); ++k) {
    RETURN_IF_ERROR(products_[k]->Run(Input(args, k), Weights(args, k), At(args, biases_at_[k]), Input(args, k + 1),
                                      Workspace(args)));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Forward<T>::RunPack(const KernelArgs& args, absl::Span<const CopyJob> more) const {
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

template <typename T>
absl::Status Forward<T>::RunGather(const KernelArgs& args) const {
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

template class Forward<float>;
template class Forward<BFloat16>;

namespace {

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

absl::StatusOr<Kernel> MakeScores(const KernelSpec& spec) {
  return spec.attrs().Get<DType>("dtype") == DType::kBFloat16 ? MakeScoresOf<BFloat16>(spec)
                                                              : MakeScoresOf<float>(spec);
}

const bool registered = [] {
  compute::RegisterKernel(
      {.op = op::NeuralFactorizationScores, .device_kind = "cuda", .dtypes = {DType::kInt32}, .make = MakeScores});
  return true;
}();

}  // namespace
}  // namespace official::recommendation::factorization_cuda
