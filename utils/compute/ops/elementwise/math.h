// The mathematics of the elementwise ops, each written once: plain functions of scalars that every kernel calls, fused
// or not, on the CPU and in CUDA code. bfloat16 and half are computed in float. Predicates give 1 or 0 in the type of
// their operands, so that a chain of instructions stays in one type. Integers that overflow wrap around, as in
// TensorFlow.
//
// Exp, Log, Tanh, Sigmoid, Sin and Cos have no branches and no library calls: a loop over them becomes vector code.
// Their error is at most 2 units in the last place of a float; denormal results may be flushed to zero. The
// polynomials are minimax fits of the relative error over the intervals given.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "utils/compute/core/bfloat16.h"
#include "utils/compute/core/half.h"

#ifdef __CUDACC__
#define OFFICIAL_HOST_DEVICE __host__ __device__
#else
#define OFFICIAL_HOST_DEVICE
#endif

namespace official::compute::math {

// Adding 1.5 * 2^23 to a float below 2^22 rounds it to an integer, which then lies in the low bits of the sum.
inline constexpr float kRoundToInt = 12582912.0f;

OFFICIAL_HOST_DEVICE inline int32_t BitsOf(float x) { return __builtin_bit_cast(int32_t, x); }
OFFICIAL_HOST_DEVICE inline float FloatOf(int32_t bits) { return __builtin_bit_cast(float, bits); }

// The type that T is added, subtracted and multiplied in. In C++ only unsigned integers wrap around.
template <typename T>
using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

struct Neg {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T x) const {
    return static_cast<T>(-static_cast<Wrapping<T>>(x));
  }
};

struct Abs {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return x < 0 ? Neg()(x) : x;
    } else {
      return std::abs(x);
    }
  }
};

// -1, 0 or 1; NaN stays NaN.
struct Sign {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T x) const {
    return x > T(0) ? T(1) : (x < T(0) ? T(-1) : x);
  }
};

struct Square {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T x) const {
    const auto factor = static_cast<Wrapping<T>>(x);
    return static_cast<T>(factor * factor);
  }
};

struct Sqrt {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return std::sqrt(x); }
};

struct Rsqrt {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return 1.0f / std::sqrt(x); }
};

