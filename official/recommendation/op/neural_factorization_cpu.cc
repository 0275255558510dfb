// CPU kernel of NeuralFactorizationLoss. Tiles of a few dozen samples go through the whole network, forward and back,
// while their activations and the layers are in the caches. Activations are kept in blocks of 16 columns, weights in
// panels of as many, so that every inner loop has rows and columns at distances that the compiler knows; what follows a
// product is done where its sums are in registers.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "official/recommendation/op/geometry.h"
#include "official/recommendation/op/neural_factorization.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/amx_tiles.h"
#include "utils/compute/cpu/check_ids.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::recommendation {
namespace {

namespace math = compute::math;
using compute::BlockSums;
using compute::CheckIds;
using compute::ClearSums;
using compute::DType;
using compute::HasAvx512;
using compute::Kernel;
using compute::KernelArgs;
using compute::KernelSpec;
using compute::kTileColumns;
using compute::kTileDepth;
using compute::kTileRows;
using compute::LoadSums;
using compute::LoadTile;
using compute::MultiplyBlocks;
using compute::ParallelFor;
using compute::ScratchAt;
using compute::ScratchPlan;
using compute::Share;
using compute::ShareOf;
using compute::StoreSums;
using compute::Tiles;
using compute::TreeSum;
using compute::WithSimd;

constexpr int64_t kBlock = 16;              // columns that are kept together
constexpr int64_t kTile = 64;               // samples that are computed together, a multiple of the block
constexpr int64_t kCachedFloats = 1 << 20;  // that may stay in the caches from op to op

constexpr int64_t Padded(int64_t n, int64_t block = kBlock) { return (n + block - 1) / block * block; }

enum class Product {
  kFloat,    // of float32
  kRounded,  // of float32 that were rounded to bfloat16
  kPairs,    // of bfloat16, two at a time: the same sums in another order
  kTiles,    // of bfloat16 in AMX's tiles: the same sums in yet another order
};
constexpr bool HasPairs(Product product) { return product == Product::kPairs || product == Product::kTiles; }
// Columns that rows keep together; depths and samples are multiples of it. A tile's rows have 32 bfloat16.
constexpr int64_t RowBlock(Product product) { return product == Product::kTiles ? 2 * kBlock : kBlock; }

// Matrices of samples lie in blocks of columns, [columns / RowBlock][kTile][RowBlock]; sizes are padded to whole
// blocks, and what pads is zero. Panels are blocks of a layer's kernel, [columns / kBlock][depth][kBlock], rounded as
// Product says; for pairs [columns / kBlock][depth / 2][kBlock] of them, in memory of float.
struct PackedLayer {
  int64_t in = 0, out = 0;
  float* weights = nullptr;     // panels of `out` columns
  float* transposed = nullptr;  // panels of `in` columns
  float* bias = nullptr;        // [out]
};

struct Network {
  int64_t factors = 0, half = 0;  // sizes of the embeddings, as they are
  int64_t padded_half = 0;        // columns of the perceptron's users before those of its items
  const float *gmf_user = nullptr, *gmf_item = nullptr, *mlp_user = nullptr, *mlp_item = nullptr;
  int num_layers = 0;
  std::array<PackedLayer, kMaxFactorizationLayers> layers;
  int64_t gmf_width = 0, mlp_width = 0;  // of what goes into the last layer, padded
  const float* rating = nullptr;         // its kernel [gmf_width + mlp_width]
  float rating_bias = 0;
  bool is_large = false;                   // the tables do not stay in the caches
  float shift = 0, limit = 0, weight = 0;  // of the loss
};

struct Samples {
  const int32_t *users, *items;
  const float* labels;
  int64_t first, count;  // their place in the batch, for the gradients
};

// A matrix of samples as products take it. With pairs `rows` are bfloat16, and `steps` are pairs of samples,
// [columns / kBlock][kTile / 2][kBlock]; else both are the same.
struct Operand {
  float *rows, *steps;
};

// What the next tile reads of the tables.
struct LinesAhead {
  const float** line;
  int count, next;
};

// Matrices of a tile.
struct TileMemory {
  std::array<Operand, kMaxFactorizationLayers> inputs;  // of each layer
  float* gathered;                                      // from the perceptron's tables
  float* last;                                          // what comes out of the last layer, or of the tables
  Operand of_outputs[2];                                // the gradient of a layer's output, and of the one before
  float *scores, *losses;                               // [kTile]
  LinesAhead lines;
};

// Sums over a unit's samples, and rows for each sample.
struct UnitGradients {
  std::array<float*, kMaxFactorizationLayers> weights, biases;  // as the PackedLayers
  bool accumulate;                                              // weights: else they are written
  float *rating, *rating_bias;
  float *gmf_user, *gmf_item, *mlp_user, *mlp_item;  // of the whole batch
  bool stream;                                       // these rows are whole vectors, and too many for the caches
};

struct Kernels {
  // Adds to the gradients and returns the sum of the losses.
  float (*train)(const Network&, const Samples&, TileMemory&, const UnitGradients&);
  // A kernel [in, out]: rows of the layer from `first` on, with what pads them.
  void (*pack)(const float* kernel, int64_t in, int64_t out, int64_t first, const PackedLayer&);
};

#define OFFICIAL_ISA_WITH_BF16
#define OFFICIAL_ISA_FILE "official/recommendation/op/neural_factorization-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

Product ProductOf(DType dtype) {
  if (dtype == DType::kFloat32) return Product::kFloat;
  if (compute::CpuIsa() == compute::Isa::kAmx) return Product::kTiles;
  return compute::CpuIsa() == compute::Isa::kAvx512Bf16 ? Product::kPairs : Product::kRounded;
}

Kernels FindKernels(Product product) {
  if (product == Product::kTiles) return avx512bf16::kKernels<Product::kTiles>;
  if (product == Product::kPairs) return avx512bf16::kKernels<Product::kPairs>;
  if (product == Product::kRounded) {
    return HasAvx512() ? avx512::kKernels<Product::kRounded> : avx2::kKernels<Product::kRounded>;
  }
  return HasAvx512() ? avx512::kKernels<Product::kFloat> : avx2::kKernels<Product::kFloat>;
}

bool HasManyWeights(const FactorizationGeometry& g) {
  int64_t weights = 0;
  for (size_t k = 1; k < g.layers.size(); ++k) weights += g.layers[k - 1] * g.layers[k];
  return weights > 16384;
}

// Where everything is in the scratch memory, and the steps around the kernels.
class Plan {
 public:
  // `units`: ranges of samples with gradients of their own.
  Plan(const FactorizationGeometry& geometry, DType dtype, int64_t units, int64_t tile_memories)
      : g_(geometry), product_(ProductOf(dtype)), kernels_(FindKernels(product_)) {
    for (int k = 0; k < num_layers(); ++k) {
      layers_.push_back({.in = Width(k), .out = Width(k + 1)});
    }
    gmf_width_ = Padded(g_.factors);
    mlp_width_ = Width(num_layers());
    // Of one unit's gradients; the network is packed the same way.
    for (const PackedLayer& layer : layers_) biases_at_.push_back(Floats(layer.out));
    rating_at_ = Floats(gmf_width_ + mlp_width_);
    rating_bias_at_ = Floats(1);
    vector_floats_ = unit_floats_;
    for (const PackedLayer& layer : layers_) weights_at_.push_back(Floats(layer.in * layer.out));
    network_at_ = scratch_.Add(unit_floats_ * sizeof(float));
    for (const PackedLayer& layer : layers_)
      transposed_at_.push_back(scratch_.Add(layer.in * layer.out * sizeof(float)));
    units_at_ = scratch_.Add(units * unit_floats_ * sizeof(float));
    losses_at_ = scratch_.Add(units * sizeof(float));
    ScratchPlan memory;
    const auto matrix = [&](int64_t columns) { return memory.Add(columns * kTile * sizeof(float)); };
    for (const PackedLayer& layer : layers_) {
      inputs_at_.push_back(matrix(layer.in));
      widest_ = std::max({widest_, layer.in, layer.out});
    }
    last_at_ = matrix(mlp_width_);
    for (int64_t& at : of_outputs_at_) at = matrix(widest_);
    gathered_at_ = layers_.empty() ? last_at_ : HasPairs(product_) ? matrix(layers_[0].in) : inputs_at_[0];
    scores_at_ = memory.Add(2 * kTile * sizeof(float));
    lines_at_ = memory.Add(kTile * 2 * (g_.factors / 16 + 1 + (g_.layers.empty() ? 0 : g_.layers[0] / 32 + 1)) *
                           sizeof(float*));
    memory_bytes_ = memory.bytes();
    memories_at_ = scratch_.Add(tile_memories * memory_bytes_);
  }

