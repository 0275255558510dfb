#include "utils/compute/ops/conv/bias.h"

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/channel_pieces.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kThreads = ChannelPieces::kThreads;

template <typename T>
__global__ void AddBiasKernel(int64_t elements, int64_t channels, const T* bias, bool relu, T* y) {
  const int64_t i = ThreadIndex<int64_t>();
  if (i >= elements) return;
  const float value = static_cast<float>(y[i]) + static_cast<float>(bias[i % channels]);
  y[i] = static_cast<T>(relu && value < 0.0f ? 0.0f : value);
}

// sums [piece][channels]
template <typename T>
__global__ void SumPieces(ChannelPieces v, const T* dy, float* sums) {
  const float sum = v.Sum<float>([=](int64_t i) { return static_cast<float>(dy[i]); });
  if (v.HasSum()) sums[blockIdx.y * v.channels + v.Channel()] = sum;
}

template <typename T>
__global__ void AddPieces(ChannelPieces v, const float* sums, T* d_bias) {
  const int64_t c = ThreadIndex<int64_t>();
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
    Launch(AddBiasKernel<T>, NumBlocks(elements, kThreads), kThreads, 0, stream, elements, y_type.shape.dim(-1),
           static_cast<const T*>(bias), relu, static_cast<T*>(y));
  });
  return LaunchStatus("AddBias");
}

int64_t BiasGradientScratchBytes(const TensorType& dy_type) {
  const ChannelPieces v(dy_type);
  return v.pieces * v.channels * static_cast<int64_t>(sizeof(float));
}

absl::Status BiasGradient(cudaStream_t stream, const TensorType& dy_type, const void* dy, void* d_bias, void* scratch) {
  const ChannelPieces v(dy_type);
  float* const sums = static_cast<float*>(scratch);
  if (v.channels == 0) return absl::OkStatus();
  if (v.rows > 0) {
    WithStorageType(dy_type.dtype, [&]<typename T>(T) {
      Launch(SumPieces<T>, v.PieceBlocks(), kThreads, 0, stream, v, static_cast<const T*>(dy), sums);
    });
    RETURN_IF_ERROR(LaunchStatus("SumPieces"));
  }
  WithStorageType(dy_type.dtype, [&]<typename T>(T) {
    Launch(AddPieces<T>, v.ChannelBlocks(), kThreads, 0, stream, v, sums, static_cast<T*>(d_bias));
  });
  return LaunchStatus("AddPieces");
}

}  // namespace official::compute
