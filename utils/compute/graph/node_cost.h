// The work of a node: floating-point operations and bytes, for profiles. Times of kernels divided by it tell how near
// they are to what a processor can do.
#pragma once

#include <cstdint>
#include <optional>

#include "utils/compute/graph/graph.h"

namespace official::compute {

// Returns the floating-point operations of a node: a multiplication and an addition count as two.
using FlopsFunction = double (*)(const Node& node);

// Registers at static initialization: const bool registered = RegisterFlops(op::MatMul, Flops); for ops that are
// products of matrices in some form. It is done in *_flops.cc in the folder of the op.
bool RegisterFlops(OpName op, FlopsFunction flops);

// Returns nothing for an op that has not registered them: its time is that of its bytes.
std::optional<double> FlopsOf(const Node& node);

// Returns the bytes that a node reads and writes: of each input once, of variables that it updates twice, and of its
// outputs. Of a table whose rows are read (OpDef::row_ids) or updated by int32 numbers, as many rows count as there are
// numbers.
int64_t BytesOf(const Node& node);

}  // namespace official::compute
