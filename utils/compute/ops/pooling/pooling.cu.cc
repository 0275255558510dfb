// CUDA kernels of pooling: a thread for each element of the result.

#include "utils/compute/ops/pooling/pooling.h"

#include <algorithm>
#include <utility>

#include "utils/compute/core/dtype.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/pooling/geometry.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;

struct View {
  int64_t images, channels;
  WindowAxis height, width;

  __device__ int64_t inputs() const { return images * height.input * width.input * channels; }
  __device__ int64_t outputs() const { return images * height.output * width.output * channels; }
  __device__ int64_t In(int64_t image, int64_t y, int64_t x, int64_t c) const {
    return ((image * height.input + y) * width.input + x) * channels + c;
  }
  __device__ int64_t Out(int64_t image, int64_t y, int64_t x, int64_t c) const {
    return ((image * height.output + y) * width.output + x) * channels + c;
  }
};

// Where element `i` of [images, rows, columns, channels] is.
struct Place {
  int64_t image, y, x, c;

  __device__ Place(int64_t i, int64_t rows, int64_t columns, int64_t channels) {
    c = i % channels;
    i /= channels;
    x = i % columns;
    i /= columns;
    y = i % rows;
    image = i / rows;
  }
};

template <typename T>
__global__ void MaxPool(View v, const T* x, T* y, uint8_t* codes) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= v.outputs()) return;
  const Place out(i, v.height.output, v.width.output, v.channels);
  const int64_t k0 = v.height.FirstInside(out.y), k1 = v.height.LastInside(out.y);
  const int64_t l0 = v.width.FirstInside(out.x), l1 = v.width.LastInside(out.x);
  const auto at = [&](int64_t k, int64_t l) {
    return static_cast<float>(x[v.In(out.image, v.height.Position(out.y, k), v.width.Position(out.x, l), out.c)]);
  };
  float best = at(k0, l0);
  int64_t code = k0 * v.width.window + l0;
  for (int64_t k = k0; k < k1; ++k) {
    for (int64_t l = l0; l < l1; ++l) {
      const float value = at(k, l);
      if (value > best) {  // the first of equals stays
        best = value;
        code = k * v.width.window + l;
      }
    }
  }
  y[i] = static_cast<T>(best);
  codes[i] = static_cast<uint8_t>(code);
}

// 1 / the positions of a window that lie inside the image, of one axis.
__device__ float Share(const WindowAxis& axis, int64_t o) {
  return 1.0f / static_cast<float>(axis.LastInside(o) - axis.FirstInside(o));
}

template <typename T>
__global__ void AvgPool(View v, const T* x, T* y) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= v.outputs()) return;
  const Place out(i, v.height.output, v.width.output, v.channels);
  const int64_t k1 = v.height.LastInside(out.y), l1 = v.width.LastInside(out.x);
  float sum = 0;
  for (int64_t k = v.height.FirstInside(out.y); k < k1; ++k) {
    for (int64_t l = v.width.FirstInside(out.x); l < l1; ++l) {
      sum += static_cast<float>(x[v.In(out.image, v.height.Position(out.y, k), v.width.Position(out.x, l), out.c)]);
    }
  }
  y[i] = static_cast<T>(sum * (Share(v.height, out.y) * Share(v.width, out.x)));
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

// dx[i] = the sum of part(output element, position in the window, window row, window column) over the windows that
// read element i: each input is written once, by one thread, in a fixed order.
template <typename T, typename Part>
__device__ void Gather(const View& v, T* dx, Part part) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= v.inputs()) return;
  const Place in(i, v.height.input, v.width.input, v.channels);
  const Covering rows(v.height, in.y), columns(v.width, in.x);
  float sum = 0;
  for (int64_t oy = rows.first; oy < rows.last; ++oy) {
    for (int64_t ox = columns.first; ox < columns.last; ++ox) {
      const int64_t code = (in.y - v.height.Position(oy, 0)) * v.width.window + in.x - v.width.Position(ox, 0);
      sum += part(v.Out(in.image, oy, ox, in.c), code, oy, ox);
    }
  }
  dx[i] = static_cast<T>(sum);
}

template <typename T>
__global__ void MaxPoolGrad(View v, const T* dy, const uint8_t* codes, T* dx) {
  Gather(v, dx, [=](int64_t out, int64_t code, int64_t, int64_t) {
    return codes[out] == code ? static_cast<float>(dy[out]) : 0.0f;
  });
}

template <typename T>
__global__ void AvgPoolGrad(View v, const T* dy, T* dx) {
  Gather(v, dx, [=, &v](int64_t out, int64_t, int64_t oy, int64_t ox) {
    return static_cast<float>(dy[out]) * (Share(v.height, oy) * Share(v.width, ox));
  });
}

// What every kernel is made of: launch(view, blocks, stream, args), with a thread for each element of output 0.
template <typename F>
absl::StatusOr<Kernel> MakeKernel(const KernelSpec& spec, F launch) {
  const PoolGeometry g = PoolGeometryOf(spec.node);
  const View v{g.images.shape.dim(0), g.images.shape.dim(3), g.window.height, g.window.width};
  const auto blocks = NumBlocks(spec.output(0).shape.num_elements(), kThreads);
  return Kernel{
      [=, op = spec.node.op().name, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
        if (blocks == 0) return absl::OkStatus();
        launch(v, blocks, stream, args);
        return LaunchStatus(op.text());
      }};
}

template <typename T>
struct Pool {
  static absl::StatusOr<Kernel> Max(const KernelSpec& spec) {
    return MakeKernel(spec, [](const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
      Launch(MaxPool<T>, blocks, kThreads, 0, stream, v, args.input<T>(0), args.output<T>(max_pool::kY),
             args.output<uint8_t>(max_pool::kCodes));
    });
  }
  static absl::StatusOr<Kernel> MaxGrad(const KernelSpec& spec) {
    return MakeKernel(spec, [](const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
      Launch(MaxPoolGrad<T>, blocks, kThreads, 0, stream, v, args.input<T>(max_pool_grad::kDy),
             args.input<uint8_t>(max_pool_grad::kCodes), args.output<T>(0));
    });
  }
  static absl::StatusOr<Kernel> Avg(const KernelSpec& spec) {
    return MakeKernel(spec, [](const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
      Launch(AvgPool<T>, blocks, kThreads, 0, stream, v, args.input<T>(0), args.output<T>(0));
    });
  }
  static absl::StatusOr<Kernel> AvgGrad(const KernelSpec& spec) {
    return MakeKernel(spec, [](const View& v, unsigned blocks, cudaStream_t stream, const KernelArgs& args) {
      Launch(AvgPoolGrad<T>, blocks, kThreads, 0, stream, v, args.input<T>(0), args.output<T>(0));
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
