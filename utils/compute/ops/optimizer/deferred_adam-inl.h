// Kernels of deferred_adam_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/ops/optimizer/adam-inl.h"

// The number of rows between a prefetch and its use: the rows are far apart and in no order, so that the processor does
// not prefetch them itself.
constexpr int64_t kAhead = 8;

// The same columns of a row of the table and of its moments, in registers.
template <typename Size>
struct RowVec {
  typename Size::V variable, m, v;

  OFFICIAL_VEC_INLINE void Load(const AdamState& from, int n) {
    variable = Size::Load(from.variable, n);
    m = Size::Load(from.m, n);
    v = Size::Load(from.v, n);
  }
  OFFICIAL_VEC_INLINE void Store(const AdamState& to, int n) const {
    StoreFirst(to.variable, variable, n);
    StoreFirst(to.m, m, n);
    StoreFirst(to.v, v, n);
  }
};

OFFICIAL_VEC_INLINE void FetchPart(const RowPart& part, int64_t row) {
  const AdamState ahead = part.state.At(row * part.width);
  for (const float* const of : {ahead.variable, ahead.m, ahead.v}) Fetch(of, 1);
}

// All vectors of one row.
template <int kWhole, int kSmall>
struct RowVecs {
  RowVec<WholeVec> whole[kWhole + 1];
  RowVec<SmallVec> small[kSmall + 1];

  OFFICIAL_VEC_INLINE void Load(const RowPart* parts, int64_t row) {
#pragma GCC unroll 5
    for (int i = 0; i < kWhole; ++i) whole[i].Load(parts[i].state.At(row * parts[i].width), parts[i].n);
    parts += kWhole;
#pragma GCC unroll 5
    for (int i = 0; i < kSmall; ++i) small[i].Load(parts[i].state.At(row * parts[i].width), parts[i].n);
  }
  OFFICIAL_VEC_INLINE void Store(const RowPart* parts, int64_t row) const {
#pragma GCC unroll 5
    for (int i = 0; i < kWhole; ++i) whole[i].Store(parts[i].state.At(row * parts[i].width), parts[i].n);
    parts += kWhole;
#pragma GCC unroll 5
    for (int i = 0; i < kSmall; ++i) small[i].Store(parts[i].state.At(row * parts[i].width), parts[i].n);
  }
  OFFICIAL_VEC_INLINE void StepWhole(const VecAdam<WholeVec>& adam, float alpha) {
#pragma GCC unroll 5
    for (int i = 0; i < kWhole; ++i) adam.Step(alpha, whole[i].variable, whole[i].m, whole[i].v);
  }
  OFFICIAL_VEC_INLINE void StepSmall(const VecAdam<SmallVec>& adam, float alpha) {
#pragma GCC unroll 5
    for (int i = 0; i < kSmall; ++i) adam.Step(alpha, small[i].variable, small[i].m, small[i].v);
  }
};

#if OFFICIAL_ISA_AVX512
OFFICIAL_VEC_INLINE RowVec<WholeVec> Join(const RowVec<SmallVec>& a, const RowVec<SmallVec>& b) {
  return {Join(a.variable, b.variable), Join(a.m, b.m), Join(a.v, b.v)};
}
OFFICIAL_VEC_INLINE void Split(const RowVec<WholeVec>& both, RowVec<SmallVec>& a, RowVec<SmallVec>& b) {
  a = {LowerHalf(both.variable), LowerHalf(both.m), LowerHalf(both.v)};
  b = {UpperHalf(both.variable), UpperHalf(both.m), UpperHalf(both.v)};
}
#endif

