// CUDA kernels of the family: cuDNN's convolution between own kernels that pool, and that bring the gradient of the
// pooled images back to the size of the convolution's output, both in scratch memory. Unlike the CPU's they leave out
// none of the zeros' multiplications, so that what is not finite spreads by itself.

#include <algorithm>
#include <utility>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/conv/bias.h"
#include "utils/compute/ops/conv/cudnn_conv.h"
#include "utils/compute/ops/conv_pool/geometry.h"

namespace official::compute {
namespace {

namespace forward = conv_pool;
namespace backprop = conv_pool_backprop;

constexpr int kThreads = 256;

int64_t OutputElements(const ConvPoolGeometry& g) { return g.batch * g.height * g.width * g.out_channels; }
int64_t PooledElements(const ConvPoolGeometry& g) { return OutputElements(g) / 4; }

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

// Element i of pooled and codes: bias, ReLU and 2x2 maximum of the convolution's output.
__global__ void BiasReluMaxPool(ConvPoolGeometry g, int64_t elements, const float* output, const float* bias,
                                float* pooled, uint8_t* codes) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= elements) return;
  const int64_t c = i % g.out_channels, x = i / g.out_channels % (g.width / 2);
  const int64_t row = i / g.out_channels / (g.width / 2);  // of all images' pooled rows
  const float* const corner = output + (2 * row * g.width + 2 * x) * g.out_channels + c;
  float best = 0;
  int code = 0;
  for (int k = 0; k < 4; ++k) {
    // Compared after the bias is added, as TensorFlow does: the sum may round two values to one.
    const float value = corner[(k / 2 * g.width + k % 2) * g.out_channels] + bias[c];
    if (k == 0 || value > best) {
      best = value;
      code = k;
    }
  }
  pooled[i] = best < 0.0f ? 0.0f : best;  // NaN passes through
  codes[i] = static_cast<uint8_t>(best > 0.0f ? code : kDeadWindow);
}

// Element i of the gradient of the convolution's output.
__global__ void MaxPoolReluGrad(ConvPoolGeometry g, int64_t elements, const uint8_t* codes, const float* d_pooled,
                                float* d_output) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= elements) return;
  const int64_t c = i % g.out_channels, x = i / g.out_channels % g.width;
  const int64_t row = i / g.out_channels / g.width;  // of all images' rows, of which each has an even number
  const int64_t window = (row / 2 * (g.width / 2) + x / 2) * g.out_channels + c;
  d_output[i] = codes[window] == row % 2 * 2 + x % 2 ? d_pooled[window] : 0.0f;
}

// Scratch memory: the convolution's output or its gradient, then what the rest needs.
int64_t OutputBytes(const ConvPoolGeometry& g) {
  return (OutputElements(g) * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

absl::StatusOr<Kernel> MakeForward(const KernelSpec& spec) {
  const ConvPoolGeometry g = ConvPoolGeometryOf(spec.node);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, ConvOf(g), ConvResult::kOutput));
  return Kernel{.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
                  auto* const output = static_cast<float*>(args.scratch);
                  RETURN_IF_ERROR(conv->Run(args.inputs[forward::kImages], args.inputs[forward::kFilters], output,
                                            static_cast<char*>(args.scratch) + OutputBytes(g)));
                  Launch(BiasReluMaxPool, NumBlocks(PooledElements(g), kThreads), kThreads, 0, stream, g,
                         PooledElements(g), output, args.input<float>(forward::kBias),
                         args.output<float>(forward::kPooled), args.output<uint8_t>(forward::kCodes));
                  return LaunchStatus("BiasReluMaxPool");
                },
                .scratch_bytes = OutputBytes(g) + conv->scratch_bytes()};
}

// The gradient of the convolution's output in args.scratch, from codes and gradient of the pooled images.
absl::Status PutOutputGradient(const ConvPoolGeometry& g, cudaStream_t stream, const KernelArgs& args) {
  Launch(MaxPoolReluGrad, NumBlocks(OutputElements(g), kThreads), kThreads, 0, stream, g, OutputElements(g),
         args.input<uint8_t>(backprop::kCodes), args.input<float>(backprop::kPooledGradient),
         static_cast<float*>(args.scratch));
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
