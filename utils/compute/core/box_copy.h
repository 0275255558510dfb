// Boxes of elements that are copied from one array into another.
#pragma once

#include <cstdint>
#include <vector>

#include "utils/compute/core/shape.h"

namespace official::compute {

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

// Where a box lies in an array: `begin` is its first element.
struct BoxPlace {
  Shape array;
  std::vector<int64_t> begin;
};

// The copy of a box of this shape from one array to another, all of one rank and of elements of this size.
BoxCopy MakeBoxCopy(const Shape& box, const BoxPlace& from, const BoxPlace& to, int64_t element_bytes);

// Adds a dimension inside the others, to the last of them if the two are one on both sides.
void AddDim(std::vector<MoveDim>& dims, const MoveDim& dim);

}  // namespace official::compute
