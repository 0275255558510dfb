// Our own product for a fully connected layer with a small batch, y = x * weights + bias. In float32 the weights are
// larger than the caches: each line of them is read from memory once, fetched during the arithmetic on those before,
// and the whole batch uses it while it is in a cache. oneDNN's product of that shape first makes a copy of the
// weights: 9.7 ms against 3.9 for a batch of 100 on [3136, 1024]. The gradient of weights of any size, x^T * dy, is
// here too, with the sum over the batch in parts (Graph::batch_parts), of which only the result is written to memory.
// The other gradient of the layer, dy * weights^T, is faster with oneDNN in float32. In bfloat16 these are for machines
// on which oneDNN does not multiply it (OnednnComputesIn), with weights of any size: sums in float32 of what is widened
// as it is read, while ComputeInFloat would write the weights to memory as floats and read them again. There dy *
// weights^T is here, too.
#pragma once

#include <optional>

#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/matmul/geometry.h"

namespace official::compute {

// The kernel of a MatMul or FusedMatMul node, or nullopt if it is not such a product.
std::optional<Kernel> MakeDenseForward(const KernelSpec& spec, const MatMulGeometry& geometry);

// The same for the product x^T * dy.
std::optional<Kernel> MakeDenseWeightGradient(const KernelSpec& spec, const MatMulGeometry& geometry);

}  // namespace official::compute
