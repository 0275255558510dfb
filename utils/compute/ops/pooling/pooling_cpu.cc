// CPU kernels of pooling, vectorized over channels. Channel-blocked images are to them N * C / 16 images of 16
// channels.

#include <algorithm>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/pooling/geometry.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

struct View {
  int64_t images, channels;
  WindowAxis height, width;

  int64_t PixelIn(int64_t image, int64_t y, int64_t x) const {
    return ((image * height.input + y) * width.input + x) * channels;
  }
  int64_t PixelOut(int64_t image, int64_t y, int64_t x) const {
    return ((image * height.output + y) * width.output + x) * channels;
  }
};

View ViewOf(const KernelSpec& spec, Layout layout) {
  const PoolGeometry g = PoolGeometryOf(spec.node);
  const int64_t n = g.images.shape.dim(0), channels = g.images.shape.dim(3);
  const int64_t split = layout == Layout::kChannelBlocked ? channels / 16 : 1;
  return {n * split, channels / std::max<int64_t>(split, 1), g.window.height, g.window.width};
}

// Calls f(image, row) for every row of `height`, in parallel, with the widest vectors.
template <typename F>
void ForRows(const View& v, int64_t height, F&& f) {
  constexpr int64_t kGrainElements = 1 << 14;
  const int64_t row = std::max<int64_t>(v.channels * std::max(v.width.input, v.width.output), 1);
  ParallelFor(v.images * height, std::max<int64_t>(kGrainElements / row, 1), [&](int64_t begin, int64_t end) {
    WithSimd([&] {
      for (int64_t i = begin; i < end; ++i) f(i / height, i % height);
    });
  });
}

// The windows [first, last) of an axis that read position `i`.
struct Covering {
  int64_t first, last;
};
inline Covering WindowsOver(const WindowAxis& axis, int64_t i) {
  const int64_t last_start = i + axis.before, first_start = last_start - axis.window + 1;
  return {first_start <= 0 ? 0 : (first_start + axis.stride - 1) / axis.stride,
          std::min(last_start / axis.stride + 1, axis.output)};
}

// kChannels: their number if known, so that loops over blocked channels unroll; else 0.
template <typename T, int kChannels>
void MaxPoolRows(const View& v, const T* __restrict x, T* __restrict y, uint8_t* __restrict codes) {
  ForRows(v, v.height.output, [&](int64_t image, int64_t oy) {
    const int64_t channels = kChannels > 0 ? kChannels : v.channels;
    const int64_t k0 = v.height.FirstInside(oy), k1 = v.height.LastInside(oy);
    for (int64_t ox = 0; ox < v.width.output; ++ox) {
      const int64_t l0 = v.width.FirstInside(ox), l1 = v.width.LastInside(ox);
      T* const out = y + v.PixelOut(image, oy, ox);
      uint8_t* const code = codes + v.PixelOut(image, oy, ox);
      const T* const corner = x + v.PixelIn(image, v.height.Position(oy, k0), v.width.Position(ox, l0));
      const int first = static_cast<int>(k0 * v.width.window + l0);
      if (k1 - k0 == 2 && l1 - l0 == 2) {
        const int64_t row = v.width.input * channels;
        const int below = first + static_cast<int>(v.width.window);
        for (int64_t c = 0; c < channels; ++c) {
          float best = static_cast<float>(corner[c]);
          int where = first;
          const float right = static_cast<float>(corner[channels + c]);
          where = right > best ? first + 1 : where;
          best = right > best ? right : best;
          const float down = static_cast<float>(corner[row + c]);
          where = down > best ? below : where;
          best = down > best ? down : best;
          const float diagonal = static_cast<float>(corner[row + channels + c]);
          where = diagonal > best ? below + 1 : where;
          best = diagonal > best ? diagonal : best;
          out[c] = static_cast<T>(best);
          code[c] = static_cast<uint8_t>(where);
        }
        continue;
      }
      for (int64_t c = 0; c < channels; ++c) {
        out[c] = corner[c];
        code[c] = static_cast<uint8_t>(first);
      }
      for (int64_t k = k0; k < k1; ++k) {
        for (int64_t l = l0; l < l1; ++l) {
          const T* const in = corner + ((k - k0) * v.width.input + (l - l0)) * channels;
          const uint8_t here = static_cast<uint8_t>(k * v.width.window + l);
          for (int64_t c = 0; c < channels; ++c) {
            const bool larger = static_cast<float>(in[c]) > static_cast<float>(out[c]);
            out[c] = larger ? in[c] : out[c];
            code[c] = larger ? here : code[c];
          }
        }
      }
    }
  });
}

