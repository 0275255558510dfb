// CPU kernels of attention: each head of each sequence by itself, in float whatever the storage type. What the products
// need is packed first, so padding and other sequences are never read.

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/packed/keep_bits.h"
#include "utils/compute/ops/packed/packed_rows.h"

namespace official::compute {
namespace {

// Rows and columns are filled up with zeros to a multiple of this. A matrix "in blocks" is [columns / 16][rows][16].
constexpr int64_t kBlock = 16;
constexpr int64_t kRows = 64;  // queries (forward) or keys (backward) treated together

constexpr int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t Padded(int64_t n) { return RoundUp(n, kBlock); }

struct Span {
  int64_t begin, end;
};

// Which elements (r, c) of a matrix count: those with c <= r + offset, with c >= r + offset, or all.
struct Band {
  enum Keep { kAll, kUpToDiagonal, kFromDiagonal } keep = kAll;
  int64_t offset = 0;
};

// One head's columns of some rows of a tensor.
template <typename T>
struct HeadRows {
  T* data;
  int64_t stride, rows, columns;

  HeadRows Part(int64_t begin, int64_t n) const { return {data + begin * stride, stride, n, columns}; }
  HeadRows NextHead() const { return {data + columns, stride, rows, columns}; }
};

// The cache lines that the next head will read, fetched during the arithmetic on this one: its rows are short and far
// apart, so the processor does not fetch them by itself. A fifth of the time of sequences of 64 tokens.
class NextLines {
 public:
  static constexpr int64_t kMost = 2048;

  // `lines` has room for kMost addresses.
  explicit NextLines(const void** lines) : next_(lines), end_(lines), limit_(lines + kMost) {}

  template <typename T>
  void Add(const HeadRows<const T>& x) {
    constexpr int64_t kLine = 64;
    const int64_t bytes = x.columns * static_cast<int64_t>(sizeof(T));
    for (int64_t r = 0; r < x.rows && limit_ - end_ > bytes / kLine; ++r) {
      const char* const row = reinterpret_cast<const char*>(x.data + r * x.stride);
      for (int64_t at = 0; at < bytes; at += kLine) *end_++ = row + at;
    }
  }
  // The next `count` of them; nullptr if so many are not left.
  const void* const* Take(int64_t count) {
    if (end_ - next_ < count) return nullptr;
    next_ += count;
    return next_ - count;
  }

