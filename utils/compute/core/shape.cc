#include "utils/compute/core/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::compute {

int64_t Shape::num_elements() const { return Product(0, rank()); }

int64_t Shape::Product(int begin, int end) const {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= dims_[i];
  return n;
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(dims_, ","), "]"); }

}  // namespace official::compute
