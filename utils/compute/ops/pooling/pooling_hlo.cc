// Pooling in StableHLO. Maxima are made of slices of the image, one for each place in the window, since each has a
// code.

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/pooling/geometry.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// What place k of the windows along an axis reads of the padded image: from k to `end`, at every stride-th position.
int64_t EndOf(const WindowAxis& a, int64_t k) { return k + (a.output - 1) * a.stride + 1; }

// The padding of dy, spread by the stride, that brings place k of each window to the position it has read.
struct Spread {
  int64_t low, high;
};
Spread SpreadOf(const WindowAxis& a, int64_t k) {
  const int64_t low = k - a.before;
  return {low, a.input - low - ((a.output - 1) * a.stride + 1)};
}

// bool [1, H', W', 1]: whether place (k, l) is the first one of the window that lies inside the image.
Tensor IsFirstInside(const Window2D& window, int64_t k, int64_t l) {
  const WindowAxis &h = window.height, &w = window.width;
  Tensor mask(DType::kBool, {1, h.output, w.output, 1});
  for (int64_t y = 0; y < h.output; ++y) {
    for (int64_t x = 0; x < w.output; ++x) {
      mask.data<bool>()[y * w.output + x] = k == h.FirstInside(y) && l == w.FirstInside(x);
    }
  }
  return mask;
}

bool HasTrue(const Tensor& mask) {
  for (const bool value : mask.flat<bool>()) {
    if (value) return true;
  }
  return false;
}

void EmitMaxPool(const Node& node, HloBuilder& hlo) {
  const PoolGeometry pool = PoolGeometryOf(node);
  const WindowAxis &h = pool.window.height, &w = pool.window.width;
  const HloValue x = hlo.In(node.input(0));
  const HloValue lowest = hlo.Splat(-std::numeric_limits<double>::infinity(), {x.element(), {}});
  const HloValue padded =
      hlo.Pad(x, lowest, {0, h.before, w.before, 0}, {0, h.after, w.after, 0}, std::vector<int64_t>(4, 0));
  const HloType code_type = HloTypeOf(node.output_types()[max_pool::kCodes]);
  const Shape& in = pool.images.shape;
  HloValue best = hlo.Broadcast(lowest, pool.output.shape), code = hlo.Splat(0, code_type);
  for (int64_t k = 0; k < h.window; ++k) {
    for (int64_t l = 0; l < w.window; ++l) {
      const HloValue here =
          hlo.Slice(padded, {0, k, l, 0}, {in.dim(0), EndOf(h, k), EndOf(w, l), in.dim(3)}, {1, h.stride, w.stride, 1});
      HloValue take = hlo.Compare("GT", here, best);  // the first of equals stays
      // The first one stays if it is NaN, and is there even if it is minus infinity.
      if (const Tensor first = IsFirstInside(pool.window, k, l); HasTrue(first)) {
        take = hlo.Binary("or", take, hlo.Broadcast(hlo.Constant(first), pool.output.shape));
      }
      best = hlo.Select(take, here, best);
      code = hlo.Select(take, hlo.Splat(static_cast<double>(k * w.window + l), code_type), code);
    }
  }
  hlo.Out(node, max_pool::kY, best);
  hlo.Out(node, max_pool::kCodes, code);
}

void EmitMaxPoolGrad(const Node& node, HloBuilder& hlo) {
  const PoolGeometry pool = PoolGeometryOf(node);
  const WindowAxis &h = pool.window.height, &w = pool.window.width;
  const HloValue dy = hlo.InFloat(node.input(max_pool_grad::kDy)), codes = hlo.In(node.input(max_pool_grad::kCodes));
  const HloValue zero = hlo.Splat(0, {hlo::kF32, {}}), zeros = hlo.SplatLike(0, dy);
  HloValue dx = hlo.Splat(0, {hlo::kF32, pool.images.shape});
  for (int64_t k = 0; k < h.window; ++k) {
    for (int64_t l = 0; l < w.window; ++l) {
      const HloValue is_here = hlo.Compare("EQ", codes, hlo.SplatLike(static_cast<double>(k * w.window + l), codes));
      const Spread rows = SpreadOf(h, k), columns = SpreadOf(w, l);
      dx = hlo.Add(dx, hlo.Pad(hlo.Select(is_here, dy, zeros), zero, {0, rows.low, columns.low, 0},
                               {0, rows.high, columns.high, 0}, {0, h.stride - 1, w.stride - 1, 0}));
    }
  }
  hlo.Out(node, 0, dx);
}

