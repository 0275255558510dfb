// CPU kernel of DecodeAttention.

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute {
namespace {

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
    const int32_t* const rows = args.input<int32_t>(decode_attention::kCacheRows);
    const int32_t* const lengths = args.input<int32_t>(decode_attention::kLengths);
    RETURN_IF_ERROR(CheckCacheRows(g, rows, lengths));
    float* const scores = static_cast<float*>(ScratchAt(args, scores_at));
    float* const values = static_cast<float*>(ScratchAt(args, values_at));
    ParallelFor(g.batch * g.heads, 1, [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        for (int64_t i = begin, heads = 0; i < end; i += heads) {
          const int64_t b = i / g.heads, first_head = i % g.heads, length = lengths[b];
          heads = std::min(end - i, g.heads - first_head);
          const CachedHeads<T> k =
              heads_of(args.variable<T>(decode_attention::kKCache), g.key_size, b, first_head, rows);
          const CachedHeads<T> v =
              heads_of(args.variable<T>(decode_attention::kVCache), g.value_size, b, first_head, rows);
          std::copy_n(args.input<T>(decode_attention::kK) + i * g.key_size, heads * g.key_size, k.Newest(length));
          std::copy_n(args.input<T>(decode_attention::kV) + i * g.value_size, heads * g.value_size, v.Newest(length));
          AttendCache(args.input<T>(decode_attention::kQ) + i * g.key_size, k, v, heads, length, g.scale,
                      scores + i * g.known, g.known, values + i * g.value_size,
                      args.output<T>(decode_attention::kY) + i * g.value_size);
        }
      });
    });
    return absl::OkStatus();
  };
  return {.run = run, .scratch_bytes = scratch.bytes()};
}

const bool registered = RegisterKernel({
    .op = op::DecodeAttention,
    .device_kind = "cpu",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeDecodeAttention<T>(spec); }),
});

}  // namespace
}  // namespace official::compute