// Each input pixel gathers from the windows that read it, so that it is written once and its sum is made in float.
// part(image, oy, ox, code) is a function of the channel: what window (oy, ox) gives to the pixel at position `code` in
// it.
template <typename T, int kChannels, typename Part>
void GatherRows(const View& v, T* __restrict dx, Part&& part) {
  ForRows(v, v.height.input, [&](int64_t image, int64_t iy) {
    const int64_t channels = kChannels > 0 ? kChannels : v.channels;
    const Covering rows = WindowsOver(v.height, iy);
    for (int64_t ix = 0; ix < v.width.input; ++ix) {
      const Covering columns = WindowsOver(v.width, ix);
      T* const d = dx + v.PixelIn(image, iy, ix);
      const auto part_of = [&](int64_t oy, int64_t ox) {
        const int64_t code = (iy - v.height.Position(oy, 0)) * v.width.window + ix - v.width.Position(ox, 0);
        return part(image, oy, ox, static_cast<int>(code));
      };
      if (rows.last - rows.first == 1 && columns.last - columns.first == 1) {
        const auto value = part_of(rows.first, columns.first);
        for (int64_t c = 0; c < channels; ++c) d[c] = static_cast<T>(value(c));
        continue;
      }
      constexpr int64_t kChunk = 64;
      for (int64_t begin = 0; begin < channels; begin += kChunk) {
        const int64_t n = std::min(kChunk, channels - begin);
        float sum[kChunk] = {};
        for (int64_t oy = rows.first; oy < rows.last; ++oy) {
          for (int64_t ox = columns.first; ox < columns.last; ++ox) {
            const auto value = part_of(oy, ox);
            for (int64_t c = 0; c < n; ++c) sum[c] += value(begin + c);
          }
        }
        for (int64_t c = 0; c < n; ++c) d[begin + c] = static_cast<T>(sum[c]);
      }
    }
  });
}

template <typename T, int kChannels>
void MaxPoolGradRows(const View& v, const T* __restrict dy, const uint8_t* __restrict codes, T* __restrict dx) {
  GatherRows<T, kChannels>(v, dx, [=, &v](int64_t image, int64_t oy, int64_t ox, int code) {
    const int64_t out = v.PixelOut(image, oy, ox);
    return [=](int64_t c) { return codes[out + c] == code ? static_cast<float>(dy[out + c]) : 0.0f; };
  });
}

inline float InverseCount(const View& v, int64_t oy, int64_t ox) {
  return 1.0f / static_cast<float>((v.height.LastInside(oy) - v.height.FirstInside(oy)) *
                                   (v.width.LastInside(ox) - v.width.FirstInside(ox)));
}

