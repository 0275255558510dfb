// CPU kernels of deferred Adam. A thread has rows of its own, and first makes a list of those that the step reads: to
// ask for each id whose it is would cost more than most of the arithmetic, since no processor can guess the answer.

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
constexpr int kMaxTables = 4;  // of a group

struct TableState {
  AdamState state;
  int32_t* made;  // of the deferred steps, by row
  int64_t width;
  const float* gradients = nullptr;  // a row for each id
};

// Tables of which a step reads the same rows.
struct Tables {
  TableState table[kMaxTables];
  int count = 0;
};

// The positions of those ids whose rows one thread has.
struct OwnIds {
  const int32_t* ids;
  int32_t* positions;
  int64_t count;
};

// Lists of the positions of each id; -1 ends one.
struct PositionLists {
  int32_t *first, *next;    // by row and by position
  int parts;                // of the batch: 1, 2 or 4
  int64_t ends[kMaxParts];  // of each part
};

// n columns of a table, which fit one vector.
struct RowPart {
  AdamState state;  // of row 0
  int64_t width;
  int n;
};

// Rows and how many steps each has yet to make.
struct RowsBehind {
  int32_t *row, *behind;
  int64_t count = 0;
  bool are_even = true;  // all tables of a group have made as many of each row
};

constexpr int kMaxWhole = 3, kMaxSmall = 1;  // vectors that find room in the registers

struct DeferredKernels {
  int lanes;  // of a whole vector; a small one has half as many
  // The steps up to `steps` of parts of rows, first the whole ones, then the small ones, without gradients.
  void (*make_steps[kMaxWhole + 1][kMaxSmall + 1])(const RowPart* parts, const RowsBehind&, const AdamStep& rule,
                                                   const float* alphas, int32_t steps);
  // One step with gradients. False if a row was not caught up.
  bool (*apply)(const Tables&, const OwnIds&, const PositionLists&, const AdamStep& rule, float scale, int32_t steps);
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/optimizer/deferred_adam-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const DeferredKernels& Kernels() { return HasAvx512() ? avx512::kDeferredKernels : avx2::kDeferredKernels; }

// A table: its state is the inputs from `first` on.
struct Table {
  int first;
  int64_t rows, width;
};

// Parts of rows that make their steps together.
struct Vectors {
  struct Place {
    size_t table;
    int64_t column;
    int n;
  };
  std::vector<Place> whole, small;
};

std::vector<Vectors> VectorsOf(const std::vector<Table>& tables) {
  const int lanes = Kernels().lanes;
  std::vector<Vectors> all(1);
  for (size_t t = 0; t < tables.size(); ++t) {
    for (int64_t c = 0; c < tables[t].width; c += lanes) {
      const int n = static_cast<int>(std::min<int64_t>(lanes, tables[t].width - c));
      if (n > lanes / 2) {
        if (all.back().whole.size() == kMaxWhole) all.emplace_back();
        all.back().whole.push_back({t, c, n});
      } else {
        if (all.back().small.size() == kMaxSmall) all.emplace_back();
        all.back().small.push_back({t, c, n});
      }
    }
  }
  return all;
}

// Tables with the same ids, of which there are `count`.
struct Group {
  std::vector<Table> tables;
  int64_t count = 0;
  int64_t scratch_at = 0;  // int32s: OwnIds and RowsBehind of each thread, then PositionLists
  std::vector<Vectors> vectors = {};

  // Of a node whose tables have their gradients, if any, behind the ids.
  Tables Of(const KernelArgs& args, bool with_gradients) const {
    Tables state;
    for (const auto& [first, rows, width] : tables) {
      state.table[state.count++] = {
          .state = {args.variable<float>(first), args.variable<float>(first + 1), args.variable<float>(first + 2)},
          .made = args.variable<int32_t>(first + 3),
          .width = width,
          .gradients = with_gradients ? args.input<float>(first + 5) : nullptr};
    }
    return state;
  }
  const int32_t* Ids(const KernelArgs& args) const { return args.input<int32_t>(tables[0].first + 4); }

  void MakeSteps(const Tables& state, const RowsBehind& behind, const AdamStep& rule, const float* alphas,
                 int32_t steps) const {
    for (const Vectors& v : vectors) {
      RowPart parts[kMaxWhole + kMaxSmall];
      int count = 0;
      for (const auto* places : {&v.whole, &v.small}) {
        for (const auto& [t, column, n] : *places) {
          parts[count++] = {state.table[t].state.At(column), state.table[t].width, n};
        }
      }
      if (count > 0) Kernels().make_steps[v.whole.size()][v.small.size()](parts, behind, rule, alphas, steps);
    }
  }
};

constexpr int64_t kListsOfThread = 3;

// All tables of a node, and how its work is divided.
struct Division {
  std::vector<Group> groups;
  int threads = 1;  // a power of two
  int64_t scratch = 0;

