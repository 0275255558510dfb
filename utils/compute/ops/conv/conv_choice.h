// Which algorithm computes a convolution on the CPU. Winograd's (winograd-inl.h) needs a quarter of the
// multiplications; whether it wins depends on type, shape and machine.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {

// The algorithm for a node of the convolution family: that of its attribute if it has one, else what spec.choices knows
// or, in a first run, what times say. Direct where there is no choice, or nothing may be timed.
absl::StatusOr<ConvAlgorithm> ChooseConvAlgorithm(const KernelSpec& spec);

}  // namespace official::compute