template <typename T, int kChannels>
void AvgPoolRows(const View& v, const T* __restrict x, T* __restrict y) {
  ForRows(v, v.height.output, [&](int64_t image, int64_t oy) {
    const int64_t channels = kChannels > 0 ? kChannels : v.channels;
    for (int64_t ox = 0; ox < v.width.output; ++ox) {
      T* const out = y + v.PixelOut(image, oy, ox);
      const float scale = InverseCount(v, oy, ox);
      constexpr int64_t kChunk = 64;
      for (int64_t begin = 0; begin < channels; begin += kChunk) {
        const int64_t n = std::min(kChunk, channels - begin);
        float sum[kChunk] = {};
        for (int64_t k = v.height.FirstInside(oy); k < v.height.LastInside(oy); ++k) {
          for (int64_t l = v.width.FirstInside(ox); l < v.width.LastInside(ox); ++l) {
            const T* const in = x + v.PixelIn(image, v.height.Position(oy, k), v.width.Position(ox, l)) + begin;
            for (int64_t c = 0; c < n; ++c) sum[c] += static_cast<float>(in[c]);
          }
        }
        for (int64_t c = 0; c < n; ++c) out[begin + c] = static_cast<T>(sum[c] * scale);
      }
    }
  });
}

template <typename T, int kChannels>
void AvgPoolGradRows(const View& v, const T* __restrict dy, T* __restrict dx) {
  GatherRows<T, kChannels>(v, dx, [=, &v](int64_t image, int64_t oy, int64_t ox, int) {
    const T* const d = dy + v.PixelOut(image, oy, ox);
    const float scale = InverseCount(v, oy, ox);
    return [=](int64_t c) { return static_cast<float>(d[c]) * scale; };
  });
}

// Calls f<T, channels>() for the type and channels at hand.
template <typename F>
void Dispatch(DType dtype, int64_t channels, F&& f) {
  const auto with_type = [&]<typename T>(T) {
    if (channels == 16) {
      f.template operator()<T, 16>();
    } else {
      f.template operator()<T, 0>();
    }
  };
  if (dtype == DType::kFloat32) {
    with_type(float());
  } else {
    with_type(BFloat16());
  }
}

absl::StatusOr<Kernel> MakeMaxPool(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0]), dtype = spec.input(0).dtype](const KernelArgs& args) {
    Dispatch(dtype, v.channels, [&]<typename T, int kChannels>() {
      MaxPoolRows<T, kChannels>(v, args.input<T>(0), args.output<T>(0), args.output<uint8_t>(1));
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeMaxPoolGrad(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0]), dtype = spec.input(0).dtype](const KernelArgs& args) {
    Dispatch(dtype, v.channels, [&]<typename T, int kChannels>() {
      MaxPoolGradRows<T, kChannels>(v, args.input<T>(0), args.input<uint8_t>(1), args.output<T>(0));
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeAvgPool(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0]), dtype = spec.input(0).dtype](const KernelArgs& args) {
    Dispatch(dtype, v.channels,
             [&]<typename T, int kChannels>() { AvgPoolRows<T, kChannels>(v, args.input<T>(0), args.output<T>(0)); });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeAvgPoolGrad(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0]), dtype = spec.input(0).dtype](const KernelArgs& args) {
    Dispatch(dtype, v.channels, [&]<typename T, int kChannels>() {
      AvgPoolGradRows<T, kChannels>(v, args.input<T>(0), args.output<T>(0));
    });
    return absl::OkStatus();
  }};
}

// Everything in the layout that input 0 has; of MaxPoolGrad that of the codes, which the forward pass has settled.
LayoutChoice PoolLayouts(const Node& node, absl::Span<const Layout> current) {
  const Layout layout = current.back();
  return {std::vector<Layout>(node.num_inputs(), layout), std::vector<Layout>(node.num_outputs(), layout)};
}

bool RegisterPool(const char* op, KernelFactory make) {
  return RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = {DType::kFloat32, DType::kBFloat16},
      .make = std::move(make),
      .layout = PoolLayouts,
  });
}

const bool registered[] = {
    RegisterPool("MaxPool", MakeMaxPool),
    RegisterPool("MaxPoolGrad", MakeMaxPoolGrad),
    RegisterPool("AvgPool", MakeAvgPool),
    RegisterPool("AvgPoolGrad", MakeAvgPoolGrad),
};

}  // namespace
}  // namespace official::compute