  int64_t scratch_bytes() const { return scratch_.bytes(); }
  const Kernels& kernels() const { return kernels_; }
  Product product() const { return product_; }

  // Packs the layers and points to the tables.
  Network Pack(const KernelArgs& args) const {
    Network net;
    net.is_large = (g_.num_users + g_.num_items) * RowFloats() > kCachedFloats;
    net.factors = g_.factors;
    if (g_.factors > 0) {
      net.gmf_user = args.input<float>(g_.gmf);
      net.gmf_item = args.input<float>(g_.gmf + 1);
    }
    if (!g_.layers.empty()) {
      net.half = g_.layers[0] / 2;
      net.padded_half = Padded(net.half, RowBlock(product_));
      net.mlp_user = args.input<float>(g_.mlp);
      net.mlp_item = args.input<float>(g_.mlp + 1);
    }
    float* const base = static_cast<float*>(ScratchAt(args, network_at_));
    std::memset(base, 0, vector_floats_ * sizeof(float));
    net.num_layers = num_layers();
    for (int k = 0; k < num_layers(); ++k) {
      PackedLayer& layer = net.layers[k] = layers_[k];
      layer.weights = base + weights_at_[k];
      layer.transposed = static_cast<float*>(ScratchAt(args, transposed_at_[k]));
      layer.bias = base + biases_at_[k];
      const float* const kernel = args.input<float>(g_.kernel(k));
      const int64_t out = g_.layers[k + 1];
      ForParts(k, [&](int64_t from, int64_t to, int64_t n) { kernels_.pack(kernel + from * out, n, out, to, layer); });
      std::copy_n(args.input<float>(g_.kernel(k) + 1), out, layer.bias);
    }
    net.gmf_width = gmf_width_;
    net.mlp_width = mlp_width_;
    const float* const rating = args.input<float>(g_.rating);
    std::copy_n(rating, g_.factors, base + rating_at_);
    ForParts(num_layers(), [&](int64_t from, int64_t to, int64_t n) {
      std::copy_n(rating + g_.factors + from, n, base + rating_at_ + gmf_width_ + to);
    });
    net.rating = base + rating_at_;
    net.rating_bias = *args.input<float>(g_.rating + 1);
    return net;
  }

