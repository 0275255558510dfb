// Shape: the sizes of a tensor's dimensions, outermost first. All sizes are known and at least 0; a scalar has rank 0.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace official::compute {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  // The size of dimension `i`; negative `i` counts from the end (-1 is the innermost).
  int64_t dim(int i) const { return dims_[i < 0 ? i + dims_.size() : i]; }
  void set_dim(int i, int64_t size) { dims_[i < 0 ? i + dims_.size() : i] = size; }
  absl::Span<const int64_t> dims() const { return dims_; }
  // The number of elements: the product of the sizes; 1 for a scalar.
  int64_t num_elements() const;
  // The product of the sizes of dimensions [begin, end).
  int64_t Product(int begin, int end) const;
  // Returns text such as "[2,3]"; a scalar is "[]".
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    return H::combine(std::move(h), s.dims_);
  }
  friend std::ostream& operator<<(std::ostream& os, const Shape& s) { return os << s.ToString(); }

 private:
  absl::InlinedVector<int64_t, 4> dims_;
};

}  // namespace official::compute
