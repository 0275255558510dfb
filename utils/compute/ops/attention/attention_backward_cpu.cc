// CPU kernel of AttentionGrad, which computes the weights again from the logarithm of each row's sum.

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

// The backward pass's scratch memory, with rows for queries. Queries lie along the columns of the matrices of scores
// there: three of the four products that read them then find them as they are made.
struct BackwardScratch {
  BackwardScratch(const AttentionGeometry& g, Parts& parts)
      : q(parts.AddPerRow(Padded(g.key_size))),
        q_columns(parts.AddPerRow(Padded(g.key_size))),
        dout(parts.AddPerRow(Padded(g.value_size))),
        dout_columns(parts.AddPerRow(Padded(g.value_size))),
        dq(parts.AddPerRow(Padded(g.key_size))),
        log_sums(parts.AddPerRow(1)),
        deltas(parts.AddPerRow(1)),
        k(parts.Add(kRows * Padded(g.key_size))),
        k_blocks(parts.Add(kRows * Padded(g.key_size))),
        v(parts.Add(kRows * Padded(g.value_size))),
        v_blocks(parts.Add(kRows * Padded(g.value_size))),
        scores(parts.AddPerRow(kRows)),
        dweights(parts.AddPerRow(kRows)),
        weights(parts.AddPerRow(kRows)),
        dscores(parts.AddPerRow(kRows)),
        dscores_of_queries(parts.AddPerRow(kRows)),
        dk(parts.Add(kRows * Padded(g.key_size))),
        dv(parts.Add(kRows * Padded(g.value_size))),
        keep(parts.AddPerRow(kDrawColumns / 32)),
        next_lines(parts.Add(NextLines::kMost * 2)) {}

  ScratchArray q, q_columns, dout, dout_columns, dq, log_sums, deltas, k, k_blocks, v, v_blocks, scores, dweights,
      weights, dscores, dscores_of_queries, dk, dv, keep, next_lines;
};

template <typename T>
struct BackwardHead {
  HeadRows<const T> q, k, v, out, dout;
  HeadRows<T> dq, dk, dv;
  const float* log_sums;  // [rows] with a stride of `heads`
  int64_t heads, head;
  SequenceKey key;
};

// One key against the queries `seen`: of all from column `first` on, as row `row` of matrices in blocks
// [columns / 16][rows], the weights as the values saw them and the gradients of the scores; 0 for the other queries.
struct KeyRow {
  const float *scores, *dweights;  // [columns]
  const uint32_t* keep;            // [columns], bit `keep_bit`; or nullptr
  int keep_bit;
  float keep_scale;
};
inline void ScoreGradients(const KeyRow& key, const float* log_sums, const float* deltas, Span seen, int64_t first,
                           int64_t columns, int64_t rows, int64_t row, float* weights, float* dscores) {
  for (int64_t c = first; c < columns; c += kBlock) {
    float* const weights_to = weights + c * rows + row * kBlock;
    float* const dscores_to = dscores + c * rows + row * kBlock;
    float factors[kBlock];
    if (key.keep != nullptr) {
#pragma omp simd
      for (int64_t l = 0; l < kBlock; ++l) {
        factors[l] = (key.keep[c + l] >> key.keep_bit & 1) != 0 ? key.keep_scale : 0.0f;
      }
    } else {
      std::fill_n(factors, kBlock, 1.0f);
    }
    const auto begin = static_cast<int32_t>(std::clamp<int64_t>(seen.begin - c, 0, kBlock));
    const auto end = static_cast<int32_t>(std::clamp<int64_t>(seen.end - c, 0, kBlock));
    const float *const scores = key.scores + c, *const dweights = key.dweights + c;
    const float *const logs = log_sums + c, *const ds = deltas + c;
#pragma omp simd
    for (int32_t l = 0; l < static_cast<int32_t>(kBlock); ++l) {
      const bool visible = l >= begin && l < end;
      const float p = math::Exp()(scores[l] - logs[l]);
      const float dp = dweights[l] * factors[l] - ds[l];
      weights_to[l] = visible ? p * factors[l] : 0.0f;
      dscores_to[l] = visible ? p * dp : 0.0f;
    }
  }
}

