// CUDA kernels of pooling: a thread for kWidth neighbouring channels of the result.

#include "utils/compute/ops/pooling/pooling.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/ops/pooling/geometry.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

struct View {
  int64_t images, channels;
  WindowAxis height, width;

  __device__ int64_t In(int64_t image, int64_t y, int64_t x, int64_t c) const {
    return ((image * height.input + y) * width.input + x) * channels + c;
  }
  __device__ int64_t Out(int64_t image, int64_t y, int64_t x, int64_t c) const {
    return ((image * height.output + y) * width.output + x) * channels + c;
  }
};

// Where pack `i` of kWidth elements of [images, rows, columns, channels] is.
template <int kWidth>
struct Place {
  int64_t image, y, x, c;

  template <typename Index>
  __device__ Place(Index i, int64_t rows, int64_t columns, int64_t channels) {
    const Index packs = static_cast<Index>(channels / kWidth);
    c = static_cast<int64_t>(i % packs) * kWidth;
    i /= packs;
    x = i % static_cast<Index>(columns);
    i /= static_cast<Index>(columns);
    y = i % static_cast<Index>(rows);
    image = i / static_cast<Index>(rows);
  }
};

// `packs` is the number of threads that have work, for all kernels below.
template <typename T, int kWidth, typename Index>
__global__ void __launch_bounds__(kThreads) MaxPool(View v, Index packs, const T* x, T* y, uint8_t* codes) {
  const Index i = ThreadIndex<Index>();
  if (i >= packs) return;
  const Place<kWidth> out(i, v.height.output, v.width.output, v.channels);
  const int64_t k0 = v.height.FirstInside(out.y), k1 = v.height.LastInside(out.y);
  const int64_t l0 = v.width.FirstInside(out.x), l1 = v.width.LastInside(out.x);
  const auto at = [&](int64_t k, int64_t l) {
    return LoadPack<kWidth>(x + v.In(out.image, v.height.Position(out.y, k), v.width.Position(out.x, l), out.c));
  };
  const Pack<T, kWidth> first = at(k0, l0);
  const auto first_code = static_cast<uint8_t>(k0 * v.width.window + l0);
  Pack<float, kWidth> best;
  Pack<uint8_t, kWidth> code;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    best.at[j] = first.Float(j);
    code.at[j] = first_code;
  }
  for (int64_t k = k0; k < k1; ++k) {
    for (int64_t l = l0; l < l1; ++l) {
      const Pack<T, kWidth> values = at(k, l);
      const auto position = static_cast<uint8_t>(k * v.width.window + l);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (values.Float(j) > best.at[j]) {  // the first of equals stays
          best.at[j] = values.Float(j);
          code.at[j] = position;
        }
      }
    }
  }
  const int64_t to = static_cast<int64_t>(i) * kWidth;
  StorePack(y + to, RoundPack<T>(best));
  StorePack(codes + to, code);
}

// 1 / the positions of a window that lie inside the image, of one axis.
__device__ float Share(const WindowAxis& axis, int64_t o) {
  return 1.0f / static_cast<float>(axis.LastInside(o) - axis.FirstInside(o));
}

template <typename T, int kWidth, typename Index>
__global__ void __launch_bounds__(kThreads) AvgPool(View v, Index packs, const T* x, T* y) {
  const Index i = ThreadIndex<Index>();
  if (i >= packs) return;
  const Place<kWidth> out(i, v.height.output, v.width.output, v.channels);
  const int64_t k1 = v.height.LastInside(out.y), l1 = v.width.LastInside(out.x);
  Pack<float, kWidth> sum = {};
  for (int64_t k = v.height.FirstInside(out.y); k < k1; ++k) {
    for (int64_t l = v.width.FirstInside(out.x); l < l1; ++l) {
      const auto values =
          LoadPack<kWidth>(x + v.In(out.image, v.height.Position(out.y, k), v.width.Position(out.x, l), out.c));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] += values.Float(j);
    }
  }
  const float share = Share(v.height, out.y) * Share(v.width, out.x);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum.at[j] *= share;
  StorePack(y + static_cast<int64_t>(i) * kWidth, RoundPack<T>(sum));
}

// The windows [first, last) of an axis that read position `i`.
struct Covering {
  int64_t first, last;

  __device__ Covering(const WindowAxis& axis, int64_t i) {
    const int64_t last_start = i + axis.before, first_start = last_start - axis.window + 1;
    first = first_start <= 0 ? 0 : (first_start + axis.stride - 1) / axis.stride;
    last = std::min(last_start / axis.stride + 1, axis.output);
  }
};

// dx[i] = the sums that add(sums, output element, position in the window, window row, window column) adds to, over the
// windows that read element i: each input is written once, by one thread, in a fixed order.
template <int kWidth, typename T, typename Index, typename Add>
__device__ void Gather(const View& v, Index packs, T* dx, Add add) {
  const Index i = ThreadIndex<Index>();
  if (i >= packs) return;
  const Place<kWidth> in(i, v.height.input, v.width.input, v.channels);
  const Covering rows(v.height, in.y), columns(v.width, in.x);
  Pack<float, kWidth> sums = {};
  for (int64_t oy = rows.first; oy < rows.last; ++oy) {
    for (int64_t ox = columns.first; ox < columns.last; ++ox) {
      const int64_t code = (in.y - v.height.Position(oy, 0)) * v.width.window + in.x - v.width.Position(ox, 0);
      add(sums, v.Out(in.image, oy, ox, in.c), code, oy, ox);
    }
  }
  StorePack(dx + static_cast<int64_t>(i) * kWidth, RoundPack<T>(sums));
}