// Makes steps without gradients of kWhole whole and kSmall small vectors of each row at once: the arithmetic of the
// others fills the time in which one waits for square roots and quotients.
template <int kWhole, int kSmall>
void MakeSteps(const RowPart* parts, const RowsBehind& rows, const AdamStep& rule, const float* alphas, int32_t steps) {
  const VecAdam<WholeVec> adam(rule);
  const VecAdam<SmallVec> small_adam(rule);
  const auto fetch = [=](int64_t k) {
    if (k >= rows.count) return;
#pragma GCC unroll 5
    for (int i = 0; i < kWhole + kSmall; ++i) FetchPart(parts[i], rows.row[k]);
  };
  RowVecs<kWhole, kSmall> row;
  int64_t k = 0;
#if OFFICIAL_ISA_AVX512
  // A small vector's square root takes as long as a whole one's: two rows share it for the steps that both make.
  if constexpr (kSmall == 1) {
    RowVecs<kWhole, kSmall> next;
    for (; k + 1 < rows.count; k += 2) {
      fetch(k + kAhead);
      fetch(k + kAhead + 1);
      const int64_t more = rows.behind[k] < rows.behind[k + 1] ? k + 1 : k, less = 2 * k + 1 - more;
      row.Load(parts, rows.row[more]);
      next.Load(parts, rows.row[less]);
      int32_t s = steps - rows.behind[more];
      for (const int32_t both = steps - rows.behind[less]; s < both; ++s) {
        row.StepWhole(adam, alphas[s]);
        row.StepSmall(small_adam, alphas[s]);
      }
      RowVec<WholeVec> small = Join(row.small[0], next.small[0]);
      for (; s < steps; ++s) {
        row.StepWhole(adam, alphas[s]);
        next.StepWhole(adam, alphas[s]);
        adam.Step(alphas[s], small.variable, small.m, small.v);
      }
      Split(small, row.small[0], next.small[0]);
      row.Store(parts, rows.row[more]);
      next.Store(parts, rows.row[less]);
    }
  }
#endif
  for (; k < rows.count; ++k) {
    fetch(k + kAhead);
    row.Load(parts, rows.row[k]);
    for (int32_t s = steps - rows.behind[k]; s < steps; ++s) {
      row.StepWhole(adam, alphas[s]);
      row.StepSmall(small_adam, alphas[s]);
    }
    row.Store(parts, rows.row[k]);
  }
}

// The sum of the gradients of all positions of a row, made in the parts of the batch, as several devices would.
template <typename Size>
OFFICIAL_VEC_INLINE typename Size::V SumOfGradients(const RowPart& part, const RowGradients& g, int32_t position) {
  if (g.next[position] < 0) return Size::Load(part.gradients + position * part.width, part.n);
  typename Size::V sums[kMaxParts];
#pragma GCC unroll 4
  for (int i = 0; i < kMaxParts; ++i) sums[i] = Size::Fill(0);
  int i = 0;
  for (int32_t p = position; p >= 0; p = g.next[p]) {
    while (p >= g.ends[i]) ++i;
    sums[i] = Add(sums[i], Size::Load(part.gradients + p * part.width, part.n));
  }
  if (g.parts == 1) return sums[0];
  const typename Size::V first = Add(sums[0], sums[1]);
  return g.parts == 2 ? first : Add(first, Add(sums[2], sums[3]));
}

template <typename Size>
OFFICIAL_VEC_INLINE void UpdatePart(const RowPart& part, const RowGradients& g, int64_t row, int32_t position,
                                    const VecAdam<Size>& adam, float alpha) {
  typename Size::V sum = SumOfGradients<Size>(part, g, position);
  if (g.scale != 1) sum = Div(sum, Size::Fill(g.scale));
  if (g.limit != kNoClip) sum = Size::Clip(sum, g.limit);
  const AdamState at = part.state.At(row * part.width);
  RowVec<Size> vec;
  vec.Load(at, part.n);
  adam.Step(alpha, sum, vec.variable, vec.m, vec.v);
  vec.Store(at, part.n);
}

// Makes a step with gradients of kWhole whole and kSmall small vectors of each row.
template <int kWhole, int kSmall>
void Update(const RowPart* parts, const RowGradients& g, const AdamStep& rule) {
  constexpr int kParts = kWhole + kSmall;
  const VecAdam<WholeVec> adam(rule);
  const VecAdam<SmallVec> small_adam(rule);
  for (int64_t k = 0; k < g.count; ++k) {
    if (k + kAhead < g.count) {
#pragma GCC unroll 5
      for (int i = 0; i < kParts; ++i) {
        FetchPart(parts[i], g.row[k + kAhead]);
        Fetch(parts[i].gradients + g.position[k + kAhead] * parts[i].width, 1);
      }
    }
#pragma GCC unroll 5
    for (int i = 0; i < kWhole; ++i) UpdatePart(parts[i], g, g.row[k], g.position[k], adam, rule.alpha);
#pragma GCC unroll 5
    for (int i = kWhole; i < kParts; ++i) UpdatePart(parts[i], g, g.row[k], g.position[k], small_adam, rule.alpha);
  }
}

constexpr DeferredKernels kDeferredKernels = {.lanes = kLanes,
                                              .make_steps = {{nullptr, &MakeSteps<0, 1>},
                                                             {&MakeSteps<1, 0>, &MakeSteps<1, 1>},
                                                             {&MakeSteps<2, 0>, &MakeSteps<2, 1>},
                                                             {&MakeSteps<3, 0>, &MakeSteps<3, 1>}},
                                              .update = {{nullptr, &Update<0, 1>},
                                                         {&Update<1, 0>, &Update<1, 1>},
                                                         {&Update<2, 0>, &Update<2, 1>},
                                                         {&Update<3, 0>, &Update<3, 1>}}};
