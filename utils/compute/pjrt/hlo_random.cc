#include "utils/compute/pjrt/hlo_random.h"

#include <cstdint>
#include <vector>

namespace official::compute {
namespace {

constexpr int kRounds = 10;

struct Words {
  HloValue low, high;
};

// The product of ui32 values and a constant in 64 bits; where the device has no such integers, from those of their
// halves.
Words Product(HloBuilder& hlo, const HloValue& x, uint32_t factor) {
  if (hlo.options().has_64_bits) {
    const HloValue wide = hlo.Convert(x, hlo::kUi64), product = hlo.Mul(wide, hlo.SplatLike(factor, wide));
    return {HloLowWord(hlo, product), HloHighWord(hlo, product)};
  }
  const auto splat = [&](uint32_t value) { return hlo.SplatLike(value, x); };
  const auto low = [&](const HloValue& v) { return hlo.Binary("and", v, splat(0xFFFF)); };
  const auto high = [&](const HloValue& v) { return hlo.Binary("shift_right_logical", v, splat(16)); };
  const HloValue x_low = low(x), x_high = high(x), f_low = splat(factor & 0xFFFF), f_high = splat(factor >> 16);
  const HloValue a = hlo.Add(hlo.Mul(x_high, f_low), high(hlo.Mul(x_low, f_low)));
  const HloValue b = hlo.Add(hlo.Mul(x_low, f_high), low(a));
  return {hlo.Mul(x, splat(factor)), hlo.Add(hlo.Add(hlo.Mul(x_high, f_high), high(a)), high(b))};
}

HloValue Xor(HloBuilder& hlo, const HloValue& a, const HloValue& b) { return hlo.Binary("xor", a, b); }

}  // namespace

HloValue HloLowWord(HloBuilder& hlo, const HloValue& x) { return hlo.Convert(x, hlo::kUi32); }

HloValue HloHighWord(HloBuilder& hlo, const HloValue& x) {
  return hlo.Convert(hlo.Binary("shift_right_logical", x, hlo.SplatLike(32, x)), hlo::kUi32);
}

std::array<HloValue, 4> HloPhilox(HloBuilder& hlo, const std::array<HloValue, 2>& key,
                                  std::array<HloValue, 4> counter) {
  HloValue k0 = key[0], k1 = key[1];
  for (int round = 0; round < kRounds; ++round) {
    const Words p0 = Product(hlo, counter[0], 0xD2511F53), p1 = Product(hlo, counter[2], 0xCD9E8D57);
    counter = {Xor(hlo, Xor(hlo, p1.high, counter[1]), k0), p1.low,  //
               Xor(hlo, Xor(hlo, p0.high, counter[3]), k1), p0.low};
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
