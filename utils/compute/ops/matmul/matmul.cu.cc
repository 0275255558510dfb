// CUDA kernels of matrix multiplication: cuBLASLt.

#include "utils/compute/ops/matmul/matmul.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/ops/conv/bias.h"
#include "utils/compute/ops/matmul/cublas_matmul.h"
#include "utils/compute/ops/matmul/geometry.h"

namespace official::compute {
namespace {

absl::StatusOr<Kernel> MakeMatMul(const KernelSpec& spec) {
  namespace places = matmul;
  const MatMulGeometry g = MatMulGeometryOf(spec.node);
  CudaDevice& device = CudaDeviceOf(spec);
  const bool has_bias = spec.node.num_inputs() > places::kBias;
  const int64_t output_bytes = spec.output(places::kY).num_bytes();
  if (output_bytes == 0) {
    return Kernel{[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
  if (g.k == 0) {
    return Kernel{
        [=, type = spec.output(places::kY), stream = device.stream()](const KernelArgs& args) -> absl::Status {
          void* const y = args.outputs[places::kY];
          RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(y, 0, output_bytes, stream), "cudaMemsetAsync"));
          return has_bias ? AddBias(stream, type, args.inputs[places::kBias], relu, y) : absl::OkStatus();
        }};
  }
  const DType dtype = spec.input(places::kA).dtype;
  const absl::StatusOr<std::shared_ptr<CublasMatMul>> matmul =
      CublasMatMul::Make(spec, {.geometry = g, .dtype = dtype, .result = dtype, .has_bias = has_bias, .relu = relu});
  if (!matmul.ok()) {
    return absl::Status(matmul.status().code(),
                        absl::StrCat(spec.node.op().name.text(), " of ", spec.input(places::kA).ToString(), " and ",
                                     spec.input(places::kB).ToString(), ": ", matmul.status().message()));
  }
  Kernel kernel;
  kernel.scratch_bytes = (*matmul)->scratch_bytes();
  kernel.run = [has_bias, matmul = *matmul](const KernelArgs& args) {
    return matmul->Run(args.inputs[places::kA], args.inputs[places::kB],
                       has_bias ? args.inputs[places::kBias] : nullptr, args.outputs[places::kY], args.scratch);
  };
  return kernel;
}

absl::StatusOr<Kernel> MakeMatMulBiasAddGrad(const KernelSpec& spec) {
  namespace places = matmul;
  const MatMulGeometry g = MatMulGeometryOf(spec.node);
  const DType dtype = spec.input(places::kA).dtype;
  if (g.m == 0 || g.n == 0 || g.k == 0) {
    return Kernel{[y_bytes = spec.output(places::kY).num_bytes(),
                   bias_bytes = spec.output(places::kBiasGradient).num_bytes(),
                   stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
      RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(args.outputs[places::kY], 0, y_bytes, stream), "cudaMemsetAsync"));
      return CudaStatus(cudaMemsetAsync(args.outputs[places::kBiasGradient], 0, bias_bytes, stream), "cudaMemsetAsync");
    }};
  }
  ASSIGN_OR_RETURN(
      const std::shared_ptr<CublasMatMul> matmul,
      CublasMatMul::Make(spec, {.geometry = g, .dtype = dtype, .result = dtype, .has_bias_gradient = true}));
  Kernel kernel;
  kernel.scratch_bytes = matmul->scratch_bytes();
  kernel.run = [matmul](const KernelArgs& args) {
    return matmul->Run(args.inputs[places::kA], args.inputs[places::kB], nullptr, args.outputs[places::kY],
                       args.scratch, args.outputs[places::kBiasGradient]);
  };
  return kernel;
}

const bool registered = [] {
  RegisterKernel({.op = op::FusedMatMulBiasAddGrad,
                  .device_kind = "cuda",
                  .dtypes = StorageTypes(),
                  .make = MakeMatMulBiasAddGrad});
  for (OpName op : {op::FusedMatMul, op::MatMul}) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = StorageTypes(), .make = MakeMatMul});
  }
  return true;
}();

}  // namespace
}  // namespace official::compute
