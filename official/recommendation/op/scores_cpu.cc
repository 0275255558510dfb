// CPU kernel of NeuralFactorizationScores: many candidates of each user. What the first layer makes of a user and of an
// item adds up, so each is computed once; then for a pair there is an addition in place of the widest product. Tiles of
// candidates go through the other layers while their activations are in the caches.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "official/recommendation/op/geometry.h"
#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/check_ids.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"

namespace official::recommendation {
namespace {

using compute::Attrs;
using compute::BFloat16;
using compute::CheckIds;
using compute::DType;
using compute::HasAvx512;
using compute::Kernel;
using compute::KernelArgs;
using compute::KernelSpec;
using compute::MostThreads;
using compute::ParallelFor;
using compute::ScratchAt;
using compute::ScratchPlan;
using compute::Share;
using compute::ShareOf;

constexpr int64_t kBlock = 16;  // columns that are kept together
constexpr int64_t kTile = 112;  // most candidates that are computed together

constexpr int64_t Padded(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// What pads the sizes is zero.
struct PackedLayer {
  int64_t in = 0, out = 0;
  const float* weights = nullptr;  // [Padded(out) / kBlock][Padded(in)][kBlock]
  const float* bias = nullptr;     // [Padded(out)]
};

struct Network {
  int64_t factors = 0, half = 0;  // sizes of the embeddings
  const float *gmf_user = nullptr, *gmf_item = nullptr, *mlp_user = nullptr, *mlp_item = nullptr;
  int num_layers = 0;
  PackedLayer user_half, item_half;                         // of the first layer; the user's has its bias
  float* of_items = nullptr;                                // what item_half makes of each item, [I, Padded(out)]
  std::array<PackedLayer, kMaxFactorizationLayers> layers;  // behind the first
  const float* rating = nullptr;                            // [factors + ...]
  const float* mlp_rating = nullptr;                        // the perceptron's part of it, padded
  int64_t last_width = 0;                                   // of what goes into that from the layers, padded
  float rating_bias = 0;
  bool rounded = false;  // to bfloat16: the factors of the layers' products
  int64_t enough = 0;    // see NeuralFactorizationScores
};

// A tile of n columns is [Padded(n) / kBlock][kTile][kBlock].
struct TileMemory {
  float* embeddings;                                   // tile
  std::array<float*, kMaxFactorizationLayers> inputs;  // tiles: what comes out of each layer
  float *of_user, *product;                            // the user's part of the first layer, and of the product
  float constant;                                      // in all scores of the user
  int32_t* ahead;                                      // items whose scores are not less than the first's, [enough]
};

struct Kernels {
  void (*item_halves)(const Network&, const int32_t* items, int64_t count, const TileMemory&);
  void (*score_user)(const Network&, int64_t user, const int32_t* items, int64_t candidates, TileMemory&,
                     float* scores);
};

#define OFFICIAL_ISA_FILE "official/recommendation/op/scores-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const Kernels& IsaKernels() { return HasAvx512() ? avx512::kKernels : avx2::kKernels; }

// Where everything is in the scratch memory.
class Plan {
 public:
  Plan(const FactorizationGeometry& geometry, const Attrs& attrs, int64_t memories)
      : g_(geometry),
        rounded_(attrs.Get<DType>("dtype") == DType::kBFloat16),
        enough_(attrs.GetInt("enough")),
        num_layers_(std::max(0, static_cast<int>(g_.layers.size()) - 1)) {
    const auto add_layer = [&](int64_t in, int64_t out) {
      const int64_t weights = Floats(scratch_, Padded(in) * Padded(out));
      layers_.push_back({in, out, weights, Floats(scratch_, Padded(out))});
    };
    for (int k = 0; k < num_layers_; ++k) {
      if (k == 0) add_layer(g_.layers[0] / 2, g_.layers[1]);
      add_layer(k == 0 ? g_.layers[0] / 2 : g_.layers[k], g_.layers[k + 1]);
    }
    mlp_rating_at_ = Floats(scratch_, g_.layers.empty() ? 0 : Padded(g_.layers.back()));
    packed_bytes_ = scratch_.bytes();
    of_items_at_ = Floats(scratch_, num_layers_ > 0 ? g_.num_items * Padded(g_.layers[1]) : 0);
    wanted_at_ = scratch_.Add(g_.num_items * sizeof(int32_t));
    seen_at_ = scratch_.Add(g_.num_items);

    ScratchPlan memory;
    embeddings_at_ = Floats(memory, g_.layers.empty() ? 0 : kTile * Padded(g_.layers[0] / 2));
    for (int k = 0; k < num_layers_; ++k) inputs_at_.push_back(Floats(memory, kTile * Padded(g_.layers[k + 1])));
    of_user_at_ = Floats(memory, num_layers_ > 0 ? Padded(g_.layers[1]) : 0);
    product_at_ = Floats(memory, Padded(g_.factors));
    ahead_at_ = memory.Add(enough_ * static_cast<int64_t>(sizeof(int32_t)));
    memory_bytes_ = memory.bytes();
    memories_at_ = scratch_.Add(memories * memory_bytes_);
  }

  int64_t scratch_bytes() const { return scratch_.bytes(); }

  // Packs the layers and points to the tables.
  Network Pack(const KernelArgs& args) const {
    Network net;
    net.factors = g_.factors;
    net.num_layers = num_layers_;
    net.rounded = rounded_;
    net.enough = enough_;
    std::memset(args.scratch, 0, packed_bytes_);
    if (g_.factors > 0) {
      net.gmf_user = args.input<float>(g_.gmf);
      net.gmf_item = args.input<float>(g_.gmf + 1);
    }
    net.rating = args.input<float>(g_.rating);
    net.rating_bias = *args.input<float>(g_.rating + 1);
    if (g_.layers.empty()) return net;
    net.half = g_.layers[0] / 2;
    net.mlp_user = args.input<float>(g_.mlp);
    net.mlp_item = args.input<float>(g_.mlp + 1);
    net.of_items = At(args, of_items_at_);
    if (num_layers_ > 0) {
      net.user_half = PackLayer(args, 0, g_.kernel(0), 0, /*with_bias=*/true);
      net.item_half = PackLayer(args, 1, g_.kernel(0), net.half, /*with_bias=*/false);
      net.last_width = Padded(g_.layers.back());
    }
    for (int k = 1; k < num_layers_; ++k) net.layers[k - 1] = PackLayer(args, k + 1, g_.kernel(k), 0, true);
    // Without layers the item's embedding comes last.
    const float* const mlp_rating = net.rating + g_.factors + (num_layers_ > 0 ? 0 : net.half);
    std::copy_n(mlp_rating, num_layers_ > 0 ? g_.layers.back() : net.half, At(args, mlp_rating_at_));
    net.mlp_rating = At(args, mlp_rating_at_);
    return net;
  }

  // The items that there are scores of, each once; all, where there are more scores than items.
  absl::Span<const int32_t> WantedItems(const KernelArgs& args, const int32_t* items, int64_t n) const {
    auto* const wanted = static_cast<int32_t*>(ScratchAt(args, wanted_at_));
    if (n >= g_.num_items) {
      std::iota(wanted, wanted + g_.num_items, 0);
      return {wanted, static_cast<size_t>(g_.num_items)};
    }
    auto* const seen = static_cast<bool*>(ScratchAt(args, seen_at_));
    std::fill_n(seen, g_.num_items, false);
    size_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (!std::exchange(seen[items[i]], true)) wanted[count++] = items[i];
    }
    return {wanted, count};
  }

  // Tile memory number `index`, its padding zero.
  TileMemory Memory(const KernelArgs& args, int64_t index) const {
    const int64_t base = memories_at_ + index * memory_bytes_;
    std::memset(ScratchAt(args, base), 0, memory_bytes_);
    TileMemory t;
    t.embeddings = At(args, base + embeddings_at_);
    for (size_t k = 0; k < inputs_at_.size(); ++k) t.inputs[k] = At(args, base + inputs_at_[k]);
    t.of_user = At(args, base + of_user_at_);
    t.product = At(args, base + product_at_);
    t.ahead = static_cast<int32_t*>(ScratchAt(args, base + ahead_at_));
    return t;
  }

 private:
  struct LayerPlace {
    int64_t in, out, weights_at, bias_at;
  };

  static int64_t Floats(ScratchPlan& plan, int64_t n) { return plan.Add(n * static_cast<int64_t>(sizeof(float))); }
  static float* At(const KernelArgs& args, int64_t offset) { return static_cast<float*>(ScratchAt(args, offset)); }

  // Of the layer whose kernel and bias are the inputs from `kernel` on, the rows from `row` on.
  PackedLayer PackLayer(const KernelArgs& args, int index, int kernel, int64_t row, bool with_bias) const {
    const LayerPlace& place = layers_[index];
    float *const weights = At(args, place.weights_at), *const bias = At(args, place.bias_at);
    const float* from = args.input<float>(kernel) + row * place.out;
    for (int64_t i = 0; i < place.in; ++i) {
      for (int64_t o = 0; o < place.out; ++o) {
        const float weight = *from++;
        weights[(o / kBlock * Padded(place.in) + i) * kBlock + o % kBlock] =
            rounded_ ? static_cast<float>(BFloat16(weight)) : weight;
      }
    }
    if (with_bias) std::copy_n(args.input<float>(kernel + 1), place.out, bias);
    return {.in = place.in, .out = place.out, .weights = weights, .bias = bias};
  }

  const FactorizationGeometry g_;
  const bool rounded_;
  const int64_t enough_;
  const int num_layers_;
  // In bytes.
  ScratchPlan scratch_;
  std::vector<LayerPlace> layers_;  // both halves of the first, then the others
  int64_t mlp_rating_at_, packed_bytes_, of_items_at_, wanted_at_, seen_at_, memories_at_;
  int64_t embeddings_at_, of_user_at_, product_at_, ahead_at_, memory_bytes_;
  std::vector<int64_t> inputs_at_;
};

absl::StatusOr<Kernel> MakeScores(const KernelSpec& spec) {
  const int64_t num_users = spec.input(1).shape.dim(0), candidates = spec.input(1).shape.dim(1);
  const int64_t memories = MostThreads();
  const FactorizationGeometry geometry = GeometryOf(spec.attrs(), spec.node.inputs(), 2);
  const Plan plan(geometry, spec.attrs(), memories);
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    const int32_t *const users = args.input<int32_t>(0), *const items = args.input<int32_t>(1);
    RETURN_IF_ERROR(CheckIds("user", users, num_users, geometry.num_users));
    RETURN_IF_ERROR(CheckIds("item", items, num_users * candidates, geometry.num_items));
    const Network net = plan.Pack(args);
    if (net.num_layers > 0) {
      const auto wanted = plan.WantedItems(args, items, num_users * candidates);
      const auto n = static_cast<int64_t>(wanted.size());
      ParallelFor(n, 64, [&](int64_t begin, int64_t end) {
        IsaKernels().item_halves(net, wanted.data() + begin, end - begin, plan.Memory(args, compute::ThreadNumber()));
      });
    }
    ParallelFor(num_users, 1, [&](int64_t first, int64_t last) {
      TileMemory memory = plan.Memory(args, compute::ThreadNumber());
      for (int64_t u = first; u < last; ++u) {
        IsaKernels().score_user(net, users[u], items + u * candidates, candidates, memory,
                                args.output<float>(0) + u * candidates);
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = plan.scratch_bytes()};
}

const bool registered = compute::RegisterKernel(
    {.op = op::NeuralFactorizationScores, .device_kind = "cpu", .dtypes = {DType::kInt32}, .make = MakeScores});

}  // namespace
}  // namespace official::recommendation
