#include "utils/compute/cuda/box_move.h"

#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/divisor.h"
#include "utils/compute/cuda/launch.h"

namespace official::compute {
namespace {

constexpr int kThreads = 256;
constexpr int kWordsAtOnce = 4;  // of a thread: their loads are under way together

// The words to be written. Word i has coordinate i / by in the outermost dimension; what the division leaves is divided
// on in the dimensions inside, and is at last the word's place in its run. Words have a source if they lie in [first,
// first + size) of all dimensions and in [run_first, run_first + run) of the run; the others become zeros.
template <typename Index>
struct Walk {
  struct Dim {
    Divisor<Index> by;
    Index first, size;
    int64_t from, to;  // strides
  };
  Index words, run_first, run;
  int64_t from_begin, to_begin;  // the places of what has the coordinates 0
  int count = 0;
  Dim at[kMaxMoveDims];
};

template <typename Word, typename Index>
__global__ void __launch_bounds__(kThreads)
    MoveWords(const Word* source, Word* target, const Walk<Index> __grid_constant__ walk) {
  Index rest[kWordsAtOnce];
  int64_t from[kWordsAtOnce], to[kWordsAtOnce];
  bool inside[kWordsAtOnce];
  const Index first = static_cast<Index>(blockIdx.x) * (kThreads * kWordsAtOnce) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kWordsAtOnce; ++k) {
    rest[k] = first + k * kThreads;
    inside[k] = rest[k] < walk.words;
    from[k] = walk.from_begin;
    to[k] = walk.to_begin;
  }
#pragma unroll 1
  for (int d = 0; d < walk.count; ++d) {
    const auto& dim = walk.at[d];
#pragma unroll
    for (int k = 0; k < kWordsAtOnce; ++k) {
      const Index coordinate = dim.by.Quotient(rest[k]);
      rest[k] -= coordinate * dim.by.value();
      inside[k] &= coordinate - dim.first < dim.size;
      from[k] += static_cast<int64_t>(coordinate) * dim.from;
      to[k] += static_cast<int64_t>(coordinate) * dim.to;
    }
  }
  Word words[kWordsAtOnce] = {};
#pragma unroll
  for (int k = 0; k < kWordsAtOnce; ++k) {
    if (inside[k] && rest[k] - walk.run_first < walk.run) words[k] = source[from[k] + static_cast<int64_t>(rest[k])];
  }
#pragma unroll
  for (int k = 0; k < kWordsAtOnce; ++k) {
    if (first + k * kThreads < walk.words) target[to[k] + static_cast<int64_t>(rest[k])] = words[k];
  }
}

// The largest power of two up to 16 that divides all lengths.
int64_t WordBytes(const BoxCopy& box, int64_t target_bytes) {
  int64_t bits = 16 | box.run_bytes | box.from_begin | box.to_begin | target_bytes;
  for (const MoveDim& d : box.dims) bits |= d.from | d.to;
  return bits & -bits;
}

// The words of the box, in its own order.
template <typename Index>
Walk<Index> WalkOfBox(const BoxCopy& box, int64_t word) {
  const int64_t run = box.run_bytes / word;
  Walk<Index> walk{.words = static_cast<Index>(run * box.num_runs()),
                   .run_first = 0,
                   .run = static_cast<Index>(run),
                   .from_begin = box.from_begin / word,
                   .to_begin = box.to_begin / word};
  int64_t inner = run * box.num_runs();
  for (const MoveDim& d : box.dims) {
    inner /= d.size;
    walk.at[walk.count++] = {Divisor<Index>(static_cast<Index>(inner)), 0, static_cast<Index>(d.size), d.from / word,
                             d.to / word};
  }
  return walk;
}

// All words of the target, in its order: the coordinates are those of the target.
template <typename Index>
Walk<Index> WalkOfTarget(const BoxCopy& box, int64_t word, int64_t target_bytes) {
  Walk<Index> walk{.words = static_cast<Index>(target_bytes / word),
                   .run = static_cast<Index>(box.run_bytes / word),
                   .from_begin = box.from_begin / word,
                   .to_begin = 0};
  int64_t begin = box.to_begin / word;
  for (const MoveDim& d : box.dims) {
    const int64_t from = d.from / word, to = d.to / word, first = begin / to;
    begin %= to;
    walk.from_begin -= first * from;
    walk.at[walk.count++] = {Divisor<Index>(static_cast<Index>(to)), static_cast<Index>(first),
                             static_cast<Index>(d.size), from, to};
  }
  walk.run_first = static_cast<Index>(begin);
  walk.from_begin -= begin;
  return walk;
}

template <typename Word, typename Index>
BoxMove MakeMove(const Walk<Index>& walk) {
  return [walk](cudaStream_t stream, const void* from, void* to) {
    Launch(MoveWords<Word, Index>, NumBlocks(walk.words, kThreads * kWordsAtOnce), kThreads, 0, stream,
           static_cast<const Word*>(from), static_cast<Word*>(to), walk);
    return LaunchStatus("MoveWords");
  };
}

template <typename Index>
BoxMove MakeMove(const Walk<Index>& walk, int64_t word) {
  switch (word) {
    case 1:
      return MakeMove<uint8_t>(walk);
    case 2:
      return MakeMove<uint16_t>(walk);
    case 4:
      return MakeMove<uint32_t>(walk);
    case 8:
      return MakeMove<uint2>(walk);
    default:
      return MakeMove<uint4>(walk);
  }
}

absl::Status MoveNothing(cudaStream_t, const void*, void*) { return absl::OkStatus(); }

}  // namespace

BoxMove MoveBox(const BoxCopy& box) {
  if (box.run_bytes * box.num_runs() == 0) return MoveNothing;
  const int64_t word = WordBytes(box, 0);
  return WithIndexType(box.run_bytes / word * box.num_runs(),
                       [&]<typename Index>(Index) { return MakeMove(WalkOfBox<Index>(box, word), word); });
}

BoxMove MoveBoxAndPad(const BoxCopy& box, int64_t target_bytes) {
  if (target_bytes == 0) return MoveNothing;
  const int64_t word = WordBytes(box, target_bytes);
  return WithIndexType(target_bytes / word, [&]<typename Index>(Index) {
    return MakeMove(WalkOfTarget<Index>(box, word, target_bytes), word);
  });
}

}  // namespace official::compute