struct Exp {
  OFFICIAL_HOST_DEVICE float operator()(float x) const {
    // exp(x) = 2^n exp(r), |r| <= ln(2) / 2.
    const float shifted = std::fma(x, 0x1.715476p+0f, kRoundToInt);
    const float n = shifted - kRoundToInt;
    float r = std::fma(n, -0x1.62e4p-1f, x);  // ln(2) in two parts, the first one short
    r = std::fma(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.6a243ap-10f;
    p = std::fma(p, r, 0x1.1239e0p-7f);
    p = std::fma(p, r, 0x1.5558f2p-5f);
    p = std::fma(p, r, 0x1.555492p-3f);
    p = std::fma(p, r, 0x1.fffffcp-2f);
    p = std::fma(p * r, r, r) + 1.0f;
    // n is added to the exponent as an unsigned number, since the sum overflows for an x out of range.
    const uint32_t bits = static_cast<uint32_t>(BitsOf(p)) + (static_cast<uint32_t>(BitsOf(shifted)) << 23);
    float y = FloatOf(static_cast<int32_t>(bits));
    y = x > 0x1.62e42ep+6f ? std::numeric_limits<float>::infinity() : y;  // 88.72
    y = x < -0x1.5d589ep+6f ? 0.0f : y;                                   // -87.34: below, results are denormal
    return x == x ? y : x;
  }
};

struct Log {
  OFFICIAL_HOST_DEVICE float operator()(float x) const {
    // x = 2^n (1 + f), 1 + f in [sqrt(1/2), sqrt(2)]. A denormal x is scaled up first.
    const bool tiny = x < std::numeric_limits<float>::min();
    const float scaled = tiny ? x * 0x1p23f : x;
    // Subtract the bits of sqrt(1/2); as unsigned numbers, since those of -0 would overflow.
    const auto above = static_cast<int32_t>(static_cast<uint32_t>(BitsOf(scaled)) - 0x3f3504f3u);
    const int32_t exponent = above >> 23;
    const float n = static_cast<float>(exponent) - (tiny ? 23.0f : 0.0f);
    const float f = FloatOf((above & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float p = 0x1.146c3ap-4f;
    p = std::fma(p, f, -0x1.de4d88p-4f);
    p = std::fma(p, f, 0x1.e6f104p-4f);
    p = std::fma(p, f, -0x1.fc1f58p-4f);
    p = std::fma(p, f, 0x1.233730p-3f);
    p = std::fma(p, f, -0x1.555c5ep-3f);
    p = std::fma(p, f, 0x1.99a4b8p-3f);
    p = std::fma(p, f, -0x1.000006p-2f);
    p = std::fma(p, f, 0x1.555548p-2f);
    const float square = f * f;
    p = std::fma(square * f, p, n * 0x1.7f7d1cp-20f);
    p = std::fma(square, -0.5f, p);
    float y = std::fma(n, 0x1.62e4p-1f, p + f);
    y = x == 0.0f || scaled == 0.0f ? -std::numeric_limits<float>::infinity() : y;
    y = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : y;
    return x < std::numeric_limits<float>::infinity() ? y : x;  // infinity and NaN
  }
};

struct Tanh {
  OFFICIAL_HOST_DEVICE float operator()(float x) const {
    const float a = std::abs(x);
    // Below 0.625 this is a polynomial; above, 1 - 2 / (exp(2a) + 1) cancels no more than a bit.
    const float z = x * x;
    float p = -0x1.75e1cep-8f;
    p = std::fma(p, z, 0x1.52269cp-6f);
    p = std::fma(p, z, -0x1.b83c5ap-5f);
    p = std::fma(p, z, 0x1.110726p-3f);
    p = std::fma(p, z, -0x1.555532p-2f);
    const float small = std::fma(p * z, x, x);
    const float large = std::copysign(1.0f - 2.0f / (Exp()(2.0f * a) + 1.0f), x);
    return a < 0.625f ? small : large;
  }
};

struct Sigmoid {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return 1.0f / (1.0f + Exp()(-x)); }
};

struct Relu {
  // NaN stays NaN, as in TensorFlow.
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};

// sin(x + quadrants * pi / 2). The reduction is done in double, so it is exact enough for |x| up to 2^30.
OFFICIAL_HOST_DEVICE inline float SinFrom(float x, int quadrants) {
  const double shift = 0x1.8p52;  // the double for kRoundToInt
  const double shifted = std::fma(static_cast<double>(x), 0x1.45f306dc9c883p-1, shift);
  const double n = shifted - shift;
  double reduced = std::fma(n, -0x1.921fb54442d18p+0, static_cast<double>(x));
  reduced = std::fma(n, -0x1.1a62633145c07p-54, reduced);
  const int64_t quadrant = __builtin_bit_cast(int64_t, shifted) + quadrants;
  const float r = static_cast<float>(reduced);
  const float z = r * r;
  float s = -0x1.993f6ep-13f;
  s = std::fma(s, z, 0x1.11072ep-7f);
  s = std::fma(s, z, -0x1.555546p-3f);
  s = std::fma(s * z, r, r);
  float c = 0x1.99e78ap-16f;
  c = std::fma(c, z, -0x1.6c0c26p-10f);
  c = std::fma(c, z, 0x1.55554ap-5f);
  c = std::fma(c * z, z, std::fma(z, -0.5f, 1.0f));
  const float y = (quadrant & 1) != 0 ? c : s;
  return (quadrant & 2) != 0 ? -y : y;
}

struct Sin {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return SinFrom(x, 0); }
};

struct Cos {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return SinFrom(x, 1); }
};

struct LogicalNot {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T x) const {
    return T(x == T(0));
  }
};

// Stores a float as bfloat16 and reads it again.
struct RoundToBFloat16 {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return static_cast<float>(BFloat16(x)); }
};

struct RoundToHalf {
  OFFICIAL_HOST_DEVICE float operator()(float x) const { return static_cast<float>(Half(x)); }
};

struct Add {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};

struct Sub {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};

struct Mul {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};

struct Div {
  OFFICIAL_HOST_DEVICE float operator()(float a, float b) const { return a / b; }
};

