// CPU kernel of Attention.

#include <algorithm>
#include <cstdint>

#include "utils/compute/core/status.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/attention_cpu.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/packed/keep_bits.h"

namespace official::compute::attention_cpu {
namespace {

// One row of scores[0, visible) becomes exp(score - largest), as row `row` of `weights` in blocks [columns / 16][rows],
// those that are not kept 0; keep as KeepBits makes it, or nullptr. Sets the largest score and the sum of all
// exponentials.
inline void Exponentials(const float* scores, int64_t visible, int64_t columns, const uint32_t* keep, int64_t rows,
                         int64_t row, float* weights, float& largest, float& all) {
  float max = scores[0];
#pragma omp simd reduction(max : max)
  for (int64_t c = 0; c < visible; ++c) max = scores[c] > max ? scores[c] : max;
  float sums[kBlock] = {};
  for (int64_t c = 0; c < columns; c += kBlock) {
    const float* const from = scores + c;
    float* const to = weights + c * rows + row * kBlock;
    const uint32_t bits = keep == nullptr ? ~0u : keep[c / 32 * rows + row] >> (c % 32);
    const auto seen = static_cast<int32_t>(std::min(kBlock, visible - c));
#pragma omp simd
    for (int32_t l = 0; l < static_cast<int32_t>(kBlock); ++l) {
      const float p = l < seen ? math::Exp()(from[l] - max) : 0.0f;
      sums[l] += p;
      to[l] = (bits >> static_cast<uint32_t>(l) & 1u) != 0 ? p : 0.0f;
    }
  }
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t l = 0; l < kBlock; ++l) sum += sums[l];
  largest = max;
  all = sum;
}

// The forward pass's scratch memory, with rows for keys.
struct ForwardScratch {
  ForwardScratch(const AttentionGeometry& g, Parts& parts)
      : rows(parts.AddPerRow(Padded(g.key_size))),  // of keys, then kRows of queries
        q(parts.Add(kRows * Padded(g.key_size))),
        k(parts.AddPerRow(Padded(g.key_size))),
        v(parts.AddPerRow(Padded(g.value_size))),
        scores(parts.AddPerRow(kRows)),
        weights(parts.AddPerRow(kRows)),
        out(parts.Add(kRows * Padded(g.value_size))),
        keep(parts.AddPerRow(kRows / 32)),
        next_lines(parts.Add(NextLines::kMost * 2)) {}

