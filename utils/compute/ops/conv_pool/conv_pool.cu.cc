// CUDA kernels of the family: cuDNN's convolution between own kernels that pool, and that bring the gradient of the
// pooled images back to the size of the convolution's output, both in scratch memory. Unlike the CPU's they leave out
// none of the zeros' multiplications, so that what is not finite spreads by itself.

#include <algorithm>
#include <utility>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/channel_pieces.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/ops/conv/bias.h"
#include "utils/compute/ops/conv/cudnn_conv.h"
#include "utils/compute/ops/conv_pool/geometry.h"

namespace official::compute {
namespace {

namespace forward = conv_pool;
namespace backprop = conv_pool_backprop;

constexpr int kThreads = ChannelPieces::kThreads;
constexpr int kWidth = kWidestLoad<float>;  // divides the output channels

int64_t OutputElements(const ConvPoolGeometry& g) { return g.batch * g.height * g.width * g.out_channels; }

// The convolution alone.
ConvGeometry ConvOf(const ConvPoolGeometry& g) {
  const auto axis = [&](int64_t size) {
    return WindowAxis{
        .input = size, .window = g.kernel, .output = size, .before = (g.kernel - 1) / 2, .after = g.kernel / 2};
  };
  return {.images = {DType::kFloat32, {g.batch, g.height, g.width, g.in_channels}},
          .filters = {DType::kFloat32, {g.kernel, g.kernel, g.in_channels, g.out_channels}},
          .output = {DType::kFloat32, {g.batch, g.height, g.width, g.out_channels}},
          .window = {axis(g.height), axis(g.width)}};
}

// The rows of the pooled images, whose places, columns times channels, take the part of channels: a thread keeps its
// column and its kWidth channels.
ChannelPieces PooledRows(const ConvPoolGeometry& g) {
  return ChannelPieces({DType::kFloat32, {g.batch, g.pooled_height(), g.pooled_width() * g.out_channels}}, kWidth);
}

// Neighbouring channels. nvcc stores them at once where they are elements of an array, which not all sums of indices
// of floats let it see.
using Channels = Pack<float, kWidth>;

// The 2x2 windows in the convolution's output that a thread pools. Lengths are in Channels.
struct Windows {
  int64_t row, column;  // of the output: a row and a pixel
  int64_t shift;

  // Pooled element i = row * v.channels + place, whose channel is c, has its window at element
  // row * 4 * v.channels + 2 * place - c of the output.
  __device__ Windows(const ChannelPieces& v, int64_t channel, int channels)
      : row(2 * v.channels / kWidth), column(channels / kWidth), shift((2 * v.Channel<kWidth>() + channel) / kWidth) {}
  // Pixel k of the window of pooled elements i, i + 1, ...
  __device__ int64_t Pixel(int64_t i, int k) const { return 4 * (i / kWidth) - shift + k / 2 * row + k % 2 * column; }
};

// The first of the thread's channels.
__device__ int FirstChannel(const ChannelPieces& v, int channels) {
  return static_cast<int>(v.Channel<kWidth>()) % channels;
}

// pooled and codes: bias, ReLU and 2x2 maximum of the convolution's output.
__global__ void __launch_bounds__(kThreads) BiasReluMaxPool(ChannelPieces v, int channels, const Channels* output,
                                                            const float* bias, float* pooled, uint8_t* codes) {
  if (!v.HasRows<kWidth>()) return;
  const int channel = FirstChannel(v, channels);
  const Windows windows(v, channel, channels);
  const auto biases = LoadPack<kWidth>(bias + channel);
  struct Window {
    Channels pixels[4];
  };
  const auto load = [=](int64_t i) {
    Window window;
#pragma unroll
    for (int k = 0; k < 4; ++k) window.pixels[k] = output[windows.Pixel(i, k)];
    return window;
  };
  v.ForRows<kWidth>(load, [=](int64_t i, const Window& window) {
    Channels values;
    Pack<uint8_t, kWidth> taken;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float best = 0;
      int code = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        // Compared after the bias is added, as TensorFlow does: the sum may round two values to one.
        const float value = window.pixels[k].at[j] + biases.at[j];
        if (k == 0 || value > best) {
          best = value;
          code = k;
        }
      }
      values.at[j] = best < 0.0f ? 0.0f : best;  // NaN passes through
      taken.at[j] = static_cast<uint8_t>(best > 0.0f ? code : kDeadWindow);
    }
    StorePack(pooled + i, values);
    StorePack(codes + i, taken);
  });
}