 private:
  const void **next_, **end_, **limit_;
};

// out [rows, columns] = a [rows, depth] * w [depth, columns], columns and depth multiples of kBlock.
struct Product {
  int64_t rows, columns, depth;
  const float* a;  // in blocks [depth / 16][a_rows]
  int64_t a_rows;
  const float* w;
  int64_t w_stride;
  float* out;
  int64_t out_stride;
  bool accumulate = false;
  Band columns_kept = {};         // what else there is in `out` may stay as it was
  Band depth_kept = {};           // what else there is in `a` is zero
  NextLines* prefetch = nullptr;  // what to fetch on the way
};

// What depends on the instruction set.
struct AttentionKernels {
  void (*multiply)(const Product&);
  void (*transpose_block)(const float* in, int64_t in_stride, float* out, int64_t out_stride);
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/attention/attention-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const AttentionKernels& Kernels() { return HasAvx512() ? avx512::kAttentionKernels : avx2::kAttentionKernels; }

// The head's part of rows [begin, end) of data [..., heads * columns].
template <typename T>
HeadRows<T> RowsOfHead(T* data, int64_t heads, int64_t head, int64_t columns, int64_t begin, int64_t end) {
  return {data + (begin * heads + head) * columns, heads * columns, end - begin, columns};
}

// out [Padded(rows), Padded(columns)] = x * scale.
template <typename T>
inline void Pack(const HeadRows<const T>& x, float scale, float* out) {
  const int64_t columns = Padded(x.columns);
  for (int64_t r = 0; r < x.rows; ++r) {
    const T* const row = x.data + r * x.stride;
    float* const to = out + r * columns;
#pragma omp simd
    for (int64_t c = 0; c < x.columns; ++c) to[c] = static_cast<float>(row[c]) * scale;
    std::fill(to + x.columns, to + columns, 0.0f);
  }
  std::fill(out + x.rows * columns, out + Padded(x.rows) * columns, 0.0f);
}

// packed [rows, columns], in blocks.
inline void PackBlocks(const float* packed, int64_t rows, int64_t columns, float* out) {
  for (int64_t c = 0; c < columns; c += kBlock) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* const from = packed + r * columns + c;
      float* const to = out + c * rows + r * kBlock;
#pragma omp simd
      for (int64_t l = 0; l < kBlock; ++l) to[l] = from[l];
    }
  }
}

// out [columns, rows] = packed [rows, columns] transposed; both are multiples of kBlock.
inline void Transpose(const float* packed, int64_t rows, int64_t columns, float* out) {
  for (int64_t r = 0; r < rows; r += kBlock) {
    for (int64_t c = 0; c < columns; c += kBlock) {
      Kernels().transpose_block(packed + r * columns + c, columns, out + c * rows + r, rows);
    }
  }
}

// y = x [rows, stride] * scale.
template <typename T>
inline void Store(const float* x, int64_t stride, float scale, const HeadRows<T>& y) {
  for (int64_t r = 0; r < y.rows; ++r) {
    const float* const row = x + r * stride;
    T* const to = y.data + r * y.stride;
#pragma GCC ivdep
    for (int64_t c = 0; c < y.columns; ++c) to[c] = T(row[c] * scale);
  }
}

template <typename T>
inline void Clear(const HeadRows<T>& y) {
  for (int64_t r = 0; r < y.rows; ++r) std::fill_n(y.data + r * y.stride, y.columns, T(0.0f));
}

// How the heads of all sequences are divided among threads, each with scratch memory of its own.
class Parts {
 public:
  explicit Parts(const AttentionGeometry& g)
      : batch_(g.batch),
        heads_(g.heads),
        parts_(std::clamp<int64_t>(NumThreads(), 1, std::max<int64_t>(1, batch_ * heads_))) {}

  // The offset of `count` floats in the scratch of each part.
  int64_t Add(int64_t count) { return plan_.Add(count * static_cast<int64_t>(sizeof(float))); }
  int64_t scratch_bytes() const { return parts_ * plan_.bytes(); }

  // task(sequence, head, scratch) for all, under WithSimd. The heads of a sequence, which share memory pages, come one
  // after the other; parts have about as much work each, however unlike the sequences are.
  template <typename Task>
  void Run(const int32_t* q_offsets, const int32_t* k_offsets, const KernelArgs& args, Task task) const {
    const auto work_of = [&](int64_t b) {
      constexpr int64_t kFixed = 16;  // tokens' worth of work that even a short sequence costs
      return (int64_t{q_offsets[b + 1]} - q_offsets[b] + kFixed) * (k_offsets[b + 1] - k_offsets[b] + kFixed);
    };
    int64_t all = 0;
    for (int64_t b = 0; b < batch_; ++b) all += work_of(b) * heads_;
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        char* const scratch = static_cast<char*>(args.scratch) + part * plan_.bytes();
        int64_t done = 0;
        for (int64_t b = 0; b < batch_; ++b) {
          for (int64_t h = 0; h < heads_; ++h, done += work_of(b)) {
            if (done < all * part / parts_ || done >= all * (part + 1) / parts_) continue;
            WithSimd([&] { task(b, h, scratch); });
          }
        }
      }
    });
  }

 private:
  const int64_t batch_, heads_, parts_;
  ScratchPlan plan_;
};

float* At(char* scratch, int64_t offset) { return reinterpret_cast<float*>(scratch + offset); }

