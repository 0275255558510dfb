#include "utils/compute/ops/conv/bias.h"

#include <algorithm>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kTileChannels = 32, kTileRows = kThreads / kTileChannels;  // of a block that sums

// Values as [rows, channels], the rows in pieces that are summed by one block each.
struct View {
  static constexpr int64_t kMaxPieces = 256, kMinPieceRows = 4 * kTileRows;

  int64_t rows, channels, piece_rows, pieces;

  explicit View(const TensorType& type)
      : rows(type.shape.Product(0, type.shape.rank() - 1)),
        channels(type.shape.dim(-1)),
        piece_rows(std::max((rows + kMaxPieces - 1) / kMaxPieces, kMinPieceRows)),
        pieces((rows + piece_rows - 1) / piece_rows) {}
};

unsigned Blocks(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

template <typename T>
__global__ void AddBiasKernel(int64_t elements, int64_t channels, const T* bias, bool relu, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  const float value = static_cast<float>(y[i]) + static_cast<float>(bias[i % channels]);
  y[i] = static_cast<T>(relu && value < 0.0f ? 0.0f : value);
}

// sums [piece][channels]: block y sums its piece for the channels of block x's tile.
template <typename T>
__global__ void SumPieces(View v, const T* dy, float* sums) {
  __shared__ float shared[kTileRows][kTileChannels];
  const int lane = threadIdx.x % kTileChannels, first = threadIdx.x / kTileChannels;
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kTileChannels + lane;
  const int64_t begin = blockIdx.y * v.piece_rows, end = std::min(begin + v.piece_rows, v.rows);
  float sum = 0;
  for (int64_t row = begin + first; channel < v.channels && row < end; row += kTileRows) {
    sum += static_cast<float>(dy[row * v.channels + channel]);
  }
  shared[first][lane] = sum;
  __syncthreads();
  if (first != 0 || channel >= v.channels) return;
  for (int i = 1; i < kTileRows; ++i) sum += shared[i][lane];
  sums[blockIdx.y * v.channels + channel] = sum;
}

template <typename T>
__global__ void AddPieces(View v, const float* sums, T* d_bias) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= v.channels) return;
  double sum = 0;
  for (int64_t piece = 0; piece < v.pieces; ++piece) sum += sums[piece * v.channels + c];
  d_bias[c] = static_cast<T>(static_cast<float>(sum));
}

}  // namespace

absl::Status AddBias(cudaStream_t stream, const TensorType& y_type, const void* bias, bool relu, void* y) {
  const int64_t elements = y_type.shape.num_elements();
  if (elements == 0) return absl::OkStatus();
  WithStorageType(y_type.dtype, [&]<typename T>(T) {
    AddBiasKernel<<<Blocks(elements), kThreads, 0, stream>>>(elements, y_type.shape.dim(-1),
                                                             static_cast<const T*>(bias), relu, static_cast<T*>(y));
  });
  return LaunchStatus("AddBias");
}

int64_t BiasGradientScratchBytes(const TensorType& dy_type) {
  const View v(dy_type);
  return v.pieces * v.channels * static_cast<int64_t>(sizeof(float));
}

absl::Status BiasGradient(cudaStream_t stream, const TensorType& dy_type, const void* dy, void* d_bias, void* scratch) {
  const View v(dy_type);
  float* const sums = static_cast<float*>(scratch);
  if (v.channels == 0) return absl::OkStatus();
  if (v.rows > 0) {
    const dim3 blocks(static_cast<unsigned>((v.channels + kTileChannels - 1) / kTileChannels),
                      static_cast<unsigned>(v.pieces));
    WithStorageType(dy_type.dtype, [&]<typename T>(T) {
      SumPieces<<<blocks, kThreads, 0, stream>>>(v, static_cast<const T*>(dy), sums);
    });
    RETURN_IF_ERROR(LaunchStatus("SumPieces"));
  }
  WithStorageType(dy_type.dtype, [&]<typename T>(T) {
    AddPieces<<<Blocks(v.channels), kThreads, 0, stream>>>(v, sums, static_cast<T*>(d_bias));
  });
  return LaunchStatus("AddPieces");
}

}  // namespace official::compute