// The gradient of the convolution's output.
__global__ void __launch_bounds__(kThreads)
    MaxPoolReluGrad(ChannelPieces v, int channels, const uint8_t* codes, const float* d_pooled, Channels* d_output) {
  if (!v.HasRows<kWidth>()) return;
  const Windows windows(v, FirstChannel(v, channels), channels);
  struct Loaded {
    Channels gradients;
    Pack<uint8_t, kWidth> codes;
  };
  const auto load = [=](int64_t i) { return Loaded{LoadPack<kWidth>(d_pooled + i), LoadPack<kWidth>(codes + i)}; };
  v.ForRows<kWidth>(load, [=](int64_t i, const Loaded& loaded) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      Channels values;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values.at[j] = loaded.codes.at[j] == k ? loaded.gradients.at[j] : 0.0f;
      d_output[windows.Pixel(i, k)] = values;
    }
  });
}

// Scratch memory: the convolution's output or its gradient, then what the rest needs.
int64_t OutputBytes(const ConvPoolGeometry& g) {
  return (OutputElements(g) * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

absl::StatusOr<Kernel> MakeForward(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, ConvOf(g), ConvResult::kOutput));
  const ChannelPieces rows = PooledRows(g);
  return Kernel{.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
                  auto* const output = static_cast<Channels*>(args.scratch);
                  RETURN_IF_ERROR(conv->Run(args.inputs[forward::kImages], args.inputs[forward::kFilters], output,
                                            static_cast<char*>(args.scratch) + OutputBytes(g)));
                  Launch(BiasReluMaxPool, rows.PieceBlocks(), kThreads, 0, stream, rows,
                         static_cast<int>(g.out_channels), output, args.input<float>(forward::kBias),
                         args.output<float>(forward::kPooled), args.output<uint8_t>(forward::kCodes));
                  return LaunchStatus("BiasReluMaxPool");
                },
                .scratch_bytes = OutputBytes(g) + conv->scratch_bytes()};
}

// The gradient of the convolution's output in args.scratch, from codes and gradient of the pooled images.
absl::Status PutOutputGradient(const ConvPoolGeometry& g, cudaStream_t stream, const KernelArgs& args) {
  const ChannelPieces rows = PooledRows(g);
  Launch(MaxPoolReluGrad, rows.PieceBlocks(), kThreads, 0, stream, rows, static_cast<int>(g.out_channels),
         args.input<uint8_t>(backprop::kCodes), args.input<float>(backprop::kPooledGradient),
         static_cast<Channels*>(args.scratch));
  return LaunchStatus("MaxPoolReluGrad");
}

absl::StatusOr<Kernel> MakeBackpropFilter(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, ConvOf(g), ConvResult::kFilters));
  const TensorType output = ConvOf(g).output;
  return Kernel{.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
                  RETURN_IF_ERROR(PutOutputGradient(g, stream, args));
                  void* const rest = static_cast<char*>(args.scratch) + OutputBytes(g);
                  RETURN_IF_ERROR(conv->Run(args.inputs[backprop::kImages], args.outputs[backprop::kFilterGradient],
                                            args.scratch, rest));
                  return BiasGradient(stream, output, args.scratch, args.outputs[backprop::kBiasGradient], rest);
                },
                .scratch_bytes = OutputBytes(g) + std::max(conv->scratch_bytes(), BiasGradientScratchBytes(output))};
}

absl::StatusOr<Kernel> MakeBackpropInput(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, ConvOf(g), ConvResult::kImages));
  return Kernel{.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
                  RETURN_IF_ERROR(PutOutputGradient(g, stream, args));
                  return conv->Run(args.outputs[0], args.inputs[backprop::kFilters], args.scratch,
                                   static_cast<char*>(args.scratch) + OutputBytes(g));
                },
                .scratch_bytes = OutputBytes(g) + conv->scratch_bytes()};
}

const bool registered = [] {
  const auto add = [](OpName op, KernelFactory make) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = {DType::kFloat32}, .make = std::move(make)});
  };
  add(op::FusedConv2DReluMaxPool, MakeForward);
  add(op::FusedConv2DReluMaxPoolBackpropFilter, MakeBackpropFilter);
  add(op::FusedConv2DReluMaxPoolBackpropInput, MakeBackpropInput);
  return true;
}();

}  // namespace
}  // namespace official::compute
