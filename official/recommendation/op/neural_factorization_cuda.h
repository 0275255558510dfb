// The CUDA kernels of neural factorization share this. The products of the perceptron are cuBLASLt's, in the network's
// type; a few kernels do everything around them, so that of a sample no more than the inputs of the layers and their
// gradients goes through memory. All else is computed in float. The gradients are those of the sum of the losses until
// they leave. Only for CUDA code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "official/recommendation/op/geometry.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/ops/matmul/cublas_matmul.h"

namespace official::recommendation::factorization_cuda {

using Warp = compute::RowThreads<32, 1>;
inline constexpr int kThreads = Warp::kBlock, kWarps = Warp::kRowsOfBlock, kLanes = Warp::kRowThreads;

__device__ inline float SumOfLanes(float value) {
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
  compute::DataError user_error, item_error;

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

// The last layer makes the score of a sample from these.
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

using MatMul = std::shared_ptr<compute::CublasMatMul>;

// Both ops have this part in common: it leads from the tables to the perceptron's output.
template <typename T>
class Forward {
 public:
  // Inputs of the node: users, items, and from `first` on the network. `keep`: the inputs of all layers stay.
  static absl::StatusOr<Forward> Make(const compute::KernelSpec& spec, int first, bool keep);

  const FactorizationGeometry& geometry() const { return g_; }
  int num_layers() const { return std::max(0, static_cast<int>(g_.layers.size()) - 1); }
  uint32_t samples() const { return samples_; }
  cudaStream_t stream() const { return stream_; }
  compute::DType dtype() const { return compute::DTypeOf<T>(); }
  // The op adds to it what it needs besides.
  compute::ScratchPlan& scratch() { return scratch_; }
  void AddWorkspace(const compute::CublasMatMul& product) {
    workspace_bytes_ = std::max(workspace_bytes_, product.scratch_bytes());
  }
  // To be called once, when all else has its place.
  int64_t FinishScratch() {
    workspace_at_ = scratch_.Add(workspace_bytes_);
    return scratch_.bytes();
  }

  // The input of layer k; of k = num_layers() the perceptron's output.
  T* Input(const compute::KernelArgs& args, int k) const { return At(args, inputs_at_[k]); }
  const T* Weights(const compute::KernelArgs& args, int k) const { return At(args, weights_at_[k]); }
  void* Workspace(const compute::KernelArgs& args) const { return compute::ScratchAt(args, workspace_at_); }
  Pairs PairsOf(const compute::KernelArgs& args) const {
    Pairs pairs = pairs_;
    pairs.users = args.input<int32_t>(0);
    pairs.items = args.input<int32_t>(1);
    return pairs;
  }
  LastLayer<T> Last(const compute::KernelArgs& args) const {
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
  absl::Status Run(const compute::KernelArgs& args, absl::Span<const CopyJob> more = {}) const;

 private:
  explicit Forward(FactorizationGeometry geometry) : g_(std::move(geometry)) {}
  static T* At(const compute::KernelArgs& args, int64_t offset) {
    return static_cast<T*>(compute::ScratchAt(args, offset));
  }

  absl::Status RunPack(const compute::KernelArgs& args, absl::Span<const CopyJob> more) const;
  absl::Status RunGather(const compute::KernelArgs& args) const;

  FactorizationGeometry g_;
  uint32_t samples_ = 0;
  cudaStream_t stream_ = nullptr;
  Pairs pairs_ = {};
  std::vector<MatMul> products_;
  // In bytes, of the scratch memory.
  compute::ScratchPlan scratch_;
  std::vector<int64_t> inputs_at_, weights_at_, biases_at_;
  int64_t workspace_at_ = 0, workspace_bytes_ = 0;
};

}  // namespace official::recommendation::factorization_cuda
