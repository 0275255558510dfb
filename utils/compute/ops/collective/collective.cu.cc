// CUDA kernels that give tensors to the device's communicator and wait for the sums; both only on its stream.

#include "utils/compute/ops/collective/collective.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

absl::Status CopyUnlessInPlace(cudaStream_t stream, const KernelArgs& args, int i, int64_t bytes) {
  if (args.outputs[i] == args.inputs[i] || bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(args.outputs[i], args.inputs[i], bytes, cudaMemcpyDeviceToDevice, stream),
                    "cudaMemcpyAsync");
}

absl::StatusOr<Kernel> MakeStart(const KernelSpec& spec) {
  auto pack = std::make_shared<std::vector<Communicator::Buffer>>();
  for (const TensorType& type : spec.node.output_types()) pack->push_back({nullptr, type.shape.num_elements()});
  return Kernel{[pack, device = &CudaDeviceOf(spec)](const KernelArgs& args) -> absl::Status {
    for (size_t k = 0; k < pack->size(); ++k) {
      const int i = static_cast<int>(k);
      Communicator::Buffer& buffer = (*pack)[k];
      RETURN_IF_ERROR(
          CopyUnlessInPlace(device->stream(), args, i, buffer.elements * static_cast<int64_t>(sizeof(float))));
      buffer.data = args.output<float>(i);
    }
    return device->communicator()->Start(*pack);
  }};
}

absl::StatusOr<Kernel> MakeDone(const KernelSpec& spec) {
  std::vector<int64_t> bytes;
  for (const TensorType& type : spec.node.output_types()) bytes.push_back(type.num_bytes());
  return Kernel{[bytes, device = &CudaDeviceOf(spec)](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(device->communicator()->Finish());
    for (size_t i = 0; i < bytes.size(); ++i) {
      RETURN_IF_ERROR(CopyUnlessInPlace(device->stream(), args, static_cast<int>(i), bytes[i]));
    }
    return absl::OkStatus();
  }};
}

// The device must be in a group when the program is compiled.
KernelFactory InGroup(KernelFactory make) {
  return [make](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    if (spec.device.communicator() == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(spec.node.op().name.text(), ": ", spec.device.name(), " is in no group to sum over"));
    }
    return make(spec);
  };
}

const bool registered = [] {
  const auto add = [](OpName op, KernelFactory make) {
    RegisterKernel({.op = op,
                    .device_kind = "cuda",
                    .dtypes = {DType::kFloat32},
                    .make = InGroup(std::move(make)),
                    .each_in_place = true});
  };
  add(op::AllReduceDone, MakeDone);
  add(op::AllReduceStart, MakeStart);
  return true;
}();

}  // namespace
}  // namespace official::compute
