// CPU kernels of pooling, vectorized over channels. Channel-blocked images are to them N * C / 16 images of 16
// channels.

#include <algorithm>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/pooling/geometry.h"
#include "utils/compute/ops/pooling/lanes.h"
#include "utils/compute/ops/pooling/pooling.h"

namespace official::compute {
namespace {

// The windows [first, last) of an axis that read one position.
struct Covering {
  int64_t first, last;
};
std::vector<Covering> CoveringsOf(const WindowAxis& axis) {
  std::vector<Covering> coverings;
  for (int64_t i = 0; i < axis.input; ++i) {
    const int64_t last_start = i + axis.before, first_start = last_start - axis.window + 1;
    coverings.push_back({first_start <= 0 ? 0 : (first_start + axis.stride - 1) / axis.stride,
                         std::min(last_start / axis.stride + 1, axis.output)});
  }
  return coverings;
}

std::vector<float> SharesOf(const WindowAxis& axis) {
  std::vector<float> shares;
  for (int64_t o = 0; o < axis.output; ++o) {
    shares.push_back(1.0f / static_cast<float>(axis.LastInside(o) - axis.FirstInside(o)));
  }
  return shares;
}

struct View {
  int64_t images, channels;
  WindowAxis height, width;
  std::vector<Covering> rows, columns;         // which windows read each input row and column
  std::vector<float> row_share, column_share;  // of each window: 1 / its rows or columns inside the image

  int64_t PixelIn(int64_t image, int64_t y, int64_t x) const {
    return ((image * height.input + y) * width.input + x) * channels;
  }
  int64_t PixelOut(int64_t image, int64_t y, int64_t x) const {
    return ((image * height.output + y) * width.output + x) * channels;
  }
};

View ViewOf(const KernelSpec& spec, Layout layout) {
  const PoolGeometry g = PoolGeometryOf(spec.node);
  const WindowAxis &height = g.window.height, &width = g.window.width;
  int64_t images = g.images.shape.dim(0), channels = g.images.shape.dim(3);
  if (layout == Layout::kChannelBlocked) {
    images *= channels / 16;
    channels = 16;
  }
  return {images, channels, height, width, CoveringsOf(height), CoveringsOf(width), SharesOf(height), SharesOf(width)};
}

// Calls f(image, row) for every row of `height`, in parallel.
template <typename F>
void ForRows(const View& v, int64_t height, F&& f) {
  constexpr int64_t kGrainElements = 1 << 14;
  const int64_t row = std::max<int64_t>(v.channels * std::max(v.width.input, v.width.output), 1);
  ParallelFor(v.images * height, std::max<int64_t>(kGrainElements / row, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i / height, i % height);
  });
}

// The part of a window that lies inside the image: positions [k0, k1) x [l0, l1) of it, whose first one is at `corner`,
// an offset of the input.
struct Inside {
  int64_t k0, k1, l0, l1, corner;