  // Tile memory number `index`, zero where the rows of tables are padded.
  TileMemory Memory(const KernelArgs& args, int64_t index) const {
    char* const base = static_cast<char*>(ScratchAt(args, memories_at_ + index * memory_bytes_));
    if (!g_.layers.empty() && Width(0) != g_.layers[0]) std::memset(base, 0, memory_bytes_);
    const auto at = [&](int64_t offset) { return reinterpret_cast<float*>(base + offset); };
    const auto operand = [&](int64_t offset, int64_t columns) {
      const int64_t rows = HasPairs(product_) ? kTile * columns / 2 : 0;
      return Operand{at(offset), at(offset) + rows};
    };
    TileMemory t;
    for (int k = 0; k < num_layers(); ++k) t.inputs[k] = operand(inputs_at_[k], layers_[k].in);
    t.gathered = at(gathered_at_);
    t.last = at(last_at_);
    for (int i : {0, 1}) t.of_outputs[i] = operand(of_outputs_at_[i], widest_);
    t.scores = at(scores_at_);
    t.losses = t.scores + kTile;
    t.lines = {reinterpret_cast<const float**>(base + lines_at_), 0, 0};
    return t;
  }

  // Has the rows of large tables fetched that these samples need.
  static void FetchAhead(const Network& net, const int32_t* users, const int32_t* items, int64_t count,
                         LinesAhead& lines) {
    constexpr int64_t kFloatsOfLine = 16;
    lines.count = lines.next = 0;
    if (!net.is_large) return;
    const auto fetch = [&](const float* row, int64_t width) {
      for (int64_t c = 0; c < width; c += kFloatsOfLine) lines.line[lines.count++] = row + c;
    };
    for (int64_t r = 0; r < count; ++r) {
      fetch(net.gmf_user + users[r] * net.factors, net.factors);
      fetch(net.gmf_item + items[r] * net.factors, net.factors);
      fetch(net.mlp_user + users[r] * net.half, net.half);
      fetch(net.mlp_item + items[r] * net.half, net.half);
    }
  }