template <typename T, int kWidth, typename Index>
__global__ void __launch_bounds__(kThreads) MaxPoolGrad(View v, Index packs, const T* dy, const uint8_t* codes, T* dx) {
  Gather<kWidth>(v, packs, dx, [=](Pack<float, kWidth>& sums, int64_t out, int64_t code, int64_t, int64_t) {
    const auto gradients = LoadPack<kWidth>(dy + out);
    const auto taken = LoadPack<kWidth>(codes + out);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums.at[j] += taken.at[j] == code ? gradients.Float(j) : 0.0f;
  });
}

template <typename T, int kWidth, typename Index>
__global__ void __launch_bounds__(kThreads) AvgPoolGrad(View v, Index packs, const T* dy, T* dx) {
  Gather<kWidth>(v, packs, dx, [=, &v](Pack<float, kWidth>& sums, int64_t out, int64_t, int64_t oy, int64_t ox) {
    const auto gradients = LoadPack<kWidth>(dy + out);
    const float share = Share(v.height, oy) * Share(v.width, ox);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums.at[j] += gradients.Float(j) * share;
  });
}

// What every kernel is made of: launch(width, packs, view, blocks, stream, args), with a thread for each of the packs
// of `width` elements of output 0. `packs` has the type in which the threads are counted.
template <typename T, typename F>
absl::StatusOr<Kernel> MakeKernel(const KernelSpec& spec, F launch) {
  const PoolGeometry g = PoolGeometryOf(spec.node);
  const View v{g.images.shape.dim(0), g.images.shape.dim(3), g.window.height, g.window.width};
  const int64_t elements = spec.output(0).shape.num_elements();
  return Kernel{
      [=, op = spec.node.op().name, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
        if (elements == 0) return absl::OkStatus();
        const auto run = [&](auto width) {
          const int64_t packs = elements / width();
          WithIndexType(packs, [&]<typename Index>(Index) {
            launch(width, static_cast<Index>(packs), v, NumBlocks(packs, kThreads), stream, args);
          });
        };
        if (v.channels % kWidestLoad<T> == 0) {
          run(std::integral_constant<int, kWidestLoad<T>>());
        } else {
          run(std::integral_constant<int, 1>());
        }
        return LaunchStatus(op.text());
      }};
}

template <typename T>
struct Pool {
  static absl::StatusOr<Kernel> Max(const KernelSpec& spec) {
    return MakeKernel<T>(
        spec, [](auto width, auto packs, const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
          Launch(MaxPool<T, width(), decltype(packs)>, blocks, kThreads, 0, stream, v, packs, args.input<T>(0),
                 args.output<T>(max_pool::kY), args.output<uint8_t>(max_pool::kCodes));
        });
  }
  static absl::StatusOr<Kernel> MaxGrad(const KernelSpec& spec) {
    return MakeKernel<T>(
        spec, [](auto width, auto packs, const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
          Launch(MaxPoolGrad<T, width(), decltype(packs)>, blocks, kThreads, 0, stream, v, packs,
                 args.input<T>(max_pool_grad::kDy), args.input<uint8_t>(max_pool_grad::kCodes), args.output<T>(0));
        });
  }
  static absl::StatusOr<Kernel> Avg(const KernelSpec& spec) {
    return MakeKernel<T>(
        spec, [](auto width, auto packs, const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
          Launch(AvgPool<T, width(), decltype(packs)>, blocks, kThreads, 0, stream, v, packs, args.input<T>(0),
                 args.output<T>(0));
        });
  }
  static absl::StatusOr<Kernel> AvgGrad(const KernelSpec& spec) {
    return MakeKernel<T>(
        spec, [](auto width, auto packs, const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
          Launch(AvgPoolGrad<T, width(), decltype(packs)>, blocks, kThreads, 0, stream, v, packs, args.input<T>(0),
                 args.output<T>(0));
        });
  }
};

const bool registered = [] {
  const auto add = [](OpName op, auto make) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = StorageTypes(), .make = ForStorageType(make)});
  };
  add(op::AvgPool, []<typename T>(const KernelSpec& spec, T) { return Pool<T>::Avg(spec); });
  add(op::AvgPoolGrad, []<typename T>(const KernelSpec& spec, T) { return Pool<T>::AvgGrad(spec); });
  add(op::MaxPool, []<typename T>(const KernelSpec& spec, T) { return Pool<T>::Max(spec); });
  add(op::MaxPoolGrad, []<typename T>(const KernelSpec& spec, T) { return Pool<T>::MaxGrad(spec); });
  return true;
}();

}  // namespace
}  // namespace official::compute
