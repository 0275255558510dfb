// CUDA kernel of DecodeAttention.

#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/ops/attention/attention.h"
#include "utils/compute/ops/attention/attention_cuda.h"
#include "utils/compute/ops/attention/geometry.h"
#include "utils/compute/ops/elementwise/math.h"

namespace official::compute::attention_cuda {
namespace {

constexpr int kDecodeWarps = 4, kDecodeChunks = 8;  // up to 8 * 32 columns of values

// The tensors of DecodeAttention.
template <typename T>
struct Decoding {
  const T *q, *k, *v;
  T *k_cache, *v_cache, *out;
  const int32_t *rows, *lengths;
  DataError row_error, length_error;
};

// A block for each sequence and head. Its warps take keys in turn, each with a softmax of its own so far; then the
// warps' sums are added.
template <typename T>
__global__ void __launch_bounds__(32 * kDecodeWarps) AttendCache(DecodeGeometry g, Decoding<T> d) {
  const int64_t i = blockIdx.x, b = i / g.heads, h = i % g.heads;
  const int length = d.lengths[b], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int key_size = static_cast<int>(g.key_size), value_size = static_cast<int>(g.value_size);
  if (length < 0 || length >= g.known) {
    if (threadIdx.x == 0) d.length_error.Report(length);
    return;
  }
  const int32_t* const rows = d.rows + b * g.known;
  bool outside = false;
  for (int p = threadIdx.x; p < length; p += 32 * kDecodeWarps) {
    if (rows[p] >= 0 && rows[p] < g.rows) continue;
    d.row_error.Report(rows[p]);
    outside = true;
  }
  if (__syncthreads_or(outside)) return;

  // The newest token is read from where it comes from: other threads write it to the caches.
  const T *const q = d.q + i * key_size, *const newest_k = d.k + i * key_size, *const newest_v = d.v + i * value_size;
  const int64_t newest = (b * g.positions + length) * g.heads + h;
  for (int c = threadIdx.x; c < key_size; c += 32 * kDecodeWarps) d.k_cache[newest * key_size + c] = newest_k[c];
  for (int c = threadIdx.x; c < value_size; c += 32 * kDecodeWarps) d.v_cache[newest * value_size + c] = newest_v[c];
  float max = -std::numeric_limits<float>::infinity(), sum = 0, values[kDecodeChunks] = {};
  for (int p = warp; p <= length; p += kDecodeWarps) {
    const int64_t token = p < length ? (rows[p] * g.positions + p) * g.heads + h : newest;
    const T* const key = p < length ? d.k_cache + token * key_size : newest_k;
    const T* const value = p < length ? d.v_cache + token * value_size : newest_v;
    float score = 0;
    for (int c = lane; c < key_size; c += 32) score += static_cast<float>(q[c]) * static_cast<float>(key[c]);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) score += __shfl_xor_sync(0xffffffff, score, distance);
    score *= g.scale;
    const float largest = Larger()(max, score);
    const float shrink = math::Exp()(max - largest), weight = math::Exp()(score - largest);
    max = largest;
    sum = sum * shrink + weight;
#pragma unroll
    for (int j = 0; j < kDecodeChunks; ++j) {
      const int c = lane + 32 * j;
      if (c < value_size) values[j] = values[j] * shrink + weight * static_cast<float>(value[c]);
    }
  }
  __shared__ Shared<float[kDecodeWarps]> maxes, sums;
  __shared__ Shared<float[kDecodeWarps][32 * kDecodeChunks]> all_values;
  if (lane == 0) {
    maxes[warp] = max;
    sums[warp] = sum;
  }
#pragma unroll
  for (int j = 0; j < kDecodeChunks; ++j) all_values[warp][lane + 32 * j] = values[j];
  __syncthreads();
  float largest = maxes[0], total = 0, factors[kDecodeWarps];
  for (int w = 1; w < kDecodeWarps; ++w) largest = Larger()(largest, maxes[w]);
  for (int w = 0; w < kDecodeWarps; ++w) {
    factors[w] = sums[w] > 0 ? math::Exp()(maxes[w] - largest) : 0.0f;
    total += sums[w] * factors[w];
  }
  for (int c = threadIdx.x; c < value_size; c += 32 * kDecodeWarps) {
    float value = 0;
    for (int w = 0; w < kDecodeWarps; ++w) value += all_values[w][c] * factors[w];
    d.out[i * value_size + c] = T(value / total);
  }
}

template <typename T>
absl::StatusOr<Kernel> MakeDecodeAttention(const KernelSpec& spec) {
  const DecodeGeometry g(spec.node);
  if (g.value_size > 32 * kDecodeChunks) {
    return absl::UnimplementedError(absl::StrCat("attention to a cache on GPUs takes heads of up to ",
                                                 32 * kDecodeChunks, " columns, got ", g.value_size));
  }
  CudaDevice& device = CudaDeviceOf(spec);
  const DataError row_error = device.AddDataError(spec.node, [rows = g.rows](int32_t value) {
    return absl::StrCat("cache row ", value, " is outside [0, ", rows, ")");
  });
  const DataError length_error = device.AddDataError(spec.node, [known = g.known](int32_t value) {
    return absl::StrCat("length ", value, " is outside [0, ", known, ")");
  });
  return Kernel{[=, stream = device.stream()](const KernelArgs& args) {
    if (g.batch == 0) return absl::OkStatus();
    const Decoding<T> d = {.q = args.input<T>(decode_attention::kQ),
                           .k = args.input<T>(decode_attention::kK),
                           .v = args.input<T>(decode_attention::kV),
                           .k_cache = args.variable<T>(decode_attention::kKCache),
                           .v_cache = args.variable<T>(decode_attention::kVCache),
                           .out = args.output<T>(decode_attention::kY),
                           .rows = args.input<int32_t>(decode_attention::kCacheRows),
                           .lengths = args.input<int32_t>(decode_attention::kLengths),
                           .row_error = row_error,
                           .length_error = length_error};
    Launch(AttendCache<T>, static_cast<unsigned>(g.batch * g.heads), 32 * kDecodeWarps, 0, stream, g, d);
    return LaunchStatus("AttendCache");
  }};
}

const bool registered = RegisterKernel({
    .op = op::DecodeAttention,
    .device_kind = "cuda",
    .dtypes = StorageTypes(),
    .make = ForStorageType([]<typename T>(const KernelSpec& spec, T) { return MakeDecodeAttention<T>(spec); }),
});

}  // namespace
}  // namespace official::compute::attention_cuda
