// The sums of the rows of equal indices, in an order that only the indices decide: the places of an index in the sorted
// order are cut into pieces of kRowsOfPiece, counted from its first place; each piece is summed by threads of its own,
// and the sums of the pieces are added in their order. Only for CUDA code.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/cuda/sorted_indices.h"

namespace official::compute {

template <typename T>
struct RowSums {
  static constexpr int32_t kRowsOfPiece = 32;

  SortedIndices::Result sorted;
  int32_t count;
  const T* rows;  // [count, width]
  int64_t width;
  // [NumSlots(count), width], for the sums of all pieces but the first of each index. The pieces of an index begin
  // kRowsOfPiece places apart, and its second one begins at least as far behind those of the index before it: no two
  // of them begin in the same slot of kRowsOfPiece places.
  float* pieces;

  static int64_t NumSlots(int32_t count) { return (count + kRowsOfPiece - 1) / kRowsOfPiece; }
  static int64_t ScratchBytes(int32_t count, int64_t width) {
    return NumSlots(count) * width * static_cast<int64_t>(sizeof(float));
  }
  // `pieces` in the scratch memory of a kernel, from byte `at` on.
  static float* PiecesAt(void* scratch, int64_t at) {
    return reinterpret_cast<float*>(static_cast<char*>(scratch) + at);
  }

  // The sum in column `c` of the rows of the index whose first place is `begin`. The pieces have been summed by an
  // earlier launch.
  __device__ float operator()(int32_t begin, int64_t c) const {
    const int32_t index = sorted.indices[begin];
    float sum = SumPiece(index, begin, c);
    for (int32_t k = begin; (k = Next(index, k)) >= 0;) sum += pieces[k / kRowsOfPiece * width + c];
    return sum;
  }

  // Sums the piece that begins in this slot, if there is one that is not the first of its index. The threads of a row
  // share the slot.
  template <typename Threads>
  __device__ void SumSlot() const {
    const int64_t slot = Threads::Row();
    if (slot == 0 || slot >= (count + kRowsOfPiece - 1) / kRowsOfPiece) return;
    const auto first = static_cast<int32_t>(slot * kRowsOfPiece);
    const int32_t index = sorted.indices[first];
    if (sorted.indices[first - 1] != index) return;
    const int32_t begin = FirstPlace(index, first);
    const int32_t k = begin + (first - begin + kRowsOfPiece - 1) / kRowsOfPiece * kRowsOfPiece;
    if (k >= count || sorted.indices[k] != index) return;
    for (int64_t c = Threads::Lane(); c < width; c += Threads::kRowThreads) {
      pieces[slot * width + c] = SumPiece(index, k, c);
    }
  }

 private:
  // The place where the next piece of the index begins, or -1.
  __device__ int32_t Next(int32_t index, int32_t begin) const {
    return count - begin > kRowsOfPiece && sorted.indices[begin + kRowsOfPiece] == index ? begin + kRowsOfPiece : -1;
  }

  __device__ float SumPiece(int32_t index, int32_t begin, int64_t c) const {
    const int32_t end = count - begin > kRowsOfPiece ? begin + kRowsOfPiece : count;
    float sum = 0;
    for (int32_t k = begin; k < end && sorted.indices[k] == index; ++k) {
      sum += static_cast<float>(rows[sorted.positions[k] * width + c]);
    }
    return sum;
  }

  // The first place of the index, which also is at place `end`.
  __device__ int32_t FirstPlace(int32_t index, int32_t end) const {
    int32_t begin = 0;
    while (begin < end) {
      const int32_t middle = begin + (end - begin) / 2;
      if (sorted.indices[middle] < index) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

template <typename Threads, typename T>
__global__ void __launch_bounds__(Threads::kBlock) SumPieces(RowSums<T> sums) {
  sums.template SumSlot<Threads>();
}

// Gives the stream the work of summing the pieces.
template <typename T>
absl::Status LaunchSumPieces(const RowSums<T>& sums, cudaStream_t stream) {
  if (sums.count <= RowSums<T>::kRowsOfPiece || sums.width == 0) return absl::OkStatus();
  WithRowThreads<1>(sums.width, [&]<typename Threads>(Threads) {
    Launch(SumPieces<Threads, T>, NumBlocks(RowSums<T>::NumSlots(sums.count), Threads::kRowsOfBlock), Threads::kBlock,
           0, stream, sums);
  });
  return LaunchStatus("SumPieces");
}

}  // namespace official::compute
