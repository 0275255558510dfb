// Plans of the ops that only move elements, for the kernels of all devices.
#pragma once

#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute {

// The types of kernels that only move bytes.
std::vector<DType> AllTypes();

// A dimension of the elements to be moved, with its strides in the source and in the destination.
struct MoveDim {
  int64_t size;
  int64_t from, to;
};

// A box of elements that is copied from one array into another, in runs of bytes that are contiguous in both.
struct BoxCopy {
  int64_t from_begin, to_begin;
  int64_t run_bytes;
  std::vector<MoveDim> dims;  // dimensions of the runs, outermost first; strides in bytes

  int64_t num_runs() const;
};

// The boxes that a Concat, Slice or Pad node copies: one for each input.
std::vector<BoxCopy> BoxCopiesOf(const Node& node);

// The dimensions of the output of a Transpose, outermost first, those that stay neighbours merged and those of size 1
// left out; at least one. Strides are in elements.
std::vector<MoveDim> TransposeDims(const Node& node);

}  // namespace official::compute
