// What the CUDA kernels of softmax and cross entropy have in common. Only for CUDA code.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/softmax/cross_entropy.h"

namespace official::compute {

// A NaN may be passed over here, but not in the sum of exponentials.
struct Larger {
  __device__ float operator()(float a, float b) const { return b > a ? b : a; }
};

// The largest of the row's elements and of the `max` that each thread brings.
template <typename Threads, typename T>
__device__ float Max(const T* x, int64_t size, float max = -std::numeric_limits<float>::infinity()) {
  Threads::ForEach(
      size, [&](int64_t, float v) { max = Larger()(max, v); }, x);
  return Threads::Reduce(max, Larger());
}

// The sum of f(x[i]...) over the row and of the `sum` that each thread brings.
template <typename Threads, typename F, typename... X>
__device__ float SumWith(float sum, int64_t size, F f, const X*... x) {
  Threads::ForEach(
      size, [&](int64_t, auto... v) { sum += f(v...); }, x...);
  return Threads::Reduce(sum, math::Add());
}

// The sum of f(x[i]...) over the row.
template <typename Threads, typename F, typename... X>
__device__ float Sum(int64_t size, F f, const X*... x) {
  return SumWith<Threads>(0, size, f, x...);
}

template <typename Threads, typename T>
__device__ float SumExp(const T* x, int64_t size, float max, float sum = 0) {
  return SumWith<Threads>(
      sum, size, [=](float v) { return math::Exp()(v - max); }, x);
}

// The error of a label outside the classes.
inline DataError AddLabelError(CudaDevice& device, const Node& node, const CrossEntropy& c) {
  return device.AddDataError(
      node, [size = c.classes](int32_t label) { return absl::StrCat("label ", label, " is outside [0, ", size, ")"); });
}

__device__ inline void ReportLabel(int64_t label, DataError error) {
  constexpr int64_t kLowest = std::numeric_limits<int32_t>::min(), kHighest = std::numeric_limits<int32_t>::max();
  error.Report(static_cast<int32_t>(label < kLowest ? kLowest : label > kHighest ? kHighest : label));
}

}  // namespace official::compute
