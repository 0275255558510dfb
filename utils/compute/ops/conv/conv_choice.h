// The choice of the algorithm for a convolution on the CPU. Winograd's (winograd-inl.h) needs a quarter of the
// multiplications; whether it is faster depends on type, shape and machine.
#pragma once

#include "absl/status/statusor.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/conv/geometry.h"

namespace official::compute {

// The algorithm for a node of the convolution family: that of its attribute if it has one, else the one that
// spec.choices has or, in a first run, the faster one. It is kDirect if there is no choice, or nothing may be timed.
absl::StatusOr<ConvAlgorithm> ChooseConvAlgorithm(const KernelSpec& spec);

// True if this node, which does not ask for Winograd's algorithm then, is computed with AMX's tiles, by oneDNN or by
// our kernel of filters' gradients.
bool MultipliesTiles(const Node& node);

}  // namespace official::compute
