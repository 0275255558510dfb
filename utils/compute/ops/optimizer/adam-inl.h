// Adam on vectors, in one arithmetic for all CPU kernels whose results must be the same to the bit. It is compiled for
// each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/vec-inl.h"

// Access to the first n elements of a whole vector or, if the instruction set has it, of half a vector.
struct WholeVec {
  using V = Vec;
  static constexpr int kSize = kLanes;
  static OFFICIAL_VEC_INLINE V Load(const float* p, int n) { return LoadFirst(p, n); }
  static OFFICIAL_VEC_INLINE V Fill(float x) { return Broadcast(x); }
  static OFFICIAL_VEC_INLINE V Clip(V g, float limit) {
    g = Select(Greater(g, Fill(limit)), Fill(limit), g);
    return Select(Greater(Fill(-limit), g), Fill(-limit), g);
  }
};
#if OFFICIAL_ISA_AVX512
struct SmallVec {
  using V = HalfVec;
  static constexpr int kSize = kLanes / 2;
  static OFFICIAL_VEC_INLINE V Load(const float* p, int n) { return _mm256_maskz_loadu_ps((1u << n) - 1, p); }
  static OFFICIAL_VEC_INLINE V Fill(float x) { return _mm256_set1_ps(x); }
  static OFFICIAL_VEC_INLINE V Clip(V g, float limit) {
    return _mm256_max_ps(Fill(-limit), _mm256_min_ps(Fill(limit), g));
  }
};
#else
using SmallVec = WholeVec;
#endif

// AdamStep on vectors of one of these sizes.
template <typename Size>
class VecAdam {
 public:
  using V = typename Size::V;

  explicit OFFICIAL_VEC_INLINE VecAdam(const AdamStep& step)
      : one_minus_beta1_(Size::Fill(step.one_minus_beta1)),
        one_minus_beta2_(Size::Fill(step.one_minus_beta2)),
        epsilon_(Size::Fill(step.epsilon)) {}

  OFFICIAL_VEC_INLINE void Step(float alpha, V g, V& variable, V& m, V& v) const {
    m = Fma(Sub(g, m), one_minus_beta1_, m);
    v = Fma(FmaSub(g, g, v), one_minus_beta2_, v);
    Move(alpha, variable, m, v);
  }
  // The same with a gradient of zero.
  OFFICIAL_VEC_INLINE void Step(float alpha, V& variable, V& m, V& v) const {
    m = NegatedFma(m, one_minus_beta1_, m);
    v = NegatedFma(v, one_minus_beta2_, v);
    Move(alpha, variable, m, v);
  }

 private:
  OFFICIAL_VEC_INLINE void Move(float alpha, V& variable, V m, V v) const {
    variable = Sub(variable, Quotient(Mul(m, Size::Fill(alpha)), Add(Sqrt(v), epsilon_)));
  }

  V one_minus_beta1_, one_minus_beta2_, epsilon_;
};

// Makes a step of n elements, whose gradient is gradient / scale, clipped into [-limit, limit].
inline void AdamOfElements(const AdamState& state, const float* gradient, int64_t n, const AdamStep& rule, float scale,
                           float limit) {
  const VecAdam<WholeVec> adam(rule);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int part = static_cast<int>(std::min<int64_t>(kLanes, n - i));
    Vec variable = LoadFirst(state.variable + i, part), m = LoadFirst(state.m + i, part);
    Vec v = LoadFirst(state.v + i, part), g = LoadFirst(gradient + i, part);
    if (scale != 1) g = Div(g, Broadcast(scale));
    if (limit != kNoClip) g = WholeVec::Clip(g, limit);
    adam.Step(rule.alpha, g, variable, m, v);
    StoreFirst(state.variable + i, variable, part);
    StoreFirst(state.m + i, m, part);
    StoreFirst(state.v + i, v, part);
  }
}
