// CPU kernels of deferred Adam. A thread has rows of its own, every so-manyth of each table, since the rows that many
// users chose tend to lie together.

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
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

// The positions of those ids whose rows one thread has.
struct OwnIds {
  const int32_t* ids;
  int32_t* positions;
  int64_t count;
};

// The gradients of one table's rows.
struct RowGradients {
  OwnIds own;
  const float* rows;
  int32_t *first, *next;    // lists of the positions of each id; -1 ends one
  int parts;                // of the batch: 1, 2 or 4
  int64_t ends[kMaxParts];  // of each part
};

struct DeferredKernels {
  // The steps from `made` to `steps` of a row without gradients.
  void (*make_up)(const TableState&, int64_t row, const AdamStep& rule, const float* alphas, int32_t made,
                  int32_t steps);
  // The same for the rows of these ids.
  void (*catch_up)(const TableState&, const OwnIds&, const AdamStep& rule, const float* alphas, int32_t steps);
  // One step with gradients. False if a row was not caught up.
  bool (*apply)(const TableState&, const RowGradients&, const AdamStep& rule, float scale, int32_t steps);
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

// A thread has every so-manyth row of each table, since the rows that many users chose tend to lie together; and
// kTogether of them, so that no two threads write to a cache line. `threads` is a power of two.
OwnIds FindOwn(const int32_t* ids, int64_t n, int thread, int threads, int32_t* positions) {
  constexpr int kTogether = 16;
  OwnIds own = {ids, positions, 0};
  for (int64_t i = 0; i < n; ++i) {
    positions[own.count] = static_cast<int32_t>(i);
    own.count += (ids[i] / kTogether & (threads - 1)) == thread;
  }
  return own;
}

// Threads for work on the rows of `n` ids: a power of two.
int ThreadsFor(int64_t n) {
  int threads = 1;
  while (threads * 2 <= NumThreads() && n / threads > 64) threads *= 2;
  return threads;
}

// Tables with the same ids share what is known of these. In scratch memory, in int32s.
struct Sharing {
  std::vector<int64_t> counts;
  std::vector<bool> is_first;  // of its ids
  std::vector<int64_t> at;     // of `positions` of each thread
  int64_t most = 0, size = 0;
  int threads = 1;
};

Sharing SharingOf(const KernelSpec& spec, const std::vector<Table>& tables, bool with_lists) {
  Sharing s;
  for (const Table& table : tables) {
    s.counts.push_back(spec.input(table.first + 4).shape.num_elements());
    s.most = std::max(s.most, s.counts.back());
  }
  s.threads = ThreadsFor(s.most);
  for (size_t k = 0; k < tables.size(); ++k) {
    const Value ids = spec.node.input(tables[k].first + 4);
    size_t same = 0;
    while (spec.node.input(tables[same].first + 4) != ids) ++same;
    s.is_first.push_back(same == k);
    s.at.push_back(same == k ? s.size : s.at[same]);
    if (same < k) continue;
    s.size += s.threads * s.counts[k];
    if (with_lists) s.size += tables[k].rows + s.counts[k];
  }
  return s;
}

absl::StatusOr<Kernel> MakeCatchUp(const KernelSpec& spec) {
  constexpr int kGroup = 5;
  const std::vector<Table> tables = TablesOf(spec, 2, kGroup);
  const Sharing sharing = SharingOf(spec, tables, false);
  Kernel kernel;
  kernel.scratch_bytes = sharing.size * static_cast<int64_t>(sizeof(int32_t));
  kernel.run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    const float* const alphas = args.input<float>(0);
    const int32_t steps = *args.input<int32_t>(1);
    for (size_t k = 0; k < tables.size(); ++k) {
      const int32_t* const ids = args.input<int32_t>(tables[k].first + 4);
      RETURN_IF_ERROR(CheckIds(ids, sharing.counts[k], tables[k].rows));
      std::memcpy(args.output<int32_t>(static_cast<int>(k)), ids, sharing.counts[k] * sizeof(int32_t));
    }
    ParallelFor(sharing.threads, 1, [&](int64_t first, int64_t last) {
      for (auto thread = static_cast<int>(first); thread < last; ++thread) {
        for (size_t k = 0; k < tables.size(); ++k) {
          int32_t* const positions = static_cast<int32_t*>(args.scratch) + sharing.at[k] + thread * sharing.counts[k];
          const OwnIds own = FindOwn(args.input<int32_t>(tables[k].first + 4), sharing.counts[k], thread,
                                     sharing.threads, positions);
          KernelsFor(tables[k]).catch_up(StateOf(args, tables[k]), own, rule, alphas, steps);
        }
      }
    });
    return absl::OkStatus();
  };
  return kernel;
}

// The lists of the positions of the ids.
void LinkPositions(const RowGradients& g) {
  const OwnIds& own = g.own;
  for (int64_t k = 0; k < own.count; ++k) g.first[own.ids[own.positions[k]]] = -1;
  for (int64_t k = own.count; k-- > 0;) {
    const int32_t i = own.positions[k];
    g.next[i] = std::exchange(g.first[own.ids[i]], i);
  }
}

absl::StatusOr<Kernel> MakeApply(const KernelSpec& spec) {
  constexpr int kGroup = 6;
  const bool guarded = spec.attrs().GetBool("guarded");
  const int scalars = guarded ? 5 : 3;
  const std::vector<Table> tables = TablesOf(spec, scalars + 2, kGroup);
  const auto capacity = static_cast<int32_t>(spec.input(scalars).shape.dim(0));
  const int parts = std::min(spec.node.graph().batch_parts(), kMaxParts);
  const Sharing sharing = SharingOf(spec, tables, true);
  Kernel kernel;
  kernel.scratch_bytes = sharing.size * static_cast<int64_t>(sizeof(int32_t));
  kernel.run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    if (guarded && !*args.input<bool>(4)) return absl::OkStatus();
    float* const alphas = args.variable<float>(scalars);
    int32_t& steps = *args.variable<int32_t>(scalars + 1);
    AdamStep step = rule;
    step.alpha = alphas[steps] = AdamAlpha(args);
    const float scale = guarded ? *args.input<float>(3) : 1;
    std::atomic<bool> caught_up = true;
    ParallelFor(sharing.threads, 1, [&](int64_t first_thread, int64_t last_thread) {
      for (auto thread = static_cast<int>(first_thread); thread < last_thread; ++thread) {
        for (size_t k = 0; k < tables.size(); ++k) {
          const int64_t count = sharing.counts[k];
          int32_t* const positions = static_cast<int32_t*>(args.scratch) + sharing.at[k] + thread * count;
          int32_t* const lists = static_cast<int32_t*>(args.scratch) + sharing.at[k] + sharing.threads * count;
          RowGradients g = {
              .own = FindOwn(args.input<int32_t>(tables[k].first + 4), count, thread, sharing.threads, positions),
              .rows = args.input<float>(tables[k].first + 5),
              .first = lists,
              .next = lists + tables[k].rows,
              .parts = parts,
              .ends = {}};
          for (int part = 0; part < parts; ++part) g.ends[part] = ShareOf(count, part, parts).end;
          if (sharing.is_first[k]) LinkPositions(g);
          if (!KernelsFor(tables[k]).apply(StateOf(args, tables[k]), g, step, scale, steps)) caught_up = false;
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