  ScratchArray rows, q, k, v, scores, weights, out, keep, next_lines;
};
static_assert(kRows % kDrawColumns == 0);  // keep has whole blocks of draws

// Some of the pointers of a node: one head of one sequence.
template <typename T>
struct Head {
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  float* log_sums;  // [rows] with a stride of `heads`
  int64_t heads, head;
  SequenceKey key;
};

template <typename T>
inline void Attend(const AttentionGeometry& g, const Head<T>& head, const ForwardScratch& at,
                   const TaskScratch& scratch) {
  const AttentionKernels& kernels = Kernels();
  const int64_t keys = head.k.rows, key_size = Padded(g.key_size), value_size = Padded(g.value_size);
  if (keys == 0) {
    Clear(head.out);
    for (int64_t r = 0; r < head.q.rows; ++r) head.log_sums[r * head.heads] = 0;
    return;
  }
  float *const rows = scratch.At(at.rows), *const k = scratch.At(at.k), *const v = scratch.At(at.v);
  float *const scores = scratch.At(at.scores), *const weights = scratch.At(at.weights);
  float *const q = scratch.At(at.q), *const out = scratch.At(at.out);
  auto* const keep = g.drop ? reinterpret_cast<uint32_t*>(scratch.At(at.keep)) : nullptr;
  Pack(head.k, 1, rows);
  Transpose(rows, Padded(keys), key_size, k);
  Pack(head.v, 1, v);
  NextLines next(reinterpret_cast<const void**>(scratch.At(at.next_lines)));
  if (head.head + 1 < g.heads) {
    next.Add(head.k.NextHead());
    next.Add(head.v.NextHead());
    next.Add(head.q.NextHead());
  }
  for (int64_t begin = 0; begin < head.q.rows; begin += kRows) {
    const int64_t n = std::min(kRows, head.q.rows - begin);
    const int64_t seen = g.causal ? std::min(keys, begin + n) : keys, columns = Padded(seen);
    Pack(head.q.Part(begin, n), g.scale, rows);
    PackBlocks(rows, n, key_size, q);
    const Band kept = g.causal ? Band{Band::kUpToDiagonal, begin} : Band{};
    kernels.multiply({.rows = n,
                      .columns = columns,
                      .depth = key_size,
                      .a = q,
                      .a_rows = n,
                      .w = k,
                      .w_stride = Padded(keys),
                      .out = scores,
                      .out_stride = columns,
                      .columns_kept = kept,
                      .prefetch = &next});
    if (g.drop) {
      KeepBits(head.key, static_cast<uint32_t>(head.head), begin, n, 0, (seen + kDrawColumns - 1) / kDrawColumns,
               g.dropout.threshold, keep);
    }
    float maxes[kRows], sums[kRows];
    for (int64_t r = 0; r < n; ++r) {
      const int64_t visible = g.causal ? std::min(keys, begin + r + 1) : keys;
      Exponentials(scores + r * columns, visible, columns, keep, n, r, weights, maxes[r], sums[r]);
    }
    float factors[kRows];
    const float keep_scale = g.drop ? g.dropout.scale : 1.0f;
#pragma omp simd
    for (int64_t r = 0; r < n; ++r) {
      head.log_sums[(begin + r) * head.heads] = maxes[r] + math::Log()(sums[r]);
      factors[r] = keep_scale / sums[r];
    }
    kernels.multiply({.rows = n,
                      .columns = value_size,
                      .depth = columns,
                      .a = weights,
                      .a_rows = n,
                      .w = v,
                      .w_stride = value_size,
                      .out = out,
                      .out_stride = value_size,
                      .depth_kept = kept,
                      .prefetch = &next});
    for (int64_t r = 0; r < n; ++r) {
      Store(out + r * value_size, value_size, factors[r], head.out.Part(begin + r, 1));
    }
  }
}

template <typename T>
Kernel MakeAttention(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  Parts parts(g, Parts::Rows::kKeys);
  const ForwardScratch at(g, parts);
  const Shape out_shape = spec.output(attention::kY).shape, sums_shape = spec.output(attention::kLogSums).shape;
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(CheckBothOffsets(g, args));
    const int32_t* const q_offsets = args.input<int32_t>(attention::kQOffsets);
    const int32_t* const k_offsets = args.input<int32_t>(attention::kKOffsets);
    parts.Run(q_offsets, k_offsets, args, [&](int64_t b, int64_t h, const TaskScratch& scratch) {
      const int64_t q = q_offsets[b], q_end = q_offsets[b + 1], k = k_offsets[b], k_end = k_offsets[b + 1];
      const Head<T> head = {
          .q = RowsOfHead(args.input<T>(attention::kQ), g.heads, h, g.key_size, q, q_end),
          .k = RowsOfHead(args.input<T>(attention::kK), g.heads, h, g.key_size, k, k_end),
          .v = RowsOfHead(args.input<T>(attention::kV), g.heads, h, g.value_size, k, k_end),
          .out = RowsOfHead(args.output<T>(attention::kY), g.heads, h, g.value_size, q, q_end),
          .log_sums = args.output<float>(attention::kLogSums) + q * g.heads + h,
          .heads = g.heads,
          .head = h,
          .key = g.drop ? KeyOfSequence(args.input<int64_t>(attention::kRandomState), g.stream, b) : SequenceKey{},
      };
      Attend(g, head, at, scratch);
    });
    ClearPadding(q_offsets, g.batch, args.output<T>(attention::kY), out_shape);
    ClearPadding(q_offsets, g.batch, args.output<float>(attention::kLogSums), sums_shape);
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = parts.scratch_bytes()};
}

const bool registered = RegisterKernel({
    .op = op::Attention,
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeAttention<T>(spec); }),
});

}  // namespace
}  // namespace official::compute::attention_cpu
