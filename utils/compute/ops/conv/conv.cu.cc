// CUDA kernels of convolution: cuDNN's, and own ones for the bias.

#include "utils/compute/ops/conv/conv.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/ops/conv/bias.h"
#include "utils/compute/ops/conv/cudnn_conv.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {
namespace {

namespace backprop_input = conv2d_backprop_input;
namespace backprop_filter = conv2d_backprop_filter;

// Nothing to compute: a gradient of no images is zero.
bool IsEmpty(const ConvGeometry& g) {
  return g.images.shape.num_elements() == 0 || g.filters.shape.num_elements() == 0 ||
         g.output.shape.num_elements() == 0;
}
Kernel ZeroKernel(const KernelSpec& spec) {
  std::vector<int64_t> bytes;
  for (const TensorType& type : spec.node.output_types()) bytes.push_back(type.num_bytes());
  return {[bytes, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    for (size_t i = 0; i < bytes.size(); ++i) {
      RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(args.outputs[i], 0, bytes[i], stream), "cudaMemsetAsync"));
    }
    return absl::OkStatus();
  }};
}

// Conv2D and FusedConv2D.
absl::StatusOr<Kernel> MakeForward(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec.node);
  if (IsEmpty(g)) return ZeroKernel(spec);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, g, ConvResult::kOutput));
  const bool has_bias = spec.node.num_inputs() > conv2d::kBias;
  const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
  return Kernel{
      .run = [=, type = g.output, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
        RETURN_IF_ERROR(
            conv->Run(args.inputs[conv2d::kImages], args.inputs[conv2d::kFilters], args.outputs[0], args.scratch));
        return has_bias ? AddBias(stream, type, args.inputs[conv2d::kBias], relu, args.outputs[0]) : absl::OkStatus();
      },
      .scratch_bytes = conv->scratch_bytes()};
}

absl::StatusOr<Kernel> MakeBackpropInput(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec.node);
  if (IsEmpty(g)) return ZeroKernel(spec);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, g, ConvResult::kImages));
  return Kernel{.run =
                    [conv](const KernelArgs& args) {
                      return conv->Run(args.outputs[0], args.inputs[backprop_input::kFilters],
                                       args.inputs[backprop_input::kDy], args.scratch);
                    },
                .scratch_bytes = conv->scratch_bytes()};
}

// Conv2DBackpropFilter and FusedConv2DBackpropFilter.
absl::StatusOr<Kernel> MakeBackpropFilter(const KernelSpec& spec) {
  const ConvGeometry g = ConvGeometryOf(spec.node);
  if (IsEmpty(g)) return ZeroKernel(spec);
  ASSIGN_OR_RETURN(const auto conv, CudnnConv::Make(spec, g, ConvResult::kFilters));
  const bool has_bias = spec.node.num_outputs() > backprop_filter::kBiasGradient;
  // The two need their scratch memory one after the other.
  return Kernel{
      .run = [=, type = g.output, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
        const void* const dy = args.inputs[backprop_filter::kDy];
        RETURN_IF_ERROR(conv->Run(args.inputs[backprop_filter::kImages], args.outputs[backprop_filter::kFilterGradient],
                                  dy, args.scratch));
        if (!has_bias) return absl::OkStatus();
        return BiasGradient(stream, type, dy, args.outputs[backprop_filter::kBiasGradient], args.scratch);
      },
      .scratch_bytes = std::max(conv->scratch_bytes(), has_bias ? BiasGradientScratchBytes(g.output) : 0)};
}

const bool registered = [] {
  const auto add = [](OpName op, KernelFactory make) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = StorageTypes(), .make = std::move(make)});
  };
  add(op::Conv2D, MakeForward);
  add(op::Conv2DBackpropFilter, MakeBackpropFilter);
  add(op::Conv2DBackpropInput, MakeBackpropInput);
  add(op::FusedConv2D, MakeForward);
  add(op::FusedConv2DBackpropFilter, MakeBackpropFilter);
  return true;
}();

}  // namespace
}  // namespace official::compute
