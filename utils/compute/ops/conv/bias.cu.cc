#include "utils/compute/ops/conv/bias.h"

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/channel_pieces.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/pack.h"
#include "utils/compute/cuda/row_threads.h"

namespace official::compute {
namespace {

constexpr int kThreads = ChannelPieces::kThreads;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) AddBiasKernel(ChannelPieces v, const T* bias, bool relu, T* y) {
  if (!v.HasRows<kWidth>()) return;
  const auto biases = LoadPack<kWidth>(bias + v.Channel<kWidth>());
  v.ForRows<kWidth>([=](int64_t i) { return LoadPack<kWidth>(y + i); },
                    [=](int64_t i, const Pack<T, kWidth>& loaded) {
                      Pack<float, kWidth> values;
#pragma unroll
                      for (int k = 0; k < kWidth; ++k) {
                        const float value = loaded.Float(k) + biases.Float(k);
                        values.at[k] = relu && value < 0.0f ? 0.0f : value;  // NaN stays NaN
                      }
                      StorePack(y + i, RoundPack<T>(values));
                    });
}

// sums [piece][channels]
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) SumPieces(ChannelPieces v, const T* dy, float* sums) {
  const float sum = v.Sum<float, kWidth>([=](int64_t i) { return LoadPack<kWidth>(dy + i); },
                                         [](float(&of_channels)[kWidth], const Pack<T, kWidth>& loaded) {
#pragma unroll
                                           for (int k = 0; k < kWidth; ++k) of_channels[k] += loaded.Float(k);
                                         });
  if (v.HasSum<kWidth>()) sums[blockIdx.y * v.channels + v.SumChannel<kWidth>()] = sum;
}

// A warp for each channel: each lane adds up every 32nd piece, the lanes a tree.
using Warp = RowThreads<32, 1>;

template <typename T>
__global__ void __launch_bounds__(Warp::kBlock) AddPieces(ChannelPieces v, const float* sums, T* d_bias) {
  const int64_t c = Warp::Row();
  if (c >= v.channels) return;
  double sum = 0;
#pragma unroll 4
  for (int64_t piece = Warp::Lane(); piece < v.pieces; piece += Warp::kRowThreads) sum += sums[piece * v.channels + c];
  sum = Warp::Reduce(sum, [](double a, double b) { return a + b; });
  if (Warp::Lane() == 0) d_bias[c] = static_cast<T>(static_cast<float>(sum));
}

}  // namespace

absl::Status AddBias(cudaStream_t stream, const TensorType& y_type, const void* bias, bool relu, void* y) {
  const ChannelPieces v = ChannelPieces::Packed(y_type);
  if (v.empty()) return absl::OkStatus();
  WithStorageType(y_type.dtype, [&]<typename T>(T) {
    WithWidth<T>(v, [&](auto width) {
      Launch(AddBiasKernel<T, width()>, v.PieceBlocks(), kThreads, 0, stream, v, static_cast<const T*>(bias), relu,
             static_cast<T*>(y));
    });
  });
  return LaunchStatus("AddBias");
}

int64_t BiasGradientScratchBytes(const TensorType& dy_type) {
  const ChannelPieces v = ChannelPieces::Packed(dy_type);
  return v.pieces * v.channels * static_cast<int64_t>(sizeof(float));
}

absl::Status BiasGradient(cudaStream_t stream, const TensorType& dy_type, const void* dy, void* d_bias, void* scratch) {
  const ChannelPieces v = ChannelPieces::Packed(dy_type);
  float* const sums = static_cast<float*>(scratch);
  if (v.channels == 0) return absl::OkStatus();
  if (v.rows > 0) {
    WithStorageType(dy_type.dtype, [&]<typename T>(T) {
      WithWidth<T>(v, [&](auto width) {
        Launch(SumPieces<T, width()>, v.PieceBlocks(), kThreads, 0, stream, v, static_cast<const T*>(dy), sums);
      });
    });
    RETURN_IF_ERROR(LaunchStatus("SumPieces"));
  }
  WithStorageType(dy_type.dtype, [&]<typename T>(T) {
    Launch(AddPieces<T>, NumBlocks(v.channels, Warp::kRowsOfBlock), Warp::kBlock, 0, stream, v, sums,
           static_cast<T*>(d_bias));
  });
  return LaunchStatus("AddPieces");
}

}  // namespace official::compute
