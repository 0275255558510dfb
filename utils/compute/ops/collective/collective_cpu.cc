#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/collective/collective.h"

namespace official::compute {
namespace {

void CopyUnlessInPlace(const KernelArgs& args, int i, int64_t bytes) {
  if (args.outputs[i] != args.inputs[i]) std::memcpy(args.outputs[i], args.inputs[i], bytes);
}

absl::StatusOr<Kernel> MakeStart(const KernelSpec& spec) {
  auto pack = std::make_shared<std::vector<Communicator::Buffer>>();
  for (const TensorType& type : spec.node.output_types()) pack->push_back({nullptr, type.shape.num_elements()});
  return Kernel{[pack, device = &spec.device](const KernelArgs& args) {
    for (size_t i = 0; i < pack->size(); ++i) {
      CopyUnlessInPlace(args, static_cast<int>(i), (*pack)[i].elements * static_cast<int64_t>(sizeof(float)));
      (*pack)[i].data = args.output<float>(static_cast<int>(i));
    }
    return device->communicator()->Start(*pack);
  }};
}

absl::StatusOr<Kernel> MakeDone(const KernelSpec& spec) {
  std::vector<int64_t> bytes;
  for (const TensorType& type : spec.node.output_types()) bytes.push_back(type.num_bytes());
  return Kernel{[bytes, device = &spec.device](const KernelArgs& args) {
    const absl::Status status = device->communicator()->Finish();
    for (size_t i = 0; status.ok() && i < bytes.size(); ++i) CopyUnlessInPlace(args, static_cast<int>(i), bytes[i]);
    return status;
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

const bool registered[] = {
    RegisterKernel({.op = op::AllReduceStart,
                    .device_kind = "cpu",
                    .dtypes = {DType::kFloat32},
                    .make = InGroup(MakeStart),
                    .each_in_place = true}),
    RegisterKernel({.op = op::AllReduceDone,
                    .device_kind = "cpu",
                    .dtypes = {DType::kFloat32},
                    .make = InGroup(MakeDone),
                    .each_in_place = true}),
};

}  // namespace
}  // namespace official::compute