  // Unit number `index` of the batch, with `share` of its samples; what no tile writes before it is added to is zero.
  UnitGradients Unit(const KernelArgs& args, int64_t index, int64_t share, int64_t samples) const {
    float* const base = UnitFloats(args, index);
    std::memset(base, 0, (share > 0 ? vector_floats_ : unit_floats_) * sizeof(float));
    UnitGradients u;
    for (int k = 0; k < num_layers(); ++k) {
      u.weights[k] = base + weights_at_[k];
      u.biases[k] = base + biases_at_[k];
    }
    u.rating = base + rating_at_;
    u.rating_bias = base + rating_bias_at_;
    const auto rows = [&](bool there, int table) { return there ? args.output<float>(table - 2) : nullptr; };
    u.gmf_user = rows(g_.factors > 0, g_.gmf);
    u.gmf_item = rows(g_.factors > 0, g_.gmf + 1);
    u.mlp_user = rows(!g_.layers.empty(), g_.mlp);
    u.mlp_item = rows(!g_.layers.empty(), g_.mlp + 1);
    const auto is_whole = [](int64_t width) { return width % kBlock == 0; };
    u.stream = is_whole(g_.factors) && (g_.layers.empty() || is_whole(g_.layers[0] / 2)) &&
               samples * RowFloats() > kCachedFloats;
    return u;
  }
  float* Losses(const KernelArgs& args) const { return static_cast<float*>(ScratchAt(args, losses_at_)); }

  // Adds the units up by halves; then writes loss and gradients of the layers.
  void Finish(const KernelArgs& args, int64_t units, int64_t samples) const {
    ParallelFor(unit_floats_, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t step = 1; step < units; step *= 2) {
        for (int64_t u = 0; u + step < units; u += 2 * step) {
          float* __restrict to = UnitFloats(args, u);
          const float* __restrict from = UnitFloats(args, u + step);
          WithSimd([=] {
            for (int64_t i = begin; i < end; ++i) to[i] += from[i];
          });
        }
      }
    });
    const float* const losses = Losses(args);
    const float sum = TreeSum(0, units, [&](int64_t u) { return losses[u]; });
    *args.output<float>(0) = sum / static_cast<float>(samples);
    const float* const base = UnitFloats(args, 0);
    for (int k = 0; k < num_layers(); ++k) {
      const int64_t out = g_.layers[k + 1];
      float* const kernel = args.output<float>(g_.kernel(k) - 2);
      const float* const panels = base + weights_at_[k];
      ForParts(k, [&](int64_t from, int64_t to, int64_t n) {
        for (int64_t o = 0; o < out; o += kBlock) {
          const float* const panel = panels + o * layers_[k].in + to * kBlock;
          for (int64_t i = 0; i < n; ++i) {
            float* const row = kernel + (from + i) * out + o;
            if (out - o >= kBlock) {  // a length that the compiler knows
              std::memcpy(row, panel + i * kBlock, kBlock * sizeof(float));
            } else {
              std::copy_n(panel + i * kBlock, out - o, row);
            }
          }
        }
      });
      std::copy_n(base + biases_at_[k], out, args.output<float>(g_.kernel(k) - 1));
    }
    float* const rating = args.output<float>(g_.rating - 2);
    std::copy_n(base + rating_at_, g_.factors, rating);
    ForParts(num_layers(), [&](int64_t from, int64_t to, int64_t n) {
      std::copy_n(base + rating_at_ + gmf_width_ + to, n, rating + g_.factors + from);
    });
    *args.output<float>(g_.rating - 1) = base[rating_bias_at_];
  }

 private:
  int num_layers() const { return std::max(0, static_cast<int>(g_.layers.size()) - 1); }
  // Calls f(column, its place, columns) for what goes into layer k: what is of users, and what is of items; or all.
  template <typename F>
  void ForParts(size_t k, F f) const {
    if (k >= g_.layers.size()) return;
    const int64_t parts = k == 0 ? 2 : 1, n = g_.layers[k] / parts;
    for (int64_t p = 0; p < parts; ++p) f(p * n, p * Padded(n, RowBlock(product_)), n);
  }
  int64_t Width(size_t k) const {
    int64_t width = 0;
    ForParts(k, [&](int64_t, int64_t to, int64_t n) { width = to + Padded(n, RowBlock(product_)); });
    return width;
  }
  int64_t Floats(int64_t n) { return std::exchange(unit_floats_, unit_floats_ + Padded(n)); }
  float* UnitFloats(const KernelArgs& args, int64_t index) const {
    return static_cast<float*>(ScratchAt(args, units_at_)) + index * unit_floats_;
  }
  // Of a user or an item in all tables.
  int64_t RowFloats() const { return g_.factors + (g_.layers.empty() ? 0 : g_.layers[0] / 2); }

  const FactorizationGeometry g_;
  const Product product_;
  const Kernels kernels_;
  std::vector<PackedLayer> layers_;
  int64_t gmf_width_, mlp_width_, widest_ = 0;
  // In floats, of a unit or the packed network.
  std::vector<int64_t> weights_at_, biases_at_;
  int64_t rating_at_, rating_bias_at_, vector_floats_, unit_floats_ = 0;
  // In bytes.
  ScratchPlan scratch_;
  std::vector<int64_t> transposed_at_, inputs_at_;
  int64_t network_at_, units_at_, losses_at_, memories_at_, memory_bytes_;
  int64_t gathered_at_, last_at_, of_outputs_at_[2], scores_at_, lines_at_;
};

