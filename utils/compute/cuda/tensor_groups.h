// Many tensors in one launch: groups of kGroup tensors of one size, cut into pieces, one for each block.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {

// The groups of one launch: a kernel argument; all of them together may have 32,764 bytes. T is void where the types of
// a group's tensors differ.
template <int kGroup, typename T = float>
struct TensorGroups {
  static constexpr int kMaxGroups = 256;
  static constexpr int kPiece = 2048;  // elements per block

  int first_number = 0;  // the index of the first group among those of all launches
  int num_groups = 0;
  int first_block[kMaxGroups + 1] = {0};  // first block of each group, and the end
  int64_t sizes[kMaxGroups];
  T* tensors[kMaxGroups][kGroup];

  int num_blocks() const { return first_block[num_groups]; }
  bool is_full() const { return num_groups == kMaxGroups; }
  // Adds a group of tensors with so many elements each, and returns its number.
  int Add(int64_t size) {
    const int group = num_groups++;
    sizes[group] = size;
    first_block[group + 1] = first_block[group] + static_cast<int>((size + kPiece - 1) / kPiece);
    return group;
  }

  struct Piece {
    int group;
    int64_t begin, end;  // elements
  };
  __device__ Piece PieceOf(int block) const {
    // Finds the last group that begins at this block or before, and has elements.
    int low = 0, high = num_groups;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    const int64_t begin = static_cast<int64_t>(block - first_block[low]) * kPiece;
    return {low, begin, begin + kPiece < sizes[low] ? begin + kPiece : sizes[low]};
  }
};

// The inputs of a node from `first` on, all of them float32, in as many launches as they need.
template <int kGroup>
class TensorLaunches {
 public:
  TensorLaunches(const KernelSpec& spec, int first) : first_(first) {
    for (int i = first; i < spec.node.num_inputs(); i += kGroup) {
      if (launches_->empty() || launches_->back().is_full()) {
        launches_->emplace_back();
        launches_->back().first_number = (i - first) / kGroup;
      }
      launches_->back().Add(spec.input(i).shape.num_elements());
    }
  }

  // Calls launch(groups), which returns a Status, for each launch that has elements.
  template <typename F>
  absl::Status ForEach(const KernelArgs& args, F launch) const {
    int next = first_;
    for (TensorGroups<kGroup>& groups : *launches_) {
      for (int g = 0; g < groups.num_groups; ++g) {
        for (int k = 0; k < kGroup; ++k) groups.tensors[g][k] = args.variable<float>(next++);
      }
      if (groups.num_blocks() > 0) RETURN_IF_ERROR(launch(groups));
    }
    return absl::OkStatus();
  }

 private:
  int first_;
  // This is shared, since the function of a Kernel must be copyable; one program uses it.
  std::shared_ptr<std::vector<TensorGroups<kGroup>>> launches_ = std::make_shared<std::vector<TensorGroups<kGroup>>>();
};

}  // namespace official::compute