  int64_t scratch_bytes() const { return scratch * static_cast<int64_t>(sizeof(int32_t)); }
};

Table TableAt(const KernelSpec& spec, int input) {
  const Shape& shape = spec.input(input).shape;
  return {input, shape.dim(0), shape.Product(1, shape.rank())};
}

Division DivisionOf(const KernelSpec& spec, int first, int inputs_of_table) {
  Division d;
  const auto ids = [&](int table) { return spec.node.input(table + 4); };
  int64_t most = 0;
  for (int i = first; i < spec.node.num_inputs(); i += inputs_of_table) {
    const auto same = std::find_if(d.groups.begin(), d.groups.end(), [&](const Group& g) {
      return ids(g.tables[0].first) == ids(i) && g.tables.size() < kMaxTables;
    });
    Group& group = same != d.groups.end() ? *same : d.groups.emplace_back();
    group.tables.push_back(TableAt(spec, i));
    group.count = ids(i).shape().num_elements();
    most = std::max(most, group.count);
  }
  while (d.threads * 2 <= NumThreads() && most / d.threads > 64) d.threads *= 2;
  for (Group& group : d.groups) {
    group.vectors = VectorsOf(group.tables);
    group.scratch_at = d.scratch;
    d.scratch += kListsOfThread * d.threads * group.count + group.tables[0].rows + group.count;
  }
  return d;
}

// Calls f(thread) for each, in parallel.
template <typename F>
void ForThreads(const Division& division, F f) {
  ParallelFor(division.threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) f(static_cast<int>(thread));
  });
}

int32_t* ListsOf(const KernelArgs& args, const Group& group, int thread) {
  return static_cast<int32_t*>(args.scratch) + group.scratch_at + kListsOfThread * thread * group.count;
}

// A thread has every so-manyth row, since the rows that many users chose tend to lie together; and kTogether of them,
// so that no two threads write to a cache line.
OwnIds FindOwn(const KernelArgs& args, const Group& group, int thread, int threads) {
  constexpr uint32_t kTogether = 16;
  OwnIds own = {group.Ids(args), ListsOf(args, group, thread), 0};
  for (int64_t i = 0; i < group.count; ++i) {
    own.positions[own.count] = static_cast<int32_t>(i);
    own.count += static_cast<int>(static_cast<uint32_t>(own.ids[i]) / kTogether & (threads - 1)) == thread;
  }
  return own;
}

// Adds the row unless it is up to date, and notes that it is from now on.
void AddBehind(const Tables& tables, int32_t row, int32_t steps, RowsBehind& rows) {
  rows.row[rows.count] = row;
  rows.behind[rows.count] = steps - tables.table[0].made[row];
  for (int t = 0; t < tables.count; ++t) {
    rows.are_even &= tables.table[t].made[row] == steps - rows.behind[rows.count];
    tables.table[t].made[row] = steps;
  }
  rows.count += rows.behind[rows.count] > 0;
}

PositionLists ListPositions(const KernelArgs& args, const Group& group, const OwnIds& own, int threads, int parts) {
  PositionLists lists;
  lists.first = ListsOf(args, group, threads);
  lists.next = lists.first + group.tables[0].rows;
  lists.parts = parts;
  for (int part = 0; part < parts; ++part) lists.ends[part] = ShareOf(group.count, part, parts).end;
  for (int64_t k = 0; k < own.count; ++k) lists.first[own.ids[own.positions[k]]] = -1;
  for (int64_t k = own.count; k-- > 0;) {
    const int32_t i = own.positions[k];
    lists.next[i] = std::exchange(lists.first[own.ids[i]], i);
  }
  return lists;
}