absl::Status CheckBothOffsets(const AttentionGeometry& g, const KernelArgs& args) {
  RETURN_IF_ERROR(CheckOffsets("query", args.input<int32_t>(3), g.batch, g.queries));
  return CheckOffsets("key", args.input<int32_t>(4), g.batch, g.keys);
}

template <typename T>
void ClearPadding(const int32_t* offsets, int64_t batch, T* y, const Shape& shape) {
  const int64_t columns = shape.dim(1);
  std::fill(y + offsets[batch] * columns, y + shape.dim(0) * columns, T(0.0f));
}

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

// Offsets of the forward pass's scratch memory.
struct ForwardScratch {
  ForwardScratch(const AttentionGeometry& g, Parts& parts)
      : rows(parts.Add(std::max(kRows, Padded(g.keys)) * Padded(g.key_size))),
        q(parts.Add(kRows * Padded(g.key_size))),
        k(parts.Add(Padded(g.keys) * Padded(g.key_size))),
        v(parts.Add(Padded(g.keys) * Padded(g.value_size))),
        scores(parts.Add(kRows * Padded(g.keys))),
        weights(parts.Add(kRows * Padded(g.keys))),
        out(parts.Add(kRows * Padded(g.value_size))),
        keep(parts.Add(kRows * RoundUp(g.keys, kDrawColumns) / 32)),
        next_lines(parts.Add(NextLines::kMost * 2)) {}

  int64_t rows, q, k, v, scores, weights, out, keep, next_lines;
};

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
inline void Attend(const AttentionGeometry& g, const Head<T>& head, const ForwardScratch& at, char* scratch) {
  const AttentionKernels& kernels = Kernels();
  const int64_t keys = head.k.rows, key_size = Padded(g.key_size), value_size = Padded(g.value_size);
  if (keys == 0) {
    Clear(head.out);
    for (int64_t r = 0; r < head.q.rows; ++r) head.log_sums[r * head.heads] = 0;
    return;
  }
  float *const rows = At(scratch, at.rows), *const k = At(scratch, at.k), *const v = At(scratch, at.v);
  float *const scores = At(scratch, at.scores), *const weights = At(scratch, at.weights);
  float *const q = At(scratch, at.q), *const out = At(scratch, at.out);
  auto* const keep = g.drop ? reinterpret_cast<uint32_t*>(scratch + at.keep) : nullptr;
  Pack(head.k, 1, rows);
  Transpose(rows, Padded(keys), key_size, k);
  Pack(head.v, 1, v);
  NextLines next(reinterpret_cast<const void**>(scratch + at.next_lines));
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
  Parts parts(g);
  const ForwardScratch at(g, parts);
  const Shape out_shape = spec.output(0).shape, sums_shape = spec.output(1).shape;
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(CheckBothOffsets(g, args));
    const int32_t *const q_offsets = args.input<int32_t>(3), *const k_offsets = args.input<int32_t>(4);
    parts.Run(q_offsets, k_offsets, args, [&](int64_t b, int64_t h, char* scratch) {
      const int64_t q = q_offsets[b], q_end = q_offsets[b + 1], k = k_offsets[b], k_end = k_offsets[b + 1];
      const Head<T> head = {
          .q = RowsOfHead(args.input<T>(0), g.heads, h, g.key_size, q, q_end),
          .k = RowsOfHead(args.input<T>(1), g.heads, h, g.key_size, k, k_end),
          .v = RowsOfHead(args.input<T>(2), g.heads, h, g.value_size, k, k_end),
          .out = RowsOfHead(args.output<T>(0), g.heads, h, g.value_size, q, q_end),
          .log_sums = args.output<float>(1) + q * g.heads + h,
          .heads = g.heads,
          .head = h,
          .key = g.drop ? KeyOfSequence(args.input<int64_t>(5), g.stream, b) : SequenceKey{},
      };
      Attend(g, head, at, scratch);
    });
    ClearPadding(q_offsets, g.batch, args.output<T>(0), out_shape);
    ClearPadding(q_offsets, g.batch, args.output<float>(1), sums_shape);
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = parts.scratch_bytes()};
}