// The result is NaN if one operand is, as in TensorFlow.
struct Maximum {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    const T larger = a < b ? b : a;  // `a` if either is NaN
    return b == b ? larger : b;
  }
};

struct Minimum {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    const T smaller = b < a ? b : a;
    return b == b ? smaller : b;
  }
};

struct Pow {
  OFFICIAL_HOST_DEVICE float operator()(float a, float b) const { return std::pow(a, b); }
};

struct SquaredDifference {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return Square()(Sub()(a, b));
  }
};

struct Equal {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a == b);
  }
};

struct NotEqual {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a != b);
  }
};

struct Less {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a < b);
  }
};

struct LessEqual {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a <= b);
  }
};

struct Greater {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a > b);
  }
};

struct GreaterEqual {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a >= b);
  }
};

struct LogicalAnd {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a != T(0) && b != T(0));
  }
};

struct LogicalOr {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T a, T b) const {
    return T(a != T(0) || b != T(0));
  }
};

// Returns dy if y = Relu(x) is positive, else 0.
struct ReluGrad {
  OFFICIAL_HOST_DEVICE float operator()(float dy, float y) const { return y > 0.0f ? dy : 0.0f; }
};

// dy * (1 - y^2), y = Tanh(x)
struct TanhGrad {
  OFFICIAL_HOST_DEVICE float operator()(float y, float dy) const { return dy * std::fma(-y, y, 1.0f); }
};

// dy * y * (1 - y), y = Sigmoid(x)
struct SigmoidGrad {
  OFFICIAL_HOST_DEVICE float operator()(float y, float dy) const { return dy * y * (1.0f - y); }
};

struct Select {
  template <typename T>
  OFFICIAL_HOST_DEVICE T operator()(T condition, T if_true, T if_false) const {
    return condition != T(0) ? if_true : if_false;
  }
};

template <int n>
using Arity = std::integral_constant<int, n>;

// Calls f(name, functor, arity) for each functor that is defined for T: all for float, fewer for integers. Every device
// makes its table of instructions from this list.
template <typename T, typename F>
constexpr void ForEachFunctor(F&& f) {
  f("Neg", Neg(), Arity<1>());
  f("Abs", Abs(), Arity<1>());
  f("Sign", Sign(), Arity<1>());
  f("Square", Square(), Arity<1>());
  f("Add", Add(), Arity<2>());
  f("Sub", Sub(), Arity<2>());
  f("Mul", Mul(), Arity<2>());
  f("Maximum", Maximum(), Arity<2>());
  f("Minimum", Minimum(), Arity<2>());
  f("SquaredDifference", SquaredDifference(), Arity<2>());
  f("Equal", Equal(), Arity<2>());
  f("NotEqual", NotEqual(), Arity<2>());
  f("Less", Less(), Arity<2>());
  f("LessEqual", LessEqual(), Arity<2>());
  f("Greater", Greater(), Arity<2>());
  f("GreaterEqual", GreaterEqual(), Arity<2>());
  f("Select", Select(), Arity<3>());
  if constexpr (!std::is_integral_v<T>) {
    f("Sqrt", Sqrt(), Arity<1>());
    f("Rsqrt", Rsqrt(), Arity<1>());
    f("Exp", Exp(), Arity<1>());
    f("Log", Log(), Arity<1>());
    f("Tanh", Tanh(), Arity<1>());
    f("Sigmoid", Sigmoid(), Arity<1>());
    f("Relu", Relu(), Arity<1>());
    f("Sin", Sin(), Arity<1>());
    f("Cos", Cos(), Arity<1>());
    f("LogicalNot", LogicalNot(), Arity<1>());
    f("RoundToBFloat16", RoundToBFloat16(), Arity<1>());
    f("RoundToHalf", RoundToHalf(), Arity<1>());
    f("Div", Div(), Arity<2>());
    f("Pow", Pow(), Arity<2>());
    f("LogicalAnd", LogicalAnd(), Arity<2>());
    f("LogicalOr", LogicalOr(), Arity<2>());
    f("ReluGrad", ReluGrad(), Arity<2>());
    f("TanhGrad", TanhGrad(), Arity<2>());
    f("SigmoidGrad", SigmoidGrad(), Arity<2>());
  }
}

}  // namespace official::compute::math