// The sums over the batch are made in the graph's parts, each of which is divided further, by its size alone, so that
// many threads find work.
int64_t UnitsOf(const FactorizationGeometry& g, int64_t samples, int parts) {
  constexpr int64_t kMost = 16;
  const int64_t largest = ShareOf(samples, 0, parts).size(), unit = HasManyWeights(g) ? 1024 : 64;
  int64_t units = 1;
  while (units < kMost && largest / units > unit) units *= 2;
  return units * parts;
}

absl::StatusOr<Kernel> MakeLoss(const KernelSpec& spec) {
  const int64_t samples = spec.input(0).shape.dim(0);
  const FactorizationGeometry geometry = GeometryOf(spec.attrs(), spec.node.inputs(), 3);
  const int64_t units = UnitsOf(geometry, samples, spec.node.graph().batch_parts());
  const Plan plan(geometry, spec.attrs().Get<DType>("dtype"), units, units);
  const auto shift = static_cast<float>(spec.attrs().GetFloat("shift"));
  const auto limit = static_cast<float>(spec.attrs().GetFloat("limit"));
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    const int32_t *const users = args.input<int32_t>(0), *const items = args.input<int32_t>(1);
    const float* const labels = args.input<float>(2);
    RETURN_IF_ERROR(CheckIds("user", users, samples, geometry.num_users));
    RETURN_IF_ERROR(CheckIds("item", items, samples, geometry.num_items));
    Network net = plan.Pack(args);
    net.shift = shift;
    net.limit = limit;
    net.weight = 1 / static_cast<float>(samples);
    ParallelFor(units, 1, [&](int64_t begin, int64_t end) {
      TileMemory memory = plan.Memory(args, begin);
      for (int64_t u = begin; u < end; ++u) {
        const Share share = ShareOf(samples, u, units);
        UnitGradients gradients = plan.Unit(args, u, share.size(), samples);
        float loss = 0;
        for (int64_t i = share.begin; i < share.end; i += kTile) {
          const int64_t count = std::min(kTile, share.end - i), next = i + count;
          plan.FetchAhead(net, users + next, items + next, std::min(kTile, share.end - next), memory.lines);
          gradients.accumulate = i > share.begin;
          loss += plan.kernels().train(net, {users + i, items + i, labels + i, i, count}, memory, gradients);
        }
        plan.Losses(args)[u] = loss;
      }
    });
    plan.Finish(args, units, samples);
    return absl::OkStatus();
  };
  return Kernel{.run = run,
                .scratch_bytes = plan.scratch_bytes(),
                .algorithm = plan.product() == Product::kTiles ? "products of tiles, AMX" : ""};
}

const bool registered = compute::RegisterKernel(
    {.op = op::NeuralFactorizationLoss, .device_kind = "cpu", .dtypes = {DType::kInt32}, .make = MakeLoss});

}  // namespace
}  // namespace official::recommendation
