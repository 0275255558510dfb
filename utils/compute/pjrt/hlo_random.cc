#include "utils/compute/pjrt/hlo_random.h"

#include <cstdint>
#include <vector>

namespace official::compute {
namespace {

constexpr int kRounds = 10;

// The product of ui32 values and a constant in 64 bits.
HloValue Product(HloBuilder& hlo, const HloValue& x, uint32_t factor) {
  const HloValue wide = hlo.Convert(x, hlo::kUi64);
  return hlo.Mul(wide, hlo.SplatLike(factor, wide));
}

HloValue Xor(HloBuilder& hlo, const HloValue& a, const HloValue& b) { return hlo.Binary("xor", a, b); }

}  // namespace

HloValue HloLowWord(HloBuilder& hlo, const HloValue& x) { return hlo.Convert(x, hlo::kUi32); }

HloValue HloHighWord(HloBuilder& hlo, const HloValue& x) {
  return hlo.Convert(hlo.Binary("shift_right_logical", x, hlo.SplatLike(32, x)), hlo::kUi32);
}

std::array<HloValue, 4> HloPhilox(HloBuilder& hlo, const HloValue& key, std::array<HloValue, 4> counter) {
  HloValue k0 = HloLowWord(hlo, key), k1 = HloHighWord(hlo, key);
  for (int round = 0; round < kRounds; ++round) {
    const HloValue p0 = Product(hlo, counter[0], 0xD2511F53), p1 = Product(hlo, counter[2], 0xCD9E8D57);
    counter = {Xor(hlo, Xor(hlo, HloHighWord(hlo, p1), counter[1]), k0), HloLowWord(hlo, p1),
               Xor(hlo, Xor(hlo, HloHighWord(hlo, p0), counter[3]), k1), HloLowWord(hlo, p0)};
    k0 = hlo.Add(k0, hlo.SplatLike(0x9E3779B9, k0));
    k1 = hlo.Add(k1, hlo.SplatLike(0xBB67AE85, k1));
  }
  return counter;
}

HloValue HloStack(HloBuilder& hlo, absl::Span<const HloValue> values, int dim) {
  std::vector<int64_t> dims(values[0].shape().dims().begin(), values[0].shape().dims().end());
  dims.insert(dims.begin() + dim, 1);
  std::vector<HloValue> parts;
  for (const HloValue& value : values) parts.push_back(hlo.Reshape(value, Shape(dims)));
  return hlo.Concatenate(parts, dim);
}

}  // namespace official::compute
