#include <cstring>

#include "absl/strings/str_cat.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/check_numerics/check_numerics.h"

namespace official::compute {
namespace {

const bool registered = RegisterKernel({
    .op = op::CheckNumerics,
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = [](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
      return Kernel{[type = spec.input(0)](const KernelArgs& args) -> absl::Status {
        const Tensor x(type, const_cast<void*>(args.inputs[0]));
        if (const auto found = FindNonFinite(x)) {
          return absl::OutOfRangeError(absl::StrCat("element ", *found, " of ", type.ToString(), " is ",
                                                    x.CastTo(DType::kFloat64).data<double>()[*found]));
        }
        if (args.outputs[0] != args.inputs[0]) std::memcpy(args.outputs[0], args.inputs[0], type.num_bytes());
        return absl::OkStatus();
      }};
    },
    .in_place = {{0, 0}},
});

}  // namespace
}  // namespace official::compute