// Offsets of the backward pass's scratch memory. Queries lie along the columns of the matrices of scores there: three
// of the four products that read them then find them as they are made.
struct BackwardScratch {
  BackwardScratch(const AttentionGeometry& g, Parts& parts)
      : q(parts.Add(Padded(g.queries) * Padded(g.key_size))),
        q_columns(parts.Add(Padded(g.queries) * Padded(g.key_size))),
        dout(parts.Add(Padded(g.queries) * Padded(g.value_size))),
        dout_columns(parts.Add(Padded(g.queries) * Padded(g.value_size))),
        dq(parts.Add(Padded(g.queries) * Padded(g.key_size))),
        log_sums(parts.Add(Padded(g.queries))),
        deltas(parts.Add(Padded(g.queries))),
        k(parts.Add(kRows * Padded(g.key_size))),
        k_blocks(parts.Add(kRows * Padded(g.key_size))),
        v(parts.Add(kRows * Padded(g.value_size))),
        v_blocks(parts.Add(kRows * Padded(g.value_size))),
        scores(parts.Add(kRows * Padded(g.queries))),
        dweights(parts.Add(kRows * Padded(g.queries))),
        weights(parts.Add(kRows * Padded(g.queries))),
        dscores(parts.Add(kRows * Padded(g.queries))),
        dscores_of_queries(parts.Add(kRows * Padded(g.queries))),
        dk(parts.Add(kRows * Padded(g.key_size))),
        dv(parts.Add(kRows * Padded(g.value_size))),
        keep(parts.Add(Padded(g.queries) * kDrawColumns / 32)),
        next_lines(parts.Add(NextLines::kMost * 2)) {}

  int64_t q, q_columns, dout, dout_columns, dq, log_sums, deltas, k, k_blocks, v, v_blocks, scores, dweights, weights,
      dscores, dscores_of_queries, dk, dv, keep, next_lines;
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
                           char* scratch) {
  const AttentionKernels& kernels = Kernels();
  const int64_t queries = head.q.rows, keys = head.k.rows, columns = Padded(queries);
  const int64_t key_size = Padded(g.key_size), value_size = Padded(g.value_size);
  if (queries == 0 || keys == 0) {
    Clear(head.dq);
    Clear(head.dk);
    Clear(head.dv);
    return;
  }
  float *const q = At(scratch, at.q), *const q_columns = At(scratch, at.q_columns), *const dq = At(scratch, at.dq);
  float *const dout = At(scratch, at.dout), *const dout_columns = At(scratch, at.dout_columns);
  float *const log_sums = At(scratch, at.log_sums), *const deltas = At(scratch, at.deltas);
  float *const k = At(scratch, at.k), *const k_blocks = At(scratch, at.k_blocks), *const v = At(scratch, at.v);
  float *const v_blocks = At(scratch, at.v_blocks), *const dk = At(scratch, at.dk), *const dv = At(scratch, at.dv);
  float *const scores = At(scratch, at.scores), *const dweights = At(scratch, at.dweights);
  float *const weights = At(scratch, at.weights), *const dscores = At(scratch, at.dscores);
  float* const dscores_of_queries = At(scratch, at.dscores_of_queries);
  auto* const keep = g.drop ? reinterpret_cast<uint32_t*>(scratch + at.keep) : nullptr;

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
  NextLines next(reinterpret_cast<const void**>(scratch + at.next_lines));
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
  Parts parts(g);
  const BackwardScratch at(g, parts);
  const Shape shapes[] = {spec.output(0).shape, spec.output(1).shape, spec.output(2).shape};
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(CheckBothOffsets(g, args));
    const int32_t *const q_offsets = args.input<int32_t>(3), *const k_offsets = args.input<int32_t>(4);
    parts.Run(q_offsets, k_offsets, args, [&](int64_t b, int64_t h, char* scratch) {
      const int64_t q = q_offsets[b], q_end = q_offsets[b + 1], k = k_offsets[b], k_end = k_offsets[b + 1];
      const BackwardHead<T> head = {
          .q = RowsOfHead(args.input<T>(0), g.heads, h, g.key_size, q, q_end),
          .k = RowsOfHead(args.input<T>(1), g.heads, h, g.key_size, k, k_end),
          .v = RowsOfHead(args.input<T>(2), g.heads, h, g.value_size, k, k_end),
          .out = RowsOfHead(args.input<T>(5), g.heads, h, g.value_size, q, q_end),
          .dout = RowsOfHead(args.input<T>(7), g.heads, h, g.value_size, q, q_end),
          .dq = RowsOfHead(args.output<T>(0), g.heads, h, g.key_size, q, q_end),
          .dk = RowsOfHead(args.output<T>(1), g.heads, h, g.key_size, k, k_end),
          .dv = RowsOfHead(args.output<T>(2), g.heads, h, g.value_size, k, k_end),
          .log_sums = args.input<float>(6) + q * g.heads + h,
          .heads = g.heads,
          .head = h,
          .key = g.drop ? KeyOfSequence(args.input<int64_t>(8), g.stream, b) : SequenceKey{},
      };
      AttendBackward(g, head, at, scratch);
    });
    ClearPadding(q_offsets, g.batch, args.output<T>(0), shapes[0]);
    ClearPadding(k_offsets, g.batch, args.output<T>(1), shapes[1]);
    ClearPadding(k_offsets, g.batch, args.output<T>(2), shapes[2]);
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = parts.scratch_bytes()};
}