  Inside(const View& v, int64_t image, int64_t oy, int64_t ox)
      : k0(v.height.FirstInside(oy)),
        k1(v.height.LastInside(oy)),
        l0(v.width.FirstInside(ox)),
        l1(v.width.LastInside(ox)),
        corner(v.PixelIn(image, v.height.Position(oy, k0), v.width.Position(ox, l0))) {}
};

template <typename T>
void MaxPoolRows(const View& v, const T* x, T* y, uint8_t* codes) {
  ForRows(v, v.height.output, [&](int64_t image, int64_t oy) {
    for (int64_t ox = 0; ox < v.width.output; ++ox) {
      const Inside in(v, image, oy, ox);
      const int64_t out = v.PixelOut(image, oy, ox), below = v.width.input * v.channels;
      ForLanes(v.channels, [&]<typename L>(L, int64_t c) {
        const T* row = x + in.corner + c;
        auto best = L::Load(row);
        typename L::Ints code = {};
        code += static_cast<int>(in.k0 * v.width.window + in.l0);
        for (int64_t k = in.k0; k < in.k1; ++k, row += below) {
          typename L::Ints here = {};
          here += static_cast<int>(k * v.width.window + in.l0);
          for (int64_t l = 0; l < in.l1 - in.l0; ++l, here += 1) {
            const auto value = L::Load(row + l * v.channels);
            const auto larger = value > best;  // the first of equals stays
            code = larger ? here : code;
            best = larger ? value : best;
          }
        }
        L::Store(best, y + out + c);
        L::Store(code, codes + out + c);
      });
    }
  });
}

template <typename T>
void AvgPoolRows(const View& v, const T* x, T* y) {
  ForRows(v, v.height.output, [&](int64_t image, int64_t oy) {
    for (int64_t ox = 0; ox < v.width.output; ++ox) {
      const Inside in(v, image, oy, ox);
      const float scale = v.row_share[oy] * v.column_share[ox];
      ForLanes(v.channels, [&]<typename L>(L, int64_t c) {
        const T* row = x + in.corner + c;
        typename L::Floats sum = {};
        for (int64_t k = in.k0; k < in.k1; ++k, row += v.width.input * v.channels) {
          for (int64_t l = 0; l < in.l1 - in.l0; ++l) sum += L::Load(row + l * v.channels);
        }
        L::Store(sum * scale, y + v.PixelOut(image, oy, ox) + c);
      });
    }
  });
}

// A window that reads some input pixel: its offset in the output, the pixel's position in it, and 1 / its pixels inside
// the image.
struct Reader {
  int64_t output;
  int32_t code;
  float share;
};

// Each input pixel gathers from the windows that read it, so that it is written once and its sum is made in float.
// part(lanes, reader, c) is what a window gives to the pixel's channels from c on.
template <typename T, typename Part>
void GatherRows(const View& v, T* dx, Part&& part) {
  ForRows(v, v.height.input, [&](int64_t image, int64_t iy) {
    const Covering rows = v.rows[iy];
    Reader readers[kMaxPositions];
    for (int64_t ix = 0; ix < v.width.input; ++ix) {
      const Covering columns = v.columns[ix];
      int n = 0;
      for (int64_t oy = rows.first; oy < rows.last; ++oy) {
        const int64_t code = (iy - v.height.Position(oy, 0)) * v.width.window + ix;
        for (int64_t ox = columns.first; ox < columns.last; ++ox) {
          readers[n++] = {v.PixelOut(image, oy, ox), static_cast<int32_t>(code - v.width.Position(ox, 0)),
                          v.row_share[oy] * v.column_share[ox]};
        }
      }
      T* const to = dx + v.PixelIn(image, iy, ix);
      ForLanes(v.channels, [&, n]<typename L>(L lanes, int64_t c) {
        typename L::Floats sum = {};
        for (int i = 0; i < n; ++i) sum += part(lanes, readers[i], c);
        L::Store(sum, to + c);
      });
    }
  });
}

template <typename T>
void MaxPoolGradRows(const View& v, const T* dy, const uint8_t* codes, T* dx) {
  GatherRows(v, dx, [=]<typename L>(L, const Reader& reader, int64_t c) {
    const auto d = L::Load(dy + reader.output + c);
    const typename L::Floats zero = {};
    return L::Load(codes + reader.output + c) == reader.code ? d : zero;
  });
}

template <typename T>
void AvgPoolGradRows(const View& v, const T* dy, T* dx) {
  GatherRows(v, dx, [=]<typename L>(L, const Reader& reader, int64_t c) {
    return L::Load(dy + reader.output + c) * reader.share;
  });
}

template <typename T>
absl::StatusOr<Kernel> MakeMaxPool(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0])](const KernelArgs& args) {
    MaxPoolRows(v, args.input<T>(0), args.output<T>(max_pool::kY), args.output<uint8_t>(max_pool::kCodes));
    return absl::OkStatus();
  }};
}

template <typename T>
absl::StatusOr<Kernel> MakeMaxPoolGrad(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[max_pool_grad::kDy])](const KernelArgs& args) {
    MaxPoolGradRows(v, args.input<T>(max_pool_grad::kDy), args.input<uint8_t>(max_pool_grad::kCodes),
                    args.output<T>(0));
    return absl::OkStatus();
  }};
}

template <typename T>
absl::StatusOr<Kernel> MakeAvgPool(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0])](const KernelArgs& args) {
    AvgPoolRows(v, args.input<T>(0), args.output<T>(0));
    return absl::OkStatus();
  }};
}

template <typename T>
absl::StatusOr<Kernel> MakeAvgPoolGrad(const KernelSpec& spec) {
  return Kernel{[v = ViewOf(spec, spec.input_layouts[0])](const KernelArgs& args) {
    AvgPoolGradRows(v, args.input<T>(0), args.output<T>(0));
    return absl::OkStatus();
  }};
}

// Everything in the layout that input 0 has; of MaxPoolGrad that of the codes, which the forward pass has settled.
LayoutChoice PoolLayouts(const Node& node, absl::Span<const Layout> current) {
  const Layout layout = current.back();
  return {std::vector<Layout>(node.num_inputs(), layout), std::vector<Layout>(node.num_outputs(), layout)};
}

// `make` is called as make(spec, T()), T being the type of input 0.
template <typename Make>
bool RegisterPool(OpName op, Make make) {
  return RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = ForStorageType(make),
      .layout = PoolLayouts,
  });
}

const bool registered[] = {
    RegisterPool(op::MaxPool, []<typename T>(const KernelSpec& spec, T) { return MakeMaxPool<T>(spec); }),
    RegisterPool(op::MaxPoolGrad, []<typename T>(const KernelSpec& spec, T) { return MakeMaxPoolGrad<T>(spec); }),
    RegisterPool(op::AvgPool, []<typename T>(const KernelSpec& spec, T) { return MakeAvgPool<T>(spec); }),
    RegisterPool(op::AvgPoolGrad, []<typename T>(const KernelSpec& spec, T) { return MakeAvgPoolGrad<T>(spec); }),
};

}  // namespace
}  // namespace official::compute
