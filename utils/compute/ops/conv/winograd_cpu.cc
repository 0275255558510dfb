#include <immintrin.h>

#include <algorithm>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv/winograd.h"

namespace official::compute {
namespace {

// A convolution with filters of 3 x 3 and stride 1.
struct WinogradShape {
  int64_t images, in_height, in_width, in_channels, out_height, out_width, out_channels;
  int64_t before_y, before_x;  // padding

  int64_t tile_rows() const { return (out_height + 3) / 4; }
  int64_t tile_columns() const { return (out_width + 3) / 4; }
  int64_t tiles() const { return images * tile_rows() * tile_columns(); }
  int64_t filters() const { return 36 * in_channels * out_channels; }  // transformed
  int64_t out_panels() const { return (out_channels + 31) / 32; }

  // Tiles that a thread takes through the stages together: few, so that what they need stays in its second-level cache,
  // unless the filters do not fit in the third, where they are read from memory the less often the more tiles.
  int64_t forward_tiles() const { return filters() * static_cast<int64_t>(sizeof(float)) > (16 << 20) ? 56 : 14; }
  // Tiles whose products are summed before the sums are written; all threads work on them together.
  int64_t gradient_tiles() const {
    const int64_t tile_bytes = 36 * (in_channels + out_channels) * static_cast<int64_t>(sizeof(float));
    return std::min(std::max<int64_t>((2 << 20) / tile_bytes, 128), tiles());
  }

  // Of one of the 36 positions of n tiles. 16 more than it takes: the positions of a tile, written and read together,
  // would else often lie a power of two apart.
  static int64_t PositionFloats(int64_t channels, int64_t n) { return channels * n + 16; }
  int64_t ForwardFloats() const {
    return 36 * (PositionFloats(in_channels, forward_tiles()) + PositionFloats(out_channels, forward_tiles()));
  }
};

#define OFFICIAL_ISA_AVX512 1
#define OFFICIAL_ISA_BF16 0
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512cd")
namespace avx512 {
#include "utils/compute/ops/conv/winograd-inl.h"
}  // namespace avx512
#pragma GCC pop_options
#undef OFFICIAL_ISA_AVX512
#undef OFFICIAL_ISA_BF16

WinogradShape ShapeOf(const ConvGeometry& g) {
  const WindowAxis &h = g.window.height, &w = g.window.width;
  return {g.images.shape.dim(0), h.input,  w.input, g.images.shape.dim(3), h.output, w.output,
          g.output.shape.dim(3), h.before, w.before};
}

// The gradient of the images is a convolution of the output's gradient.
WinogradShape Turned(const WinogradShape& s) {
  return {s.images,   s.out_height,  s.out_width,    s.out_channels, s.in_height,
          s.in_width, s.in_channels, 2 - s.before_y, 2 - s.before_x};
}

constexpr char kAlgorithm[] = "Winograd F(4, 3), AVX-512";

template <typename T>
Kernel MakeForward(const WinogradShape& s, bool turned) {
  const int64_t group = s.forward_tiles(), groups = (s.tiles() + group - 1) / group;
  ScratchPlan scratch;
  const int64_t u_at = scratch.Add(s.filters() * sizeof(float));
  const int64_t buffers_at = scratch.Add(MostThreads() * s.ForwardFloats() * sizeof(float));
  return {.run =
              [=](const KernelArgs& args) {
                const T* const filters =
                    args.input<T>(turned ? int{conv2d_backprop_input::kFilters} : int{conv2d::kFilters});
                const T* const images = args.input<T>(turned ? int{conv2d_backprop_input::kDy} : int{conv2d::kImages});
                float* const u = static_cast<float*>(ScratchAt(args, u_at));
                float* const buffers = static_cast<float*>(ScratchAt(args, buffers_at));
                const int64_t c = turned ? s.out_channels : s.in_channels, o = turned ? s.in_channels : s.out_channels;
                ParallelFor(s.in_channels / 16, 1, [&](int64_t begin, int64_t end) {
                  avx512::TransformFilters(filters, c, o, turned, 16 * begin, 16 * end, u);
                });
                ParallelFor(groups, 1, [&](int64_t begin, int64_t end) {
                  avx512::Forward(s, images, u, group * begin, std::min(group * end, s.tiles()),
                                  buffers + ThreadNumber() * s.ForwardFloats(), args.output<T>(0));
                });
                return absl::OkStatus();
              },
          .scratch_bytes = scratch.bytes(),
          .algorithm = kAlgorithm};
}

template <typename T>
Kernel MakeFilterGradient(const WinogradShape& s) {
  const int64_t group = s.gradient_tiles();
  ScratchPlan scratch;
  const int64_t sums_at = scratch.Add(s.filters() * sizeof(float));
  const int64_t v_at = scratch.Add(36 * s.PositionFloats(s.in_channels, group) * sizeof(float));
  const int64_t d_at = scratch.Add(36 * s.PositionFloats(s.out_channels, group) * sizeof(float));
  return {.run =
              [=](const KernelArgs& args) {
                const T* const images = args.input<T>(conv2d_backprop_filter::kImages);
                const T* const dy = args.input<T>(conv2d_backprop_filter::kDy);
                float* const sums = static_cast<float*>(ScratchAt(args, sums_at));
                float* const v = static_cast<float*>(ScratchAt(args, v_at));
                float* const d = static_cast<float*>(ScratchAt(args, d_at));
                for (int64_t first = 0; first < s.tiles(); first += group) {
                  const int64_t n = std::min(group, s.tiles() - first);
                  ParallelFor(n, 4, [&](int64_t begin, int64_t end) {
                    avx512::TransformBoth(s, images, dy, first, first + begin, first + end, v, d);
                  });
                  ParallelFor(36 * s.out_panels(), 1, [&](int64_t begin, int64_t end) {
                    avx512::SumFilterGradient(s, v, d, n, begin, end, first > 0, sums);
                  });
                }
                ParallelFor(s.in_channels, 8, [&](int64_t begin, int64_t end) {
                  avx512::FinishFilterGradient(s, sums, begin, end,
                                               args.output<T>(conv2d_backprop_filter::kFilterGradient));
                });
                return absl::OkStatus();
              },
          .scratch_bytes = scratch.bytes(),
          .algorithm = kAlgorithm};
}

}  // namespace

bool WinogradSupports(const ConvGeometry& g) {
  if (!HasAvx512()) return false;
  for (const WindowAxis& axis : {g.window.height, g.window.width}) {
    if (axis.window != 3 || axis.stride != 1 || axis.dilation != 1 || axis.before > 2) return false;
  }
  if (g.output.shape.num_elements() == 0 || g.filters.shape.num_elements() == 0) return false;
  return g.images.shape.dim(3) % 16 == 0 && g.output.shape.dim(3) % 16 == 0;
}

Kernel MakeWinogradConv(const KernelSpec& spec) {
  const WinogradShape s = ShapeOf(ConvGeometryOf(spec.node));
  const bool is_float = spec.input(0).dtype == DType::kFloat32;
  if (spec.node.Is(op::Conv2DBackpropInput)) {
    return is_float ? MakeForward<float>(Turned(s), true) : MakeForward<BFloat16>(Turned(s), true);
  }
  if (spec.node.Is(op::Conv2DBackpropFilter)) {
    return is_float ? MakeFilterGradient<float>(s) : MakeFilterGradient<BFloat16>(s);
  }
  return is_float ? MakeForward<float>(s, false) : MakeForward<BFloat16>(s, false);
}

}  // namespace official::compute