template <typename T>
inline void AttendBackward(const AttentionGeometry& g, const BackwardHead<T>& head, const BackwardScratch& at,
                           const TaskScratch& scratch) {
  const AttentionKernels& kernels = Kernels();
  const int64_t queries = head.q.rows, keys = head.k.rows, columns = Padded(queries);
  const int64_t key_size = Padded(g.key_size), value_size = Padded(g.value_size);
  if (queries == 0 || keys == 0) {
    Clear(head.dq);
    Clear(head.dk);
    Clear(head.dv);
    return;
  }
  float *const q = scratch.At(at.q), *const q_columns = scratch.At(at.q_columns), *const dq = scratch.At(at.dq);
  float *const dout = scratch.At(at.dout), *const dout_columns = scratch.At(at.dout_columns);
  float *const log_sums = scratch.At(at.log_sums), *const deltas = scratch.At(at.deltas);
  float *const k = scratch.At(at.k), *const k_blocks = scratch.At(at.k_blocks), *const v = scratch.At(at.v);
  float *const v_blocks = scratch.At(at.v_blocks), *const dk = scratch.At(at.dk), *const dv = scratch.At(at.dv);
  float *const scores = scratch.At(at.scores), *const dweights = scratch.At(at.dweights);
  float *const weights = scratch.At(at.weights), *const dscores = scratch.At(at.dscores);
  float* const dscores_of_queries = scratch.At(at.dscores_of_queries);
  auto* const keep = g.drop ? reinterpret_cast<uint32_t*>(scratch.At(at.keep)) : nullptr;

  Pack(head.q, g.scale, q);
  Transpose(q, columns, key_size, q_columns);
  Pack(head.dout, 1, dout);
  Transpose(dout, columns, value_size, dout_columns);
  std::fill_n(dq, columns * key_size, 0.0f);
  std::fill_n(log_sums, columns, 0.0f);
  std::fill_n(deltas, columns, 0.0f);
  for (int64_t r = 0; r < queries; ++r) {
    log_sums[r] = head.log_sums[r * head.heads];
    // The sum over the keys of weight times its gradient.
    const T *const y = head.out.data + r * head.out.stride, *const dy = head.dout.data + r * head.dout.stride;
    float delta = 0;
#pragma omp simd reduction(+ : delta)
    for (int64_t c = 0; c < g.value_size; ++c) delta += static_cast<float>(y[c]) * static_cast<float>(dy[c]);
    deltas[r] = delta;
  }
  NextLines next(reinterpret_cast<const void**>(scratch.At(at.next_lines)));
  if (head.head + 1 < g.heads) {
    next.Add(head.q.NextHead());
    next.Add(head.dout.NextHead());
    next.Add(head.out.NextHead());
    next.Add(head.k.NextHead());
    next.Add(head.v.NextHead());
  }
  for (int64_t begin = 0; begin < keys; begin += kRows) {
    const int64_t n = std::min(kRows, keys - begin), padded = Padded(n);
    Pack(head.k.Part(begin, n), 1, k);
    PackBlocks(k, n, key_size, k_blocks);
    Pack(head.v.Part(begin, n), 1, v);
    PackBlocks(v, n, value_size, v_blocks);
    const Band kept = g.causal ? Band{Band::kFromDiagonal, begin} : Band{};
    const Product of_scores = {.rows = n,
                               .columns = columns,
                               .depth = key_size,
                               .a = k_blocks,
                               .a_rows = n,
                               .w = q_columns,
                               .w_stride = columns,
                               .out = scores,
                               .out_stride = columns,
                               .columns_kept = kept,
                               .prefetch = &next};
    kernels.multiply(of_scores);
    Product of_dweights = of_scores;
    of_dweights.depth = value_size;
    of_dweights.a = v_blocks;
    of_dweights.w = dout_columns;
    of_dweights.out = dweights;
    kernels.multiply(of_dweights);
    if (g.drop) {
      KeepBits(head.key, static_cast<uint32_t>(head.head), 0, columns, begin / kDrawColumns, 1, g.dropout.threshold,
               keep);
    }
    const int64_t first = g.causal ? std::min(begin, columns) : 0;  // the first query that sees any of the keys
    for (int64_t r = 0; r < n; ++r) {
      const KeyRow key = {.scores = scores + r * columns,
                          .dweights = dweights + r * columns,
                          .keep = g.drop ? keep + r / 32 * columns : nullptr,
                          .keep_bit = static_cast<int>(r % 32),
                          .keep_scale = g.dropout.scale};
      ScoreGradients(key, log_sums, deltas, {g.causal ? begin + r : 0, queries}, first, columns, padded, r, weights,
                     dscores);
    }
    for (int64_t c = first; c < columns; c += kBlock) {
      std::fill(dscores + c * padded + n * kBlock, dscores + (c + kBlock) * padded, 0.0f);
      for (int64_t r = 0; r < n; r += kBlock) {
        kernels.transpose_block(dscores + c * padded + r * kBlock, kBlock,
                                dscores_of_queries + (r * columns + c * kBlock), kBlock);
      }
    }
    Product of_dv = {.rows = n,
                     .columns = value_size,
                     .depth = columns,
                     .a = weights,
                     .a_rows = padded,
                     .w = dout,
                     .w_stride = value_size,
                     .out = dv,
                     .out_stride = value_size,
                     .depth_kept = kept,
                     .prefetch = &next};
    kernels.multiply(of_dv);
    Store(dv, value_size, 1, head.dv.Part(begin, n));
    Product of_dk = of_dv;
    of_dk.columns = of_dk.w_stride = of_dk.out_stride = key_size;
    of_dk.a = dscores;
    of_dk.w = q;
    of_dk.out = dk;
    kernels.multiply(of_dk);
    Store(dk, key_size, 1, head.dk.Part(begin, n));
    if (first >= queries) continue;
    kernels.multiply({.rows = queries - first,
                      .columns = key_size,
                      .depth = padded,
                      .a = dscores_of_queries + first * kBlock,
                      .a_rows = columns,
                      .w = k,
                      .w_stride = key_size,
                      .out = dq + first * key_size,
                      .out_stride = key_size,
                      .accumulate = true,
                      .depth_kept = g.causal ? Band{Band::kUpToDiagonal, 0} : Band{}});
  }
  Store(dq, key_size, g.scale, head.dq);
}

