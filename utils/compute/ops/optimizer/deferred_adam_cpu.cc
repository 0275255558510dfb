// CPU kernels of deferred Adam. A thread has rows of its own, every so-manyth of each table, since the rows that many
// users chose tend to lie together.

#include <immintrin.h>

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

constexpr int kMaxParts = 4;

// A table and its state: inputs `first`, ....
struct Table {
  int first;
  int64_t rows, width;
};

std::vector<Table> TablesOf(const KernelSpec& spec, int first, int group) {
  std::vector<Table> tables;
  for (int i = first; i < spec.node.num_inputs(); i += group) {
    const Shape& shape = spec.input(i).shape;
    tables.push_back({i, shape.dim(0), shape.Product(1, shape.rank())});
  }
  return tables;
}

struct TableState {
  float *variable, *m, *v;
  int32_t* made;  // of the deferred steps, by row
  int64_t width;
};

TableState StateOf(const KernelArgs& args, const Table& table) {
  return {args.variable<float>(table.first), args.variable<float>(table.first + 1),
          args.variable<float>(table.first + 2), args.variable<int32_t>(table.first + 3), table.width};
}

// The rows of one thread of a power of two.
struct Owner {
  int32_t mask, thread;
  bool Has(int32_t row) const { return (row & mask) == thread; }
};

// The gradients of one table's rows.
struct RowGradients {
  const int32_t* ids;
  const float* rows;
  int64_t count;
  int32_t *first, *next;    // lists of the positions of each id; -1 ends one
  int parts;                // of the batch: 1, 2 or 4
  int64_t ends[kMaxParts];  // of each part
};

struct DeferredKernels {
  // The steps from `made` to `steps` of a row without gradients.
  void (*make_up)(const TableState&, int64_t row, const AdamStep& rule, const float* alphas, int32_t made,
                  int32_t steps);
  // The same for those of the rows `ids` that the owner has.
  void (*catch_up)(const TableState&, const int32_t* ids, int64_t count, const Owner&, const AdamStep& rule,
                   const float* alphas, int32_t steps);
  // One step with gradients. False if a row was not caught up.
  bool (*apply)(const TableState&, const RowGradients&, const Owner&, const AdamStep& rule, float scale, int32_t steps);
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/optimizer/deferred_adam-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

// A row that fills no vector of AVX-512 takes half the time in one of AVX2.
const DeferredKernels& KernelsFor(const Table& table) {
  return HasAvx512() && table.width > 8 ? avx512::kDeferredKernels : avx2::kDeferredKernels;
}

void SettleTables(const KernelArgs& args, const std::vector<Table>& tables, const AdamStep& rule, const float* alphas,
                  int32_t steps) {
  for (const Table& table : tables) {
    const TableState state = StateOf(args, table);
    ParallelFor(table.rows, 256, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        KernelsFor(table).make_up(state, row, rule, alphas, state.made[row], steps);
        state.made[row] = 0;
      }
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

// Threads for work on the rows of `n` ids: a power of two.
int ThreadsFor(int64_t n) {
  int threads = 1;
  while (threads * 2 <= NumThreads() && n / threads > 64) threads *= 2;
  return threads;
}

absl::StatusOr<Kernel> MakeCatchUp(const KernelSpec& spec) {
  constexpr int kGroup = 5;
  const std::vector<Table> tables = TablesOf(spec, 2, kGroup);
  std::vector<int64_t> counts;
  for (const Table& table : tables) counts.push_back(spec.input(table.first + 4).shape.num_elements());
  const int threads = ThreadsFor(*std::max_element(counts.begin(), counts.end()));
  return Kernel{[=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    const float* const alphas = args.input<float>(0);
    const int32_t steps = *args.input<int32_t>(1);
    for (size_t k = 0; k < tables.size(); ++k) {
      const int32_t* const ids = args.input<int32_t>(tables[k].first + 4);
      RETURN_IF_ERROR(CheckIds(ids, counts[k], tables[k].rows));
      std::memcpy(args.output<int32_t>(static_cast<int>(k)), ids, counts[k] * sizeof(int32_t));
    }
    ParallelFor(threads, 1, [&](int64_t first, int64_t last) {
      for (auto thread = static_cast<int32_t>(first); thread < last; ++thread) {
        for (size_t k = 0; k < tables.size(); ++k) {
          KernelsFor(tables[k]).catch_up(StateOf(args, tables[k]), args.input<int32_t>(tables[k].first + 4), counts[k],
                                         {threads - 1, thread}, rule, alphas, steps);
        }
      }
    });
    return absl::OkStatus();
  }};
}

// The lists of the positions of the owner's ids.
void LinkPositions(const RowGradients& g, const Owner& owner) {
  for (int64_t i = 0; i < g.count; ++i) {
    if (owner.Has(g.ids[i])) g.first[g.ids[i]] = -1;
  }
  for (int64_t i = g.count; i-- > 0;) {
    if (!owner.Has(g.ids[i])) continue;
    g.next[i] = g.first[g.ids[i]];
    g.first[g.ids[i]] = static_cast<int32_t>(i);
  }
}

absl::StatusOr<Kernel> MakeApply(const KernelSpec& spec) {
  constexpr int kGroup = 6;
  const bool guarded = spec.attrs().GetBool("guarded");
  const int scalars = guarded ? 5 : 3;
  const std::vector<Table> tables = TablesOf(spec, scalars + 2, kGroup);
  const auto capacity = static_cast<int32_t>(spec.input(scalars).shape.dim(0));
  const int parts = std::min(spec.node.graph().batch_parts(), kMaxParts);
  // Tables with the same ids share their lists.
  std::vector<int64_t> counts, lists_at;
  std::vector<bool> links;
  int64_t scratch = 0, most = 0;
  for (size_t k = 0; k < tables.size(); ++k) {
    const Value ids = spec.node.input(tables[k].first + 4);
    counts.push_back(ids.shape().num_elements());
    most = std::max(most, counts.back());
    size_t same = 0;
    while (spec.node.input(tables[same].first + 4) != ids) ++same;
    links.push_back(same == k);
    lists_at.push_back(same == k ? scratch : lists_at[same]);
    if (same == k) scratch += tables[k].rows + counts[k];
  }
  const int threads = ThreadsFor(most);
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
    ParallelFor(threads, 1, [&](int64_t first_thread, int64_t last_thread) {
      for (auto thread = static_cast<int32_t>(first_thread); thread < last_thread; ++thread) {
        const Owner owner = {threads - 1, thread};
        for (size_t k = 0; k < tables.size(); ++k) {
          int32_t* const lists = static_cast<int32_t*>(args.scratch) + lists_at[k];
          RowGradients g = {.ids = args.input<int32_t>(tables[k].first + 4),
                            .rows = args.input<float>(tables[k].first + 5),
                            .count = counts[k],
                            .first = lists,
                            .next = lists + tables[k].rows,
                            .parts = parts,
                            .ends = {}};
          for (int part = 0; part < parts; ++part) g.ends[part] = ShareOf(g.count, part, parts).end;
          if (links[k]) LinkPositions(g, owner);
          if (!KernelsFor(tables[k]).apply(StateOf(args, tables[k]), g, owner, step, scale, steps)) caught_up = false;
        }
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
