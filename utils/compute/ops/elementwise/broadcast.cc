#include "utils/compute/ops/elementwise/broadcast.h"

#include <algorithm>

namespace official::compute {

int64_t Broadcast::period() const {
  int64_t period = dims[0].stride == 0 ? 1 : dims[0].size;
  for (size_t i = 1; i < dims.size(); ++i) period *= dims[i].size;
  return std::max<int64_t>(1, period);  // there may be no elements
}

int64_t Broadcast::Offset(int64_t i) const {
  int64_t offset = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    offset += i % dims[d].size * dims[d].stride;
    i /= dims[d].size;
  }
  return offset;
}

int64_t Broadcast::RepeatedTogether(int64_t i) const {
  if (dims.size() == 1) return 1;
  const Dim& outer = dims[dims.size() - 2];
  return outer.size - i / dims.back().size % outer.size;
}

Broadcast MakeBroadcast(const Shape& input, const Shape& output) {
  Broadcast result;
  int64_t stride = 1;
  for (int i = 1; i <= output.rank(); ++i) {  // from the innermost dimension out
    const int64_t size = output.dim(-i);
    const bool repeated = i > input.rank() || (input.dim(-i) == 1 && size != 1);
    const Broadcast::Dim dim{size, repeated ? 0 : stride};
    if (!repeated) stride *= size;
    if (size == 1) continue;
    if (!result.dims.empty() && dim.stride == result.dims.back().stride * (repeated ? 1 : result.dims.back().size)) {
      result.dims.back().size *= size;
    } else {
      result.dims.push_back(dim);
    }
  }
  if (result.dims.empty()) result.dims.push_back({1, 1});
  std::reverse(result.dims.begin(), result.dims.end());
  return result;
}

}  // namespace official::compute
