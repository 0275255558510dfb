// Kernels of deferred_adam_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/cpu/vec-inl.h"

struct VecStep {
  Vec one_minus_beta1, one_minus_beta2, epsilon;

  explicit VecStep(const AdamStep& step)
      : one_minus_beta1(Broadcast(step.one_minus_beta1)),
        one_minus_beta2(Broadcast(step.one_minus_beta2)),
        epsilon(Broadcast(step.epsilon)) {}

  // AdamStep as it is compiled: its products go into the sums unrounded.
  OFFICIAL_VEC_INLINE void Make(float alpha, Vec g, Vec& variable, Vec& m, Vec& v) const {
    m = Fma(Sub(g, m), one_minus_beta1, m);
    v = Fma(FmaSub(g, g, v), one_minus_beta2, v);
    variable = Sub(variable, Div(Mul(m, Broadcast(alpha)), Add(Sqrt(v), epsilon)));
  }
  // The same without a gradient.
  OFFICIAL_VEC_INLINE void Make(float alpha, Vec& variable, Vec& m, Vec& v) const {
    m = NegatedFma(m, one_minus_beta1, m);
    v = NegatedFma(v, one_minus_beta2, v);
    variable = Sub(variable, Div(Mul(m, Broadcast(alpha)), Add(Sqrt(v), epsilon)));
  }
};

// Calls compute(column, n, variable, m, v) for the vectors of a row, of which n elements count.
template <typename F>
OFFICIAL_VEC_INLINE void ForRow(const TableState& table, int64_t row, F compute) {
  const int64_t at = row * table.width;
  int64_t c = 0;
  for (; c + kLanes <= table.width; c += kLanes) {
    Vec variable = Load(table.variable + at + c), m = Load(table.m + at + c), v = Load(table.v + at + c);
    compute(c, kLanes, variable, m, v);
    Store(table.variable + at + c, variable);
    Store(table.m + at + c, m);
    Store(table.v + at + c, v);
  }
  const int n = static_cast<int>(table.width - c);
  if (n == 0) return;
  Vec variable = LoadFirst(table.variable + at + c, n), m = LoadFirst(table.m + at + c, n);
  Vec v = LoadFirst(table.v + at + c, n);
  compute(c, n, variable, m, v);
  StoreFirst(table.variable + at + c, variable, n);
  StoreFirst(table.m + at + c, m, n);
  StoreFirst(table.v + at + c, v, n);
}

// How many ids ahead rows are fetched: they are far apart and in no order, so that the processor does not do so itself.
constexpr int64_t kAhead = 8;

OFFICIAL_VEC_INLINE void FetchRow(const TableState& table, int64_t row) {
  for (const float* const of : {table.variable, table.m, table.v}) Fetch(of + row * table.width, table.width);
}

void MakeUp(const TableState& table, int64_t row, const AdamStep& rule, const float* alphas, int32_t made,
            int32_t steps) {
  const VecStep step(rule);
  ForRow(table, row, [&](int64_t, int, Vec& variable, Vec& m, Vec& v) {
    for (int32_t s = made; s < steps; ++s) step.Make(alphas[s], variable, m, v);
  });
}

void CatchUp(const TableState& table, const OwnIds& own, const AdamStep& rule, const float* alphas, int32_t steps) {
  for (int64_t k = 0; k < own.count; ++k) {
    if (k + kAhead < own.count) FetchRow(table, own.ids[own.positions[k + kAhead]]);
    const int32_t row = own.ids[own.positions[k]];
    if (table.made[row] == steps) continue;
    MakeUp(table, row, rule, alphas, table.made[row], steps);
    table.made[row] = steps;
  }
}

// The sum of the gradients on the list from `position` on, from column `c`: made in the parts of the batch, as several
// devices would.
OFFICIAL_VEC_INLINE Vec SumOfRows(const RowGradients& g, int64_t width, int32_t position, int64_t c, int n) {
  const auto row = [&](int32_t p) { return LoadFirst(g.rows + p * width + c, n); };
  if (g.next[position] < 0) return row(position);
  Vec parts[kMaxParts] = {Zero(), Zero(), Zero(), Zero()};
  int part = 0;
  for (int32_t p = position; p >= 0; p = g.next[p]) {
    while (p >= g.ends[part]) ++part;
    parts[part] = Add(parts[part], row(p));
  }
  if (g.parts == 1) return parts[0];
  const Vec first = Add(parts[0], parts[1]);
  return g.parts == 2 ? first : Add(first, Add(parts[2], parts[3]));
}

bool Apply(const TableState& table, const RowGradients& g, const AdamStep& rule, float scale, int32_t steps) {
  const VecStep step(rule);
  bool caught_up = true;
  for (int64_t k = 0; k < g.own.count; ++k) {
    if (k + kAhead < g.own.count) {
      const int32_t ahead = g.own.positions[k + kAhead];
      FetchRow(table, g.own.ids[ahead]);
      Fetch(g.rows + ahead * table.width, table.width);
    }
    const int32_t i = g.own.positions[k], row = g.own.ids[i];
    if (g.first[row] != i) continue;
    caught_up &= table.made[row] == steps;
    ForRow(table, row, [&](int64_t c, int n, Vec& variable, Vec& m, Vec& v) {
      Vec sum = SumOfRows(g, table.width, i, c, n);
      if (scale != 1) sum = Div(sum, Broadcast(scale));
      step.Make(rule.alpha, sum, variable, m, v);
    });
    table.made[row] = steps + 1;
  }
  return caught_up;
}

constexpr DeferredKernels kDeferredKernels = {&MakeUp, &CatchUp, &Apply};
