// Kernels of deferred_adam_cpu.cc, compiled for each instruction set: see utils/compute/cpu/foreach_isa.h.

#include "utils/compute/ops/optimizer/adam-inl.h"

// How many rows ahead they are fetched: they are far apart and in no order, so that the processor does not do so
// itself.
constexpr int64_t kAhead = 8;

// Steps without gradients of kWhole whole and kSmall small vectors of each row at once: the arithmetic of one waits for
// square roots and quotients, which the others fill.
template <int kWhole, int kSmall>
void MakeSteps(const RowPart* parts, const RowsBehind& rows, const AdamStep& rule, const float* alphas, int32_t steps) {
  const VecAdam<WholeVec> adam(rule);
  const VecAdam<SmallVec> small_adam(rule);
  Vec variable[kWhole + 1], m[kWhole + 1], v[kWhole + 1];
  SmallVec::V small_variable[kSmall + 1], small_m[kSmall + 1], small_v[kSmall + 1];
  for (int64_t k = 0; k < rows.count; ++k) {
    if (k + kAhead < rows.count) {
#pragma GCC unroll 5
      for (int i = 0; i < kWhole + kSmall; ++i) {
        const AdamState ahead = parts[i].state.At(rows.row[k + kAhead] * parts[i].width);
        for (const float* const of : {ahead.variable, ahead.m, ahead.v}) Fetch(of, 1);
      }
    }
    AdamState at[kWhole + kSmall];
#pragma GCC unroll 5
    for (int i = 0; i < kWhole + kSmall; ++i) at[i] = parts[i].state.At(rows.row[k] * parts[i].width);
#pragma GCC unroll 5
    for (int i = 0; i < kWhole; ++i) {
      variable[i] = WholeVec::Load(at[i].variable, parts[i].n);
      m[i] = WholeVec::Load(at[i].m, parts[i].n);
      v[i] = WholeVec::Load(at[i].v, parts[i].n);
    }
#pragma GCC unroll 5
    for (int i = 0; i < kSmall; ++i) {
      small_variable[i] = SmallVec::Load(at[kWhole + i].variable, parts[kWhole + i].n);
      small_m[i] = SmallVec::Load(at[kWhole + i].m, parts[kWhole + i].n);
      small_v[i] = SmallVec::Load(at[kWhole + i].v, parts[kWhole + i].n);
    }
    for (int32_t s = steps - rows.behind[k]; s < steps; ++s) {
#pragma GCC unroll 5
      for (int i = 0; i < kWhole; ++i) adam.Step(alphas[s], variable[i], m[i], v[i]);
#pragma GCC unroll 5
      for (int i = 0; i < kSmall; ++i) small_adam.Step(alphas[s], small_variable[i], small_m[i], small_v[i]);
    }
#pragma GCC unroll 5
    for (int i = 0; i < kWhole; ++i) {
      StoreFirst(at[i].variable, variable[i], parts[i].n);
      StoreFirst(at[i].m, m[i], parts[i].n);
      StoreFirst(at[i].v, v[i], parts[i].n);
    }
#pragma GCC unroll 5
    for (int i = 0; i < kSmall; ++i) {
      StoreFirst(at[kWhole + i].variable, small_variable[i], parts[kWhole + i].n);
      StoreFirst(at[kWhole + i].m, small_m[i], parts[kWhole + i].n);
      StoreFirst(at[kWhole + i].v, small_v[i], parts[kWhole + i].n);
    }
  }
}

// The sum of the gradients on the list from `position` on, from column `c`: made in the parts of the batch, as several
// devices would.
template <typename Size>
OFFICIAL_VEC_INLINE typename Size::V SumOfRows(const PositionLists& lists, const float* rows, int64_t width,
                                               int32_t position, int64_t c, int n) {
  const float* const column = rows + c;
  if (lists.next[position] < 0) return Size::Load(column + position * width, n);
  typename Size::V parts[kMaxParts];
#pragma GCC unroll 4
  for (int part = 0; part < kMaxParts; ++part) parts[part] = Size::Fill(0);
  int part = 0;
  for (int32_t p = position; p >= 0; p = lists.next[p]) {
    while (p >= lists.ends[part]) ++part;
    parts[part] = Add(parts[part], Size::Load(column + p * width, n));
  }
  if (lists.parts == 1) return parts[0];
  const typename Size::V first = Add(parts[0], parts[1]);
  return lists.parts == 2 ? first : Add(first, Add(parts[2], parts[3]));
}

template <typename Size>
OFFICIAL_VEC_INLINE void UpdatePart(const TableState& table, const PositionLists& lists, const VecAdam<Size>& adam,
                                    int64_t row, int32_t position, int64_t c, int n, float alpha, float scale) {
  typename Size::V sum = SumOfRows<Size>(lists, table.gradients, table.width, position, c, n);
  if (scale != 1) sum = Div(sum, Size::Fill(scale));
  const AdamState at = table.state.At(row * table.width + c);
  typename Size::V variable = Size::Load(at.variable, n), m = Size::Load(at.m, n), v = Size::Load(at.v, n);
  adam.Step(alpha, sum, variable, m, v);
  StoreFirst(at.variable, variable, n);
  StoreFirst(at.m, m, n);
  StoreFirst(at.v, v, n);
}

bool Apply(const Tables& tables, const OwnIds& own, const PositionLists& lists, const AdamStep& rule, float scale,
           int32_t steps) {
  const VecAdam<WholeVec> adam(rule);
  const VecAdam<SmallVec> small_adam(rule);
  bool caught_up = true;
  for (int64_t k = 0; k < own.count; ++k) {
    if (k + kAhead < own.count) {
      const int32_t ahead = own.positions[k + kAhead];
      for (int t = 0; t < tables.count; ++t) {
        const TableState& table = tables.table[t];
        const AdamState row = table.state.At(own.ids[ahead] * table.width);
        for (const float* const of : {row.variable, row.m, row.v}) Fetch(of, table.width);
        Fetch(table.gradients + ahead * table.width, table.width);
      }
    }
    const int32_t i = own.positions[k], row = own.ids[i];
    if (lists.first[row] != i) continue;
    for (int t = 0; t < tables.count; ++t) {
      const TableState& table = tables.table[t];
      caught_up &= table.made[row] == steps;
      table.made[row] = steps + 1;
      for (int64_t c = 0; c < table.width; c += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, table.width - c));
        if (n > SmallVec::kSize || SmallVec::kSize == kLanes) {
          UpdatePart(table, lists, adam, row, i, c, n, rule.alpha, scale);
        } else {
          UpdatePart(table, lists, small_adam, row, i, c, n, rule.alpha, scale);
        }
      }
    }
  }
  return caught_up;
}

constexpr DeferredKernels kDeferredKernels = {.lanes = kLanes,
                                              .make_steps = {{nullptr, &MakeSteps<0, 1>},
                                                             {&MakeSteps<1, 0>, &MakeSteps<1, 1>},
                                                             {&MakeSteps<2, 0>, &MakeSteps<2, 1>},
                                                             {&MakeSteps<3, 0>, &MakeSteps<3, 1>}},
                                              .apply = &Apply};