// Some neighbouring heads' part of a cache [C, positions, heads * columns], and the rows in it of a sequence's tokens.
template <typename T>
struct CachedHeads {
  T* data;
  int64_t row_stride, stride, columns;  // stride: of positions; columns: of a head
  const int32_t* rows;
  int64_t own_row;  // of the newest token

  T* Newest(int64_t position) const { return data + own_row * row_stride + position * stride; }
  const T* Token(int64_t position) const { return data + rows[position] * row_stride + position * stride; }
};

template <typename T>
inline float Dot(const T* a, const T* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  return sum;
}

// Queries of `heads` heads against `length` tokens of caches and the newest. The tokens lie far from each other, so
// each is read once, for all heads. scores [heads, >= length + 1], values [heads * v.columns].
template <typename T>
inline void AttendCache(const T* q, const CachedHeads<T>& k, const CachedHeads<T>& v, int64_t heads, int64_t length,
                        float scale, float* scores, int64_t scores_stride, float* values, T* out) {
  for (int64_t p = 0; p <= length; ++p) {
    const T* const key = p < length ? k.Token(p) : k.Newest(p);
    for (int64_t h = 0; h < heads; ++h) {
      scores[h * scores_stride + p] = Dot(q + h * k.columns, key + h * k.columns, k.columns) * scale;
    }
  }
  for (int64_t h = 0; h < heads; ++h) {
    float* const weights = scores + h * scores_stride;
    float max = weights[0], sum = 0;
    for (int64_t p = 1; p <= length; ++p) max = weights[p] > max ? weights[p] : max;
#pragma omp simd reduction(+ : sum)
    for (int64_t p = 0; p <= length; ++p) {
      weights[p] = math::Exp()(weights[p] - max);
      sum += weights[p];
    }
    for (int64_t p = 0; p <= length; ++p) weights[p] /= sum;
  }
  std::fill_n(values, heads * v.columns, 0.0f);
  for (int64_t p = 0; p <= length; ++p) {
    const T* const value = p < length ? v.Token(p) : v.Newest(p);
    for (int64_t h = 0; h < heads; ++h) {
      const float weight = scores[h * scores_stride + p];
#pragma GCC ivdep
      for (int64_t c = h * v.columns; c < (h + 1) * v.columns; ++c) {
        values[c] += weight * static_cast<float>(value[c]);
      }
    }
  }
#pragma GCC ivdep
  for (int64_t c = 0; c < heads * v.columns; ++c) out[c] = T(values[c]);
}