template <typename T>
Kernel MakeAttentionGrad(const KernelSpec& spec) {
  const AttentionGeometry g(spec.node);
  Parts parts(g, Parts::Rows::kQueries);
  const BackwardScratch at(g, parts);
  const Shape shapes[] = {spec.output(attention_grad::kDq).shape, spec.output(attention_grad::kDk).shape,
                          spec.output(attention_grad::kDv).shape};
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(CheckBothOffsets(g, args));
    const int32_t* const q_offsets = args.input<int32_t>(attention_grad::kQOffsets);
    const int32_t* const k_offsets = args.input<int32_t>(attention_grad::kKOffsets);
    parts.Run(q_offsets, k_offsets, args, [&](int64_t b, int64_t h, const TaskScratch& scratch) {
      const int64_t q = q_offsets[b], q_end = q_offsets[b + 1], k = k_offsets[b], k_end = k_offsets[b + 1];
      const BackwardHead<T> head = {
          .q = RowsOfHead(args.input<T>(attention_grad::kQ), g.heads, h, g.key_size, q, q_end),
          .k = RowsOfHead(args.input<T>(attention_grad::kK), g.heads, h, g.key_size, k, k_end),
          .v = RowsOfHead(args.input<T>(attention_grad::kV), g.heads, h, g.value_size, k, k_end),
          .out = RowsOfHead(args.input<T>(attention_grad::kY), g.heads, h, g.value_size, q, q_end),
          .dout = RowsOfHead(args.input<T>(attention_grad::kDy), g.heads, h, g.value_size, q, q_end),
          .dq = RowsOfHead(args.output<T>(attention_grad::kDq), g.heads, h, g.key_size, q, q_end),
          .dk = RowsOfHead(args.output<T>(attention_grad::kDk), g.heads, h, g.key_size, k, k_end),
          .dv = RowsOfHead(args.output<T>(attention_grad::kDv), g.heads, h, g.value_size, k, k_end),
          .log_sums = args.input<float>(attention_grad::kLogSums) + q * g.heads + h,
          .heads = g.heads,
          .head = h,
          .key = g.drop ? KeyOfSequence(args.input<int64_t>(attention_grad::kRandomState), g.stream, b) : SequenceKey{},
      };
      AttendBackward(g, head, at, scratch);
    });
    ClearPadding(q_offsets, g.batch, args.output<T>(attention_grad::kDq), shapes[0]);
    ClearPadding(k_offsets, g.batch, args.output<T>(attention_grad::kDk), shapes[1]);
    ClearPadding(k_offsets, g.batch, args.output<T>(attention_grad::kDv), shapes[2]);
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = parts.scratch_bytes()};
}

const bool registered = RegisterKernel({
    .op = op::AttentionGrad,
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeAttentionGrad<T>(spec); }),
});

}  // namespace
}  // namespace official::compute::attention_cpu