// Brings all rows up to date, from where steps count anew.
void SettleGroups(const KernelArgs& args, const std::vector<Group>& groups, const AdamStep& rule, const float* alphas,
                  int32_t& steps) {
  constexpr int64_t kBlock = 256;
  for (const Group& group : groups) {
    const Tables tables = group.Of(args, false);
    const int64_t num_rows = group.tables[0].rows;
    ParallelFor((num_rows + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
      int32_t row[kBlock], behind[kBlock];
      for (int64_t first = begin * kBlock; first < std::min(end * kBlock, num_rows); first += kBlock) {
        RowsBehind rows = {row, behind};
        const int64_t last = std::min(first + kBlock, num_rows);
        for (int64_t r = first; r < last; ++r) AddBehind(tables, static_cast<int32_t>(r), steps, rows);
        group.MakeSteps(tables, rows, rule, alphas, steps);
        for (int t = 0; t < tables.count; ++t) std::fill(tables.table[t].made + first, tables.table[t].made + last, 0);
      }
    });
  }
  steps = 0;
}

absl::Status CheckIds(const int32_t* ids, int64_t n, int64_t rows) {
  bool inside = true;
  for (int64_t i = 0; i < n; ++i) inside &= static_cast<uint32_t>(ids[i]) < static_cast<uint64_t>(rows);
  if (inside) return absl::OkStatus();
  const int64_t bad = std::find_if(ids, ids + n, [&](int32_t id) { return id < 0 || id >= rows; }) - ids;
  return absl::InvalidArgumentError(absl::StrCat("id ", ids[bad], " at position ", bad, " is outside [0, ", rows, ")"));
}

absl::StatusOr<Kernel> MakeCatchUp(const KernelSpec& spec) {
  constexpr int kFirst = 2, kInputs = 5;
  const Division division = DivisionOf(spec, kFirst, kInputs);
  const auto run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    const float* const alphas = args.input<float>(0);
    const int32_t steps = *args.input<int32_t>(1);
    for (const Group& group : division.groups) {
      for (const Table& table : group.tables) {
        RETURN_IF_ERROR(CheckIds(group.Ids(args), group.count, table.rows));
        std::copy_n(group.Ids(args), group.count, args.output<int32_t>((table.first - kFirst) / kInputs));
      }
    }
    std::atomic<bool> are_even = true;
    ForThreads(division, [&](int thread) {
      for (const Group& group : division.groups) {
        const Tables tables = group.Of(args, false);
        const OwnIds own = FindOwn(args, group, thread, division.threads);
        int32_t* const row = own.positions + group.count;
        RowsBehind rows = {row, row + group.count};
        for (int64_t k = 0; k < own.count; ++k) AddBehind(tables, own.ids[own.positions[k]], steps, rows);
        group.MakeSteps(tables, rows, rule, alphas, steps);
        if (!rows.are_even) are_even = false;
      }
    });
    if (!are_even) return absl::InternalError("tables with the same ids have made different numbers of steps");
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = division.scratch_bytes()};
}

absl::StatusOr<Kernel> MakeApply(const KernelSpec& spec) {
  const bool guarded = spec.attrs().GetBool("guarded");
  const int scalars = guarded ? 5 : 3;
  const Division division = DivisionOf(spec, scalars + 2, 6);
  const auto capacity = static_cast<int32_t>(spec.input(scalars).shape.dim(0));
  const int parts = std::min(spec.node.graph().batch_parts(), kMaxParts);
  const auto run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    if (guarded && !*args.input<bool>(4)) return absl::OkStatus();
    float* const alphas = args.variable<float>(scalars);
    int32_t& steps = *args.variable<int32_t>(scalars + 1);
    AdamStep step = rule;
    step.alpha = alphas[steps] = AdamAlpha(args);
    const float scale = guarded ? *args.input<float>(3) : 1;
    std::atomic<bool> caught_up = true;
    ForThreads(division, [&](int thread) {
      for (const Group& group : division.groups) {
        const OwnIds own = FindOwn(args, group, thread, division.threads);
        const PositionLists lists = ListPositions(args, group, own, division.threads, parts);
        if (!Kernels().apply(group.Of(args, true), own, lists, step, scale, steps)) caught_up = false;
      }
    });
    if (!caught_up) return absl::InternalError("rows are updated that were not caught up");
    if (++steps == capacity) SettleGroups(args, division.groups, rule, alphas, steps);
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = division.scratch_bytes()};
}

absl::StatusOr<Kernel> MakeSettle(const KernelSpec& spec) {
  std::vector<Group> groups;
  for (int i = 2; i < spec.node.num_inputs(); i += 4) {
    groups.push_back({.tables = {TableAt(spec, i)}});
    groups.back().vectors = VectorsOf(groups.back().tables);
  }
  return Kernel{[groups, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) {
    SettleGroups(args, groups, rule, args.input<float>(0), *args.variable<int32_t>(1));
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
