// Products on tensor cores, as the emulation computes them: each number of a tile is where PTX wants it.
#include "utils/compute/cuda/mma.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/half.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kSize = mma::kSize, kStride = kSize + mma::kRowPadding, kNumbers = kSize * kSize;

// The operands as they lie in memory, [16][16], and which of them are transposed there.
template <typename T>
struct Operands {
  const T *a, *b;
  bool a_transposed, b_transposed;
};

// sums += a b; with `rounded`, sums = the sums, rounded, as the left operand, times b.
template <typename T>
__global__ void Multiply(Operands<T> x, bool rounded, float* sums, T* stored) {
  T* const tile = reinterpret_cast<T*>(DynamicShared<Pack<T, 8>>());
  T *const a = tile, *const b = a + kSize * kStride, *const y = b + kSize * kStride;
  for (int i = threadIdx.x; i < kNumbers; i += 32) {
    a[i / kSize * kStride + i % kSize] = x.a[i];
    b[i / kSize * kStride + i % kSize] = x.b[i];
  }
  __syncthreads();
  mma::Sums d;
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) d.at[n][i] = sums[mma::SumRow(i) * kSize + mma::SumColumn(n, i)];
  }
  const auto right = x.b_transposed ? mma::LoadRightTransposed(b, kStride) : mma::LoadRight(b, kStride);
  if (rounded) {
    mma::Sums product;
    mma::MultiplyAdd(mma::Rounded<T>(d), right, &product);
    d = product;
  } else {
    const auto left = x.a_transposed ? mma::LoadLeftTransposed(a, kStride) : mma::LoadLeft(a, kStride);
    mma::MultiplyAdd(left, right, &d);
  }
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) sums[mma::SumRow(i) * kSize + mma::SumColumn(n, i)] = d.at[n][i];
  }
  mma::StoreRounded(d, y, kStride);
  __syncthreads();
  for (int i = threadIdx.x; i < kNumbers; i += 32) stored[i] = y[i / kSize * kStride + i % kSize];
}

cudaStream_t TestStream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) == cudaSuccess);
    return made;
  }();
  return stream;
}

// A buffer of device memory with these values.
template <typename T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& values) : count_(values.size()) {
    REQUIRE(cudaMalloc(&data_, count_ * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice, TestStream()) ==
            cudaSuccess);
  }
  ~Buffer() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    REQUIRE(cudaMemcpyAsync(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost, TestStream()) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(TestStream()) == cudaSuccess);
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

// Small integers, whose products both types and their sums hold exactly.
std::vector<float> Integers(int seed) {
  std::vector<float> values(kNumbers);
  for (int i = 0; i < kNumbers; ++i) values[i] = static_cast<float>((i * 37 + i / kSize * seed + seed) % 11 - 5);
  return values;
}

template <typename T>
std::vector<T> Narrow(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float x : values) result.push_back(T(x));
  return result;
}

TEMPLATE_TEST_CASE("A warp's product is that of a plain loop", "", BFloat16, Half) {
  const bool a_transposed = GENERATE(false, true), b_transposed = GENERATE(false, true),
             rounded = GENERATE(false, true);
  CAPTURE(a_transposed, b_transposed, rounded);
  const std::vector<float> a = Integers(3), b = Integers(8), start = Integers(5);
  const Buffer<TestType> a_data(Narrow<TestType>(a)), b_data(Narrow<TestType>(b)), stored(Narrow<TestType>(start));
  const Buffer<float> sums(start);
  Launch(Multiply<TestType>, 1, 32, 3 * kSize * kStride * sizeof(TestType), TestStream(),
         {a_data.data(), b_data.data(), a_transposed, b_transposed}, rounded, sums.data(), stored.data());
  REQUIRE(cudaGetLastError() == cudaSuccess);
  const std::vector<float> got = sums.Read();
  const std::vector<TestType> got_rounded = stored.Read();
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      const int at = row * kSize + column;
      float want = rounded ? 0 : start[at];
      for (int k = 0; k < kSize; ++k) {
        const float of_a = a[a_transposed ? k * kSize + row : row * kSize + k];
        want += (rounded ? start[row * kSize + k] : of_a) * b[b_transposed ? column * kSize + k : k * kSize + column];
      }
      CAPTURE(row, column);
      CHECK(got[at] == want);
      CHECK(got_rounded[at].bits == TestType(want).bits);
    }
  }
}

TEST_CASE("Tensor cores are those of compute capability 8.0 and above") {
  cudaDeviceProp properties = {};
  properties.major = 7;
  properties.minor = 5;
  CHECK_FALSE(mma::HasMma(properties));
  properties.major = 8;
  properties.minor = 0;
  CHECK(mma::HasMma(properties));
}

}  // namespace
}  // namespace official::compute
