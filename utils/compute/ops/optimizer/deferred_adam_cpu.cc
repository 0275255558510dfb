// CPU kernels of deferred Adam. A thread has rows of its own, every so-manyth of each table, since the rows that many
// users chose tend to lie together.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/optimizer/adam_step.h"
#include "utils/compute/runtime/kernel.h"

namespace official::compute {
namespace {

constexpr int kChunk = 16;  // elements of a row that are computed together
constexpr int kMaxParts = 4;

// A table and its state: inputs `first`, ....
struct Table {
  int first;
  int64_t rows, width;
};

Table TableAt(const KernelSpec& spec, int first) {
  const Shape& shape = spec.input(first).shape;
  return {first, shape.dim(0), shape.Product(1, shape.rank())};
}

std::vector<Table> TablesOf(const KernelSpec& spec, int first, int group) {
  std::vector<Table> tables;
  for (int i = first; i < spec.node.num_inputs(); i += group) tables.push_back(TableAt(spec, i));
  return tables;
}

struct Elements {
  float variable[kChunk], m[kChunk], v[kChunk];
};

// One row of a table, chunk by chunk: calls compute(elements, column) for each.
template <typename F>
inline void UpdateRow(const KernelArgs& args, const Table& table, int64_t row, F compute) {
  float* const variable = args.variable<float>(table.first) + row * table.width;
  float* const m = args.variable<float>(table.first + 1) + row * table.width;
  float* const v = args.variable<float>(table.first + 2) + row * table.width;
  int64_t c = 0;
  for (; c + kChunk <= table.width; c += kChunk) {
    Elements e;
    for (int i = 0; i < kChunk; ++i) e.variable[i] = variable[c + i], e.m[i] = m[c + i], e.v[i] = v[c + i];
    compute(e, c, kChunk);
    for (int i = 0; i < kChunk; ++i) variable[c + i] = e.variable[i], m[c + i] = e.m[i], v[c + i] = e.v[i];
  }
  if (c == table.width) return;
  const int n = static_cast<int>(table.width - c);
  Elements e = {};
  for (int i = 0; i < n; ++i) e.variable[i] = variable[c + i], e.m[i] = m[c + i], e.v[i] = v[c + i];
  compute(e, c, n);
  for (int i = 0; i < n; ++i) variable[c + i] = e.variable[i], m[c + i] = e.m[i], v[c + i] = e.v[i];
}

inline void StepAll(const AdamStep& step, Elements& e, const float* g) {
  for (int i = 0; i < kChunk; ++i) step(e.variable[i], e.m[i], e.v[i], g[i]);
}

// The steps from `made` to `steps` of a row without gradients.
inline void MakeUp(const KernelArgs& args, const Table& table, int64_t row, const AdamStep& rule, const float* alphas,
                   int32_t made, int32_t steps) {
  UpdateRow(args, table, row, [=](Elements& e, int64_t, int) {
    AdamStep step = rule;
    const float none[kChunk] = {};
    for (int32_t s = made; s < steps; ++s) {
      step.alpha = alphas[s];
      StepAll(step, e, none);
    }
  });
}

void SettleTables(const KernelArgs& args, const std::vector<Table>& tables, const AdamStep& rule, const float* alphas,
                  int32_t steps) {
  for (const Table& table : tables) {
    int32_t* const made = args.variable<int32_t>(table.first + 3);
    ParallelFor(table.rows, 256, [&](int64_t begin, int64_t end) {
      WithSimd([&] {
        for (int64_t row = begin; row < end; ++row) {
          if (made[row] < steps) MakeUp(args, table, row, rule, alphas, made[row], steps);
          made[row] = 0;
        }
      });
    });
  }
}

absl::Status CheckIds(const int32_t* ids, int64_t n, int64_t rows) {
  bool inside = true;
  for (int64_t i = 0; i < n; ++i) inside &= static_cast<uint32_t>(ids[i]) < static_cast<uint64_t>(rows);
  if (inside) return absl::OkStatus();
  const int64_t bad = std::find_if(ids, ids + n, [&](int32_t id) { return id < 0 || id >= rows; }) - ids;
  return absl::InvalidArgumentError(absl::StrCat("id ", ids[bad], " at position ", bad, " is outside [0, ", rows, ")"));
}

// Threads for work on the rows of `n` ids.
int64_t ThreadsFor(int64_t n) { return std::clamp<int64_t>(n / 64, 1, NumThreads()); }

absl::StatusOr<Kernel> MakeCatchUp(const KernelSpec& spec) {
  constexpr int kGroup = 5;
  const std::vector<Table> tables = TablesOf(spec, 2, kGroup);
  std::vector<int64_t> counts;
  for (const Table& table : tables) counts.push_back(spec.input(table.first + 4).shape.num_elements());
  const int64_t threads = ThreadsFor(*std::max_element(counts.begin(), counts.end()));
  return Kernel{[=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    const float* const alphas = args.input<float>(0);
    const int32_t steps = *args.input<int32_t>(1);
    for (size_t k = 0; k < tables.size(); ++k) {
      const int32_t* const ids = args.input<int32_t>(tables[k].first + 4);
      RETURN_IF_ERROR(CheckIds(ids, counts[k], tables[k].rows));
      std::memcpy(args.output<int32_t>(static_cast<int>(k)), ids, counts[k] * sizeof(int32_t));
    }
    ParallelFor(threads, 1, [&](int64_t first, int64_t last) {
      WithSimd([&] {
        for (size_t k = 0; k < tables.size(); ++k) {
          const Table table = tables[k];
          const int32_t* const ids = args.input<int32_t>(table.first + 4);
          int32_t* const made = args.variable<int32_t>(table.first + 3);
          for (int64_t i = 0; i < counts[k]; ++i) {
            const int32_t row = ids[i];
            const int64_t owner = row % threads;
            if (owner < first || owner >= last || made[row] == steps) continue;
            MakeUp(args, table, row, rule, alphas, made[row], steps);
            made[row] = steps;
          }
        }
      });
    });
    return absl::OkStatus();
  }};
}

// The gradients of one table's rows.
struct RowGradients {
  const int32_t* ids;
  const float* rows;
  int64_t count;
  int32_t *first, *next;    // lists of the positions of each id; -1 ends one
  int parts;                // of the batch
  int64_t ends[kMaxParts];  // of each part
};

// The sum of the rows on the list from `position` on, `n` elements from column `c`: made in the parts of the batch, as
// several devices would.
inline void SumRows(const RowGradients& g, int64_t width, int32_t position, int64_t c, int n, float* sum) {
  if (g.next[position] < 0) {
    for (int i = 0; i < n; ++i) sum[i] = g.rows[position * width + c + i];
    return;
  }
  float parts[kMaxParts][kChunk] = {};
  int part = 0;
  for (int32_t p = position; p >= 0; p = g.next[p]) {
    while (p >= g.ends[part]) ++part;
    const float* const row = g.rows + p * width + c;
    for (int i = 0; i < n; ++i) parts[part][i] += row[i];
  }
  for (int i = 0; i < kChunk; ++i) sum[i] = TreeSum(0, g.parts, [&](int64_t k) { return parts[k][i]; });
}

absl::StatusOr<Kernel> MakeApply(const KernelSpec& spec) {
  constexpr int kGroup = 6;
  const bool guarded = spec.attrs().GetBool("guarded");
  const int scalars = guarded ? 5 : 3;
  const std::vector<Table> tables = TablesOf(spec, scalars + 2, kGroup);
  const auto capacity = static_cast<int32_t>(spec.input(scalars).shape.dim(0));
  const int parts = std::min(spec.node.graph().batch_parts(), kMaxParts);
  std::vector<int64_t> counts, lists_at;
  int64_t scratch = 0, most = 0;
  for (const Table& table : tables) {
    counts.push_back(spec.input(table.first + 4).shape.num_elements());
    most = std::max(most, counts.back());
    lists_at.push_back(scratch);
    scratch += table.rows + counts.back();
  }
  const int64_t threads = ThreadsFor(most);
  Kernel kernel;
  kernel.scratch_bytes = scratch * static_cast<int64_t>(sizeof(int32_t));
  kernel.run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    if (guarded && !*args.input<bool>(4)) return absl::OkStatus();
    float* const alphas = args.variable<float>(scalars);
    int32_t& steps = *args.variable<int32_t>(scalars + 1);
    AdamStep step = rule;
    step.alpha = alphas[steps] = AdamAlpha(args);
    const float scale = guarded ? *args.input<float>(3) : 1;
    std::atomic<bool> caught_up = true;
    ParallelFor(threads, 1, [&](int64_t first_owner, int64_t last_owner) {
      for (size_t k = 0; k < tables.size(); ++k) {
        const Table table = tables[k];
        int32_t* const made = args.variable<int32_t>(table.first + 3);
        int32_t* const first = static_cast<int32_t*>(args.scratch) + lists_at[k];
        RowGradients g = {.ids = args.input<int32_t>(table.first + 4),
                          .rows = args.input<float>(table.first + 5),
                          .count = counts[k],
                          .first = first,
                          .next = first + table.rows,
                          .parts = parts,
                          .ends = {}};
        for (int part = 0; part < parts; ++part) g.ends[part] = ShareOf(g.count, part, parts).end;
        const auto owned = [&](int32_t row) { return row % threads >= first_owner && row % threads < last_owner; };
        for (int64_t i = 0; i < g.count; ++i) {
          if (owned(g.ids[i])) g.first[g.ids[i]] = -1;
        }
        for (int64_t i = g.count; i-- > 0;) {
          if (!owned(g.ids[i])) continue;
          g.next[i] = g.first[g.ids[i]];
          g.first[g.ids[i]] = static_cast<int32_t>(i);
        }
        WithSimd([&, table, g] {
          for (int64_t i = 0; i < g.count; ++i) {
            const int32_t row = g.ids[i];
            if (!owned(row) || g.first[row] != i) continue;
            if (made[row] != steps) caught_up = false;
            UpdateRow(args, table, row, [&](Elements& e, int64_t c, int n) {
              float sum[kChunk] = {};
              SumRows(g, table.width, static_cast<int32_t>(i), c, n, sum);
              for (int j = 0; j < kChunk; ++j) sum[j] /= scale;
              StepAll(step, e, sum);
            });
            made[row] = steps + 1;
          }
        });
      }
    });
    if (!caught_up) return absl::InternalError("rows are updated that were not caught up");
    if (++steps < capacity) return absl::OkStatus();
    SettleTables(args, tables, rule, alphas, steps);
    steps = 0;
    return absl::OkStatus();
  };
  return kernel;
}

absl::StatusOr<Kernel> MakeSettle(const KernelSpec& spec) {
  return Kernel{[tables = TablesOf(spec, 2, 4), rule = AdamStepOf(spec.attrs())](const KernelArgs& args) {
    int32_t& steps = *args.variable<int32_t>(1);
    SettleTables(args, tables, rule, args.input<float>(0), steps);
    steps = 0;
    return absl::OkStatus();
  }};
}

bool Register(const char* op, KernelFactory make) {
  return RegisterKernel({.op = op, .device_kind = "cpu", .dtypes = {DType::kFloat32}, .make = std::move(make)});
}

const bool registered = Register("CatchUpRows", MakeCatchUp) && Register("ApplyDeferredAdam", MakeApply) &&
                        Register("SettleRows", MakeSettle);

}  // namespace
}  // namespace official::compute