// One axis of a sum over windows.
struct SumAxis {
  int64_t window, stride, dilation, low, high;  // dilation and padding are those of the operand
};

HloValue WindowSums(HloBuilder& hlo, const HloValue& x, const SumAxis& h, const SumAxis& w, const Shape& result) {
  return hlo.Op("reduce_window", {x, hlo.Splat(0, {hlo::kF32, {}})}, {hlo::kF32, result},
                absl::StrCat("window_dimensions = ", HloInts({1, h.window, w.window, 1}),
                             ", window_strides = ", HloInts({1, h.stride, w.stride, 1}),
                             ", base_dilations = ", HloInts({1, h.dilation, w.dilation, 1}),
                             ", window_dilations = ", HloInts({1, 1, 1, 1}), ", padding = dense<[[0, 0], [", h.low,
                             ", ", h.high, "], [", w.low, ", ", w.high, "], [0, 0]]> : tensor<4x2xi64>"),
                HloCombine("add", hlo::kF32));
}

// float32 [1, H', W', 1]: 1 / the number of positions of each window that lie inside the image.
HloValue Shares(HloBuilder& hlo, const PoolGeometry& pool) {
  const WindowAxis &h = pool.window.height, &w = pool.window.width;
  Tensor shares(DType::kFloat32, {1, h.output, w.output, 1});
  for (int64_t y = 0; y < h.output; ++y) {
    for (int64_t x = 0; x < w.output; ++x) {
      const int64_t inside = (h.LastInside(y) - h.FirstInside(y)) * (w.LastInside(x) - w.FirstInside(x));
      shares.data<float>()[y * w.output + x] = 1.0f / static_cast<float>(inside);
    }
  }
  return hlo.Broadcast(hlo.Constant(shares), pool.output.shape);
}

void EmitAvgPool(const Node& node, HloBuilder& hlo) {
  const PoolGeometry pool = PoolGeometryOf(node);
  const auto axis = [](const WindowAxis& a) { return SumAxis{a.window, a.stride, 1, a.before, a.after}; };
  const HloValue sums =
      WindowSums(hlo, hlo.InFloat(node.input(0)), axis(pool.window.height), axis(pool.window.width), pool.output.shape);
  hlo.Out(node, 0, hlo.Mul(sums, Shares(hlo, pool)));
}

// Each position sums the shares of the windows that read it.
void EmitAvgPoolGrad(const Node& node, HloBuilder& hlo) {
  const PoolGeometry pool = PoolGeometryOf(node);
  const auto axis = [](const WindowAxis& a) {
    const int64_t low = a.window - 1 - a.before;
    return SumAxis{a.window, 1, a.stride, low, a.input + a.window - 1 - ((a.output - 1) * a.stride + 1) - low};
  };
  const HloValue shares = hlo.Mul(hlo.InFloat(node.input(0)), Shares(hlo, pool));
  hlo.Out(node, 0, WindowSums(hlo, shares, axis(pool.window.height), axis(pool.window.width), pool.images.shape));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::MaxPool, .dtypes = StorageTypes(), .emit = EmitMaxPool}),
    RegisterHloEmitter({.op = op::MaxPoolGrad, .dtypes = StorageTypes(), .emit = EmitMaxPoolGrad}),
    RegisterHloEmitter({.op = op::AvgPool, .dtypes = StorageTypes(), .emit = EmitAvgPool}),
    RegisterHloEmitter({.op = op::AvgPoolGrad, .dtypes = StorageTypes(), .emit = EmitAvgPoolGrad}),
};

}  // namespace
}  // namespace official::compute
