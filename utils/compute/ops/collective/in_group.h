// InGroup: the check that the kernels of AllReduce on all devices have in common.
#pragma once

#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// Returns the factory that calls `make`. FailedPrecondition if the device is in no group when the program is compiled.
inline KernelFactory InGroup(KernelFactory make) {
  return [make = std::move(make)](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    if (spec.device.communicator() == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(spec.node.op().name.text(), ": ", spec.device.name(), " is in no group to sum over"));
    }
    return make(spec);
  };
}

}  // namespace official::compute
