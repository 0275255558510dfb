// OpName: what code calls an op. Each op has one constant, in the header of its family:
//
//   namespace official::compute::op {
//   inline constexpr OpName Softmax("Softmax");
//   }
//
// A name that does not exist thus does not compile, and a family that refers to another's op includes its header.
#pragma once

#include <ostream>
#include <utility>

#include "absl/strings/string_view.h"

namespace official::compute {

class OpName {
 public:
  // The text, such as a literal, must outlive all copies of the name.
  constexpr explicit OpName(const char* text) : text_(text) {}

  constexpr absl::string_view text() const { return text_; }

  // Names are compared by their texts: the CUDA shared object has constants of its own.
  friend constexpr bool operator==(OpName a, OpName b) { return a.text_ == b.text_; }
  friend constexpr bool operator<(OpName a, OpName b) { return a.text_ < b.text_; }
  template <typename H>
  friend H AbslHashValue(H h, OpName name) {
    return H::combine(std::move(h), name.text_);
  }
  friend std::ostream& operator<<(std::ostream& out, OpName name) { return out << name.text_; }

 private:
  absl::string_view text_;
};

}  // namespace official::compute
