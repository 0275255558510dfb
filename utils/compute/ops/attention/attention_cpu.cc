#include "utils/compute/ops/attention/attention_cpu.h"

#include <immintrin.h>

#include <algorithm>

#include "utils/compute/core/status.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/packed/packed_rows.h"

namespace official::compute::attention_cpu {
namespace {

#define OFFICIAL_ISA_FILE "utils/compute/ops/attention/attention-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

}  // namespace

const AttentionKernels& Kernels() { return HasAvx512() ? avx512::kAttentionKernels : avx2::kAttentionKernels; }

absl::Status CheckBothOffsets(const AttentionGeometry& g, const KernelArgs& args) {
  RETURN_IF_ERROR(CheckOffsets("query", args.input<int32_t>(attention::kQOffsets), g.batch, g.queries));
  return CheckOffsets("key", args.input<int32_t>(attention::kKOffsets), g.batch, g.keys);
}

}  // namespace official::compute::attention_cpu