absl::Status CheckCacheRows(const DecodeGeometry& g, const int32_t* rows, const int32_t* lengths) {
  for (int64_t b = 0; b < g.batch; ++b) {
    if (lengths[b] < 0 || lengths[b] >= g.known) {
      return absl::InvalidArgumentError(
          absl::StrCat("length ", lengths[b], " of sequence ", b, " is outside [0, ", g.known, ")"));
    }
    for (int32_t p = 0; p < lengths[b]; ++p) {
      const int32_t row = rows[b * g.known + p];
      if (row >= 0 && row < g.rows) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("cache row ", row, " of position ", p, " of sequence ", b, " is outside [0, ", g.rows, ")"));
    }
  }
  return absl::OkStatus();
}

template <typename T>
Kernel MakeDecodeAttention(const KernelSpec& spec) {
  const DecodeGeometry g(spec.node);
  const auto heads_of = [=](T* cache, int64_t columns, int64_t b, int64_t first_head, const int32_t* rows) {
    const int64_t stride = g.heads * columns;
    return CachedHeads<T>{cache + first_head * columns, g.positions * stride, stride, columns, rows + b * g.known, b};
  };
  // For each sequence and head.
  ScratchPlan scratch;
  const int64_t scores_at = scratch.Add(g.batch * g.heads * g.known * sizeof(float));
  const int64_t values_at = scratch.Add(g.batch * g.heads * g.value_size * sizeof(float));
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    const int32_t *const rows = args.input<int32_t>(5), *const lengths = args.input<int32_t>(6);
    RETURN_IF_ERROR(CheckCacheRows(g, rows, lengths));
    float* const scores = static_cast<float*>(ScratchAt(args, scores_at));
    float* const values = static_cast<float*>(ScratchAt(args, values_at));
    ParallelFor(g.batch * g.heads, 1, [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        for (int64_t i = begin, heads = 0; i < end; i += heads) {
          const int64_t b = i / g.heads, first_head = i % g.heads, length = lengths[b];
          heads = std::min(end - i, g.heads - first_head);
          const CachedHeads<T> k = heads_of(args.variable<T>(3), g.key_size, b, first_head, rows);
          const CachedHeads<T> v = heads_of(args.variable<T>(4), g.value_size, b, first_head, rows);
          std::copy_n(args.input<T>(1) + i * g.key_size, heads * g.key_size, k.Newest(length));
          std::copy_n(args.input<T>(2) + i * g.value_size, heads * g.value_size, v.Newest(length));
          AttendCache(args.input<T>(0) + i * g.key_size, k, v, heads, length, g.scale, scores + i * g.known, g.known,
                      values + i * g.value_size, args.output<T>(0) + i * g.value_size);
        }
      });
    });
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = scratch.bytes()};
}

template <typename Make>
bool Register(OpName op, Make make) {
  return RegisterKernel({.op = op, .device_kind = "cpu", .dtypes = StorageTypes(), .make = ForStorageType(make)});
}

const bool registered[] = {
    Register(op::Attention, []<typename T>(const KernelSpec& spec, T) { return MakeAttention<T>(spec); }),
    Register(op::AttentionGrad, []<typename T>(const KernelSpec& spec, T) { return MakeAttentionGrad<T>(spec); }),
    Register(op::DecodeAttention, []<typename T>(const KernelSpec& spec, T) { return MakeDecodeAttention<T>(spec); }),
};

}  // namespace
}  // namespace official::compute
