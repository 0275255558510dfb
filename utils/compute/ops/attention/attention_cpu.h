// The types and functions that the CPU kernels of Attention and AttentionGrad share. The kernels treat each head of
// each sequence by itself, in float whatever the storage type. What the products need is packed first, so padding and
// other sequences are never read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/attention/geometry.h"

namespace official::compute::attention_cpu {

// Rows and columns are filled up with zeros to a multiple of this. A matrix "in blocks" is [columns / 16][rows][16].
inline constexpr int64_t kBlock = 16;
inline constexpr int64_t kRows = 64;  // queries (forward) or keys (backward) treated together

constexpr int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t Padded(int64_t n) { return RoundUp(n, kBlock); }

struct Span {
  int64_t begin, end;
};

// The choice of the elements (r, c) of a matrix that count: those with c <= r + offset, with c >= r + offset, or all.
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

// The functions that depend on the instruction set.
struct AttentionKernels {
  void (*multiply)(const Product&);
  void (*transpose_block)(const float* in, int64_t in_stride, float* out, int64_t out_stride);
};
// Returns those for the instruction set of the machine.
const AttentionKernels& Kernels();

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

// An array in the scratch memory of a task, behind so many floats, or so many for each row.
struct ScratchArray {
  int64_t floats_before;
  bool per_row;
};
// The scratch memory of a task: arrays of fixed sizes, and arrays for so many rows.
struct TaskScratch {
  float *fixed, *per_row;
  int64_t num_rows;

  float* At(const ScratchArray& array) const {
    return array.per_row ? per_row + array.floats_before * num_rows : fixed + array.floats_before;
  }
};

// Divides the heads of all sequences into parts, several for each thread, and gives each task scratch memory: that of
// its thread. Where rows for all of the batch, for each thread, would be more than for each head, a thread has few
// rows, and a longer sequence its place in memory for all rows and heads.
class Parts {
 public:
  enum class Rows { kQueries, kKeys };
  // `rows`: those for which AddPerRow places floats.
  Parts(const AttentionGeometry& g, Rows rows)
      : batch_(g.batch),
        heads_(g.heads),
        threads_(MostThreads()),
        parts_(NumThreads() == 1 ? 1 : std::clamp<int64_t>(4 * NumThreads(), 1, std::max<int64_t>(1, batch_ * heads_))),
        rows_(rows) {
    // The thread's memory stays in its cache, which sequences need the more, the less they compute with each row.
    constexpr int64_t kOwnRows = 512;
    const int64_t all_rows = rows == Rows::kQueries ? g.queries : g.keys;
    own_rows_ = RoundUp(all_rows, kRows);
    if (threads_ * own_rows_ <= threads_ * kOwnRows + heads_ * PlaceOf(all_rows)) return;
    own_rows_ = kOwnRows;
    long_rows_ = PlaceOf(all_rows);
  }

  // Places an array of `count` floats.
  ScratchArray Add(int64_t count) { return {fixed_.Add(count * kFloatBytes) / kFloatBytes, false}; }
  // Places an array of `count` floats for each row of the task's sequence, whose number is rounded up to a multiple of
  // kRows.
  ScratchArray AddPerRow(int64_t count) {
    row_floats_ += count;
    return {row_floats_ - count, true};
  }
  int64_t scratch_bytes() const { return (threads_ * own_floats() + heads_ * long_rows_ * row_floats_) * kFloatBytes; }

  // task(sequence, head, scratch) for all, under WithSimd. The heads of a sequence, which share memory pages, come one
  // after the other; parts have about as much work each, however unlike the sequences are.
  template <typename Task>
  void Run(const int32_t* q_offsets, const int32_t* k_offsets, const KernelArgs& args, Task task) const {
    const int32_t* const offsets = rows_ == Rows::kQueries ? q_offsets : k_offsets;
    const auto work_of = [&](int64_t b) {
      constexpr int64_t kFixed = 16;  // tokens' worth of work that even a short sequence costs
      return (int64_t{q_offsets[b + 1]} - q_offsets[b] + kFixed) * (k_offsets[b + 1] - k_offsets[b] + kFixed);
    };
    int64_t all = 0;
    for (int64_t b = 0; b < batch_; ++b) all += work_of(b) * heads_;
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        int64_t done = 0;
        for (int64_t b = 0; b < batch_; ++b) {
          TaskScratch scratch = {};  // of the heads of the sequence that are in this part
          for (int64_t h = 0; h < heads_; ++h, done += work_of(b)) {
            if (done < all * part / parts_ || done >= all * (part + 1) / parts_) continue;
            if (scratch.fixed == nullptr) scratch = ScratchFor(args, offsets[b], offsets[b + 1], h);
            WithSimd([&] { task(b, h, scratch); });
          }
        }
      }
    });
  }

 private:
  static constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

  // Where the rows of a long sequence that begins at this row have their place. An eighth more than there are rows is
  // room to round each such sequence up to kRows.
  static int64_t PlaceOf(int64_t row) { return Padded(row + row / 8); }
  int64_t own_floats() const { return fixed_.bytes() / kFloatBytes + own_rows_ * row_floats_; }

  // For heads from `head` on of the sequence of rows [begin, end).
  TaskScratch ScratchFor(const KernelArgs& args, int64_t begin, int64_t end, int64_t head) const {
    auto* const all = static_cast<float*>(args.scratch);
    float* const own = all + ThreadNumber() * own_floats();
    float* const own_rows = own + fixed_.bytes() / kFloatBytes;
    float* const long_rows = all + threads_ * own_floats() + (head * long_rows_ + PlaceOf(begin)) * row_floats_;
    return {own, end - begin <= own_rows_ ? own_rows : long_rows, RoundUp(end - begin, kRows)};
  }

  const int64_t batch_, heads_, threads_, parts_;
  const Rows rows_;
  int64_t own_rows_ = 0;   // of a thread
  int64_t long_rows_ = 0;  // of a head, for sequences with more than own_rows_; 0: there are none
  int64_t row_floats_ = 0;
  ScratchPlan fixed_;
};

// Checks the offsets of the queries and of the keys, which Parts::Run takes.
absl::Status CheckBothOffsets(const AttentionGeometry& g, const KernelArgs& args);

// Sets the rows of y behind the last sequence to 0.
template <typename T>
void ClearPadding(const int32_t* offsets, int64_t batch, T* y, const Shape& shape) {
  const int64_t columns = shape.dim(1);
  std::fill(y + offsets[batch] * columns, y + shape.dim(0) * columns, T(0.0f));
}

}  // namespace official::compute::attention_cpu
