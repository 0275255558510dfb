// The kernel of HloModule: compiles a graph's module and gives it to the device, with those of the other devices if it
// sums over them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/pjrt/pjrt_device.h"
#include "utils/compute/pjrt/pjrt_group.h"
#include "utils/compute/pjrt/pjrt_kind.h"

namespace official::compute {
namespace {

class HloModuleKernel {
 public:
  static absl::StatusOr<std::shared_ptr<HloModuleKernel>> Make(const KernelSpec& spec) {
    auto kernel = std::make_shared<HloModuleKernel>(spec);
    RETURN_IF_ERROR(kernel->Compile(spec));
    return kernel;
  }

  explicit HloModuleKernel(const KernelSpec& spec)
      : device_(static_cast<PjrtDevice&>(spec.device)),
        updated_(spec.attrs().GetInts("updated")),
        has_error_(spec.attrs().GetBool("has_error")),
        checks_(std::make_shared<std::vector<HloCheck>>(HloChecksOf(spec.node))) {
    for (const Value& v : spec.node.inputs()) inputs_.push_back(v.type());
    const absl::Span<const TensorType> types = spec.node.output_types();
    outputs_.assign(types.begin(), types.end());
  }

  absl::Status Run(const KernelArgs& args) {
    RETURN_IF_ERROR(device_.BeginRun());
    std::vector<PjrtBuffer> arguments;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      ASSIGN_OR_RETURN(PjrtBuffer buffer, MemoryOf(args.inputs[i]).Buffer(inputs_[i]));
      arguments.push_back(std::move(buffer));
    }
    if (has_error_) {
      ASSIGN_OR_RETURN(PjrtBuffer error, device_.LastError());
      arguments.push_back(std::move(error));
    }
    const auto num_results = static_cast<int>(outputs_.size() + updated_.size() + (has_error_ ? 1 : 0));
    absl::StatusOr<PjrtResults> given = member_ == nullptr
                                            ? executable_->Execute(device_.device(), arguments, num_results)
                                            : member_->Execute(*executable_, std::move(arguments), num_results);
    RETURN_IF_ERROR(given.status());
    std::vector<PjrtBuffer>& results = given->buffers;
    for (size_t i = 0; i < outputs_.size(); ++i) MemoryOf(args.outputs[i]).Set(outputs_[i], std::move(results[i]));
    for (size_t k = 0; k < updated_.size(); ++k) {
      MemoryOf(args.inputs[updated_[k]]).Set(inputs_[updated_[k]], std::move(results[outputs_.size() + k]));
    }
    device_.EndRun(checks_, has_error_ ? std::move(results.back()) : nullptr, std::move(given->done));
    return absl::OkStatus();
  }

 private:
  static PjrtMemory& MemoryOf(const void* memory) { return *static_cast<PjrtMemory*>(const_cast<void*>(memory)); }

  absl::Status Compile(const KernelSpec& spec) {
    const std::string text = spec.attrs().Get<std::string>("text");
    if (spec.attrs().GetBool("sums_over_devices")) {
      member_ = dynamic_cast<PjrtGroup::Member*>(device_.communicator());
      if (member_ == nullptr) {
        return absl::FailedPreconditionError(
            absl::StrCat("sums of gradients: ", device_.name(), " is in no group to sum over"));
      }
      ASSIGN_OR_RETURN(executable_, member_->Compile(text));
    } else {
      ASSIGN_OR_RETURN(executable_, device_.client().Compile(text));
    }
    return absl::OkStatus();
  }

  PjrtDevice& device_;
  PjrtGroup::Member* member_ = nullptr;  // if the module sums over devices
  std::shared_ptr<PjrtExecutable> executable_;
  std::vector<TensorType> inputs_, outputs_;
  const std::vector<int64_t> updated_;
  const bool has_error_;
  const std::shared_ptr<const std::vector<HloCheck>> checks_;
};

absl::StatusOr<Kernel> MakeHloModule(const KernelSpec& spec) {
  ASSIGN_OR_RETURN(std::shared_ptr<HloModuleKernel> kernel, HloModuleKernel::Make(spec));
  return Kernel{[kernel = std::move(kernel)](const KernelArgs& args) { return kernel->Run(args); }};
}

const bool registered = RegisterKernel({.op = op::HloModule,
                                        .device_kind = kPjrtKind,
                                        .dtypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                                                   DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool},
                                        .make = MakeHloModule});

}  // namespace
}  // namespace official::compute
