#include "utils/compute/ops/elementwise/math.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "utils/compute/cpu/simd.h"

namespace official::compute {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Every 499th float from `low` to `high` (both of one sign).
std::vector<float> FloatsBetween(float low, float high) {
  std::vector<float> x;
  uint32_t first = std::bit_cast<uint32_t>(low), last = std::bit_cast<uint32_t>(high);
  if (first > last) std::swap(first, last);
  for (uint32_t bits = first; bits < last; bits += 499) x.push_back(std::bit_cast<float>(bits));
  return x;
}

// Largest error in units in the last place of the float nearest to the exact result.
template <typename F>
double LargestError(const std::vector<float>& x, F f, double (*exact)(double)) {
  std::vector<float> y(x.size());
  WithSimd([&] {
    for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
  });
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    const double unit = std::max(std::ldexp(1.0, std::ilogb(want) - 23), 0x1p-149);
    if (std::abs(want) < std::numeric_limits<float>::min()) continue;  // may be flushed to zero
    worst = std::max(worst, std::abs(y[i] - want) / unit);
  }
  return worst;
}

double ExactSigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double ExactExp(double x) { return std::exp(x); }
double ExactLog(double x) { return std::log(x); }
double ExactTanh(double x) { return std::tanh(x); }
double ExactSin(double x) { return std::sin(x); }
double ExactCos(double x) { return std::cos(x); }

TEST_CASE("The functions are exact to 2 units in the last place") {
  for (const float sign : {1.0f, -1.0f}) {
    CHECK(LargestError(FloatsBetween(sign * 1e-20f, sign * 88.7f), math::Exp(), ExactExp) < 2);
    CHECK(LargestError(FloatsBetween(sign * 1e-20f, sign * 30.0f), math::Tanh(), ExactTanh) < 2);
    CHECK(LargestError(FloatsBetween(sign * 1e-20f, sign * 87.0f), math::Sigmoid(), ExactSigmoid) < 2.5);
    CHECK(LargestError(FloatsBetween(sign * 1e-20f, sign * 1e6f), math::Sin(), ExactSin) < 2);
    CHECK(LargestError(FloatsBetween(sign * 1e-20f, sign * 1e6f), math::Cos(), ExactCos) < 2);
  }
  CHECK(LargestError(FloatsBetween(1e-45f, 3e38f), math::Log(), ExactLog) < 2);
}

// What TensorFlow 2.15 gives.
TEST_CASE("Infinity, NaN and the ends of the range") {
  CHECK(math::Exp()(kInf) == kInf);
  CHECK(math::Exp()(-kInf) == 0);
  CHECK(math::Exp()(89.0f) == kInf);
  CHECK(math::Exp()(88.7228f) < kInf);
  CHECK(math::Exp()(-104.0f) == 0);
  CHECK(math::Exp()(0.0f) == 1);
  CHECK(std::isnan(math::Exp()(kNaN)));
  CHECK(math::Log()(0.0f) == -kInf);
  CHECK(math::Log()(-0.0f) == -kInf);
  CHECK(math::Log()(kInf) == kInf);
  CHECK(math::Log()(1.0f) == 0);
  CHECK(std::isnan(math::Log()(-1.0f)));
  CHECK(std::isnan(math::Log()(-kInf)));
  CHECK(std::isnan(math::Log()(kNaN)));
  CHECK(math::Tanh()(kInf) == 1);
  CHECK(math::Tanh()(-kInf) == -1);
  CHECK(math::Tanh()(-0.0f) == 0);
  CHECK(std::isnan(math::Tanh()(kNaN)));
  CHECK(math::Sigmoid()(kInf) == 1);
  CHECK(math::Sigmoid()(-kInf) == 0);
  CHECK(math::Sigmoid()(-100.0f) == 0);
  CHECK(std::isnan(math::Sigmoid()(kNaN)));
  CHECK(std::isnan(math::Sin()(kInf)));
  CHECK(math::Sin()(1e9f) == Approx(0.5458434).epsilon(1e-6));
  CHECK(std::isnan(math::Relu()(kNaN)));
  CHECK(math::Relu()(-kInf) == 0);
  CHECK(math::ReluGrad()(1.0f, kNaN) == 0);
  CHECK(std::isnan(math::Maximum()(1.0f, kNaN)));
  CHECK(std::isnan(math::Maximum()(kNaN, 1.0f)));
  CHECK(std::isnan(math::Minimum()(1.0f, kNaN)));
  CHECK(std::isnan(math::Minimum()(kNaN, 1.0f)));
  CHECK(math::Maximum()(-kInf, 2.0f) == 2);
  CHECK(std::isnan(math::Sign()(kNaN)));
  CHECK(math::Rsqrt()(0.0f) == kInf);
  CHECK(std::isnan(math::Sqrt()(-1.0f)));
}

}  // namespace
}  // namespace official::compute
