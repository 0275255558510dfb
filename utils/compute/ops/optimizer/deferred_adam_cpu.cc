// CPU kernels of deferred Adam. A thread has rows of its own, and first makes a list of those that the step reads: to
// ask for each id whose it is would cost more than most of the arithmetic, since no processor can guess the answer.

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/check_ids.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/optimizer/adam_step.h"
#include "utils/compute/ops/optimizer/clip.h"
#include "utils/compute/ops/optimizer/deferred_adam.h"

namespace official::compute {
namespace {

constexpr int kMaxParts = 4;                 // of the batch
constexpr int kMaxWhole = 3, kMaxSmall = 1;  // vectors that find room in the registers

// n columns of a table, which fit one vector.
struct RowPart {
  AdamState state;  // of row 0
  int64_t width;
  const float* gradients;  // of the first id; nullptr if there are none
  int n;
};

// Rows and how many steps each has yet to make. It takes the least time where neighbours have as many.
struct RowsBehind {
  int32_t *row, *behind;
  int64_t count;
};

// Rows, where each has its first gradient, and for each gradient where the row has its next; -1 if it has none.
struct RowGradients {
  int32_t *row, *position;
  int64_t count;
  int32_t* next;
  int parts;                // of the batch: 1, 2 or 4
  int64_t ends[kMaxParts];  // of each part
  float scale;              // to be taken off
  float limit;              // of the magnitude of an element
};

using MakeStepsFunction = void (*)(const RowPart* parts, const RowsBehind&, const AdamStep& rule, const float* alphas,
                                   int32_t steps);
using UpdateFunction = void (*)(const RowPart* parts, const RowGradients&, const AdamStep& rule);

// For each number of whole and of small vectors, in this order in `parts`.
struct DeferredKernels {
  int lanes;  // of a whole vector; a small one has half as many
  // The steps up to `steps` without gradients.
  MakeStepsFunction make_steps[kMaxWhole + 1][kMaxSmall + 1];
  // One step with gradients.
  UpdateFunction update[kMaxWhole + 1][kMaxSmall + 1];
};

#define OFFICIAL_ISA_FILE "utils/compute/ops/optimizer/deferred_adam-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

const DeferredKernels& Kernels() { return HasAvx512() ? avx512::kDeferredKernels : avx2::kDeferredKernels; }

// A table: its group is the inputs from `first` on.
struct Table {
  int first;
  int64_t rows, width;
};

// Vectors of a row that are computed together.
struct Vectors {
  struct Place {
    Table table;
    int64_t column;
    int n;
  };
  std::vector<Place> whole, small;
};

std::vector<Vectors> VectorsOf(const std::vector<Table>& tables) {
  const int lanes = Kernels().lanes;
  std::vector<Vectors> all(1);
  for (const Table& table : tables) {
    for (int64_t c = 0; c < table.width; c += lanes) {
      const int n = static_cast<int>(std::min<int64_t>(lanes, table.width - c));
      const bool is_whole = n > lanes / 2;
      if (is_whole ? all.back().whole.size() == kMaxWhole : all.back().small.size() == kMaxSmall) all.emplace_back();
      (is_whole ? all.back().whole : all.back().small).push_back({table, c, n});
    }
  }
  return all;
}

// Tables with the same ids, of which there are `count`.
struct Group {
  std::vector<Table> tables;
  std::vector<Vectors> vectors;
  int64_t count = 0;
  int64_t scratch_at = 0;  // int32s: lists for each thread, then the first position of each row and the next of each id

  const int32_t* Ids(const KernelArgs& args) const {
    return args.input<int32_t>(tables[0].first + deferred_adam::kIds);
  }

  // Of the deferred steps, the table's rows.
  static int32_t* Made(const KernelArgs& args, const Table& table) {
    return args.variable<int32_t>(table.first + deferred_adam::kMade);
  }
  // Sets it for a row of all tables; whether each was `before`.
  bool SetMade(const KernelArgs& args, int32_t row, int32_t before, int32_t now) const {
    bool same = true;
    for (const Table& table : tables) same &= std::exchange(Made(args, table)[row], now) == before;
    return same;
  }

  // Calls f(whole, small, parts) for all vectors of the rows.
  template <typename F>
  void ForVectors(const KernelArgs& args, bool with_gradients, F f) const {
    for (const Vectors& v : vectors) {
      RowPart parts[kMaxWhole + kMaxSmall];
      RowPart* part = parts;
      for (const auto* places : {&v.whole, &v.small}) {
        for (const auto& [table, column, n] : *places) {
          const int i = table.first;
          const AdamState state = {args.variable<float>(i + deferred_adam::kTable),
                                   args.variable<float>(i + deferred_adam::kM),
                                   args.variable<float>(i + deferred_adam::kV)};
          const float* const gradients =
              with_gradients ? args.input<float>(i + deferred_adam::kRows) + column : nullptr;
          *part++ = {state.At(column), table.width, gradients, n};
        }
      }
      if (part > parts) f(v.whole.size(), v.small.size(), parts);
    }
  }
  void MakeSteps(const KernelArgs& args, const RowsBehind& rows, const AdamStep& rule, const float* alphas,
                 int32_t steps) const {
    ForVectors(args, false, [&](size_t whole, size_t small, const RowPart* parts) {
      Kernels().make_steps[whole][small](parts, rows, rule, alphas, steps);
    });
  }
};

Group GroupOf(std::vector<Table> tables) {
  Group group;
  group.vectors = VectorsOf(tables);
  group.tables = std::move(tables);
  return group;
}

constexpr int64_t kListsOfThread = 4;

// All tables of a node, and how its work is divided.
struct Division {
  std::vector<Group> groups;
  int threads = 1;  // a power of two
  int64_t scratch = 0;

  int64_t scratch_bytes() const { return scratch * static_cast<int64_t>(sizeof(int32_t)); }
};

Table TableAt(const KernelSpec& spec, int first) {
  const Shape& shape = spec.input(first + deferred_adam::kTable).shape;
  return {first, shape.dim(0), shape.Product(1, shape.rank())};
}

// The groups are the inputs from `first` on, of `group_size` each.
Division DivisionOf(const KernelSpec& spec, int first, int group_size) {
  Division d;
  const auto ids = [&](int table) { return spec.node.input(table + deferred_adam::kIds); };
  int64_t most = 0;
  for (int i = first; i < spec.node.num_inputs(); i += group_size) {
    const auto same = std::find_if(d.groups.begin(), d.groups.end(),
                                   [&](const Group& g) { return ids(g.tables[0].first) == ids(i); });
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

// The positions of those ids whose rows one thread has.
struct OwnIds {
  const int32_t* ids;
  int32_t* positions;
  int64_t count = 0;
  int32_t* others;  // memory for three times as many
};

int32_t* ListsOf(const KernelArgs& args, const Group& group, int thread) {
  return static_cast<int32_t*>(args.scratch) + group.scratch_at + kListsOfThread * thread * group.count;
}

// A thread has every so-manyth row, since the rows that many users chose tend to lie together; and kTogether of them,
// so that no two threads write to a cache line.
OwnIds FindOwn(const KernelArgs& args, const Group& group, int thread, int threads) {
  constexpr uint32_t kTogether = 16;
  int32_t* const lists = ListsOf(args, group, thread);
  OwnIds own = {.ids = group.Ids(args), .positions = lists, .others = lists + group.count};
  for (int64_t i = 0; i < group.count; ++i) {
    own.positions[own.count] = static_cast<int32_t>(i);
    own.count += static_cast<int>(static_cast<uint32_t>(own.ids[i]) / kTogether & (threads - 1)) == thread;
  }
  return own;
}

// By how many steps they have yet to make, as far as these are less than kMost.
RowsBehind Sort(const RowsBehind& rows, int32_t* row, int32_t* behind) {
  constexpr int32_t kMost = 63;
  const auto bucket = [&](int64_t k) { return std::min(rows.behind[k], kMost); };
  int32_t begin[kMost + 2] = {};
  for (int64_t k = 0; k < rows.count; ++k) ++begin[bucket(k) + 1];
  std::partial_sum(begin, begin + kMost + 2, begin);
  for (int64_t k = 0; k < rows.count; ++k) {
    const int32_t to = begin[bucket(k)]++;
    row[to] = rows.row[k];
    behind[to] = rows.behind[k];
  }
  return {row, behind, rows.count};
}

// Brings the rows up to date. False if those of one row have made different numbers of steps.
bool CatchUp(const KernelArgs& args, const Group& group, const OwnIds& own, const AdamStep& rule, const float* alphas,
             int32_t steps) {
  RowsBehind rows = {own.others, own.others + group.count, 0};
  const int32_t* const made = Group::Made(args, group.tables[0]);
  bool are_even = true;
  for (int64_t k = 0; k < own.count; ++k) {
    const int32_t row = own.ids[own.positions[k]];
    rows.row[rows.count] = row;
    rows.behind[rows.count] = steps - made[row];
    rows.count += made[row] < steps;
    are_even &= group.SetMade(args, row, made[row], steps);
  }
  group.MakeSteps(args, Sort(rows, own.positions, own.others + 2 * group.count), rule, alphas, steps);
  return are_even;
}

// False if a row was not caught up.
bool Update(const KernelArgs& args, const Group& group, const OwnIds& own, int32_t* first, int parts,
            const AdamStep& rule, float scale, float limit, int32_t steps) {
  RowGradients g = {own.others, own.others + group.count, 0, first + group.tables[0].rows, parts, {}, scale, limit};
  for (int part = 0; part < parts; ++part) g.ends[part] = ShareOf(group.count, part, parts).end;
  for (int64_t k = 0; k < own.count; ++k) first[own.ids[own.positions[k]]] = -1;
  for (int64_t k = own.count; k-- > 0;) {
    const int32_t position = own.positions[k];
    g.next[position] = std::exchange(first[own.ids[position]], position);
  }
  bool caught_up = true;
  for (int64_t k = 0; k < own.count; ++k) {
    const int32_t position = own.positions[k], row = own.ids[position];
    const bool is_first = first[row] == position;
    g.row[g.count] = row;
    g.position[g.count] = position;
    g.count += is_first;
    caught_up &= group.SetMade(args, row, is_first ? steps : steps + 1, steps + 1);
  }
  group.ForVectors(args, true, [&](size_t whole, size_t small, const RowPart* of_rows) {
    Kernels().update[whole][small](of_rows, g, rule);
  });
  return caught_up;
}

// Brings all rows up to date, from where steps count anew.
void Settle(const KernelArgs& args, const std::vector<Group>& groups, const AdamStep& rule, const float* alphas,
            int32_t& steps) {
  for (const Group& group : groups) {
    for (const Table& table : group.tables) {
      int32_t* const made = Group::Made(args, table);
      const Group alone = GroupOf({table});
      constexpr int64_t kBlock = 256;
      ParallelFor((table.rows + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
        int32_t row[kBlock], behind[kBlock];
        for (int64_t r = begin * kBlock; r < std::min(end * kBlock, table.rows);) {
          RowsBehind rows = {row, behind, 0};
          for (const int64_t last = std::min(r + kBlock, table.rows); r < last; ++r) {
            row[rows.count] = static_cast<int32_t>(r);
            behind[rows.count] = steps - made[r];
            rows.count += made[r] < steps;
            made[r] = 0;
          }
          alone.MakeSteps(args, rows, rule, alphas, steps);
        }
      });
    }
  }
  steps = 0;
}

absl::StatusOr<Kernel> MakeCatchUp(const KernelSpec& spec) {
  constexpr int kFirst = deferred_adam::kNumSteps, kInputs = deferred_adam::kCatchUpGroupSize;
  const Division division = DivisionOf(spec, kFirst, kInputs);
  const auto run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    const float* const alphas = args.input<float>(deferred_adam::kAlphas);
    const int32_t steps = *args.input<int32_t>(deferred_adam::kNumber);
    for (const Group& group : division.groups) {
      for (const Table& table : group.tables) {
        RETURN_IF_ERROR(CheckIds("id", group.Ids(args), group.count, table.rows));
        std::copy_n(group.Ids(args), group.count, args.output<int32_t>((table.first - kFirst) / kInputs));
      }
    }
    std::atomic<bool> are_even = true;
    ForThreads(division, [&](int thread) {
      for (const Group& group : division.groups) {
        const OwnIds own = FindOwn(args, group, thread, division.threads);
        if (!CatchUp(args, group, own, rule, alphas, steps)) are_even = false;
      }
    });
    if (!are_even) return absl::InternalError("tables with the same ids have made different numbers of steps");
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = division.scratch_bytes()};
}

absl::StatusOr<Kernel> MakeApply(const KernelSpec& spec) {
  const bool guarded = spec.attrs().GetBool("guarded");
  constexpr int kGuard = apply_adam::kNumScalars;
  const int first = kGuard + (guarded ? update_guard::kNumScalars : 0);
  const Division division = DivisionOf(spec, first + deferred_adam::kNumSteps, deferred_adam::kApplyGroupSize);
  const auto capacity = static_cast<int32_t>(spec.input(first + deferred_adam::kAlphas).shape.dim(0));
  const int parts = std::min(spec.node.graph().batch_parts(), kMaxParts);
  const float limit = ClipValueOf(spec.attrs());
  const auto run = [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) -> absl::Status {
    if (guarded && !*args.input<bool>(kGuard + update_guard::kApply)) return absl::OkStatus();
    float* const alphas = args.variable<float>(first + deferred_adam::kAlphas);
    int32_t& steps = *args.variable<int32_t>(first + deferred_adam::kNumber);
    AdamStep step = rule;
    step.alpha = alphas[steps] = AdamAlpha(args);
    const float scale = guarded ? *args.input<float>(kGuard + update_guard::kLossScale) : 1;
    std::atomic<bool> caught_up = true;
    ForThreads(division, [&](int thread) {
      for (const Group& group : division.groups) {
        const OwnIds own = FindOwn(args, group, thread, division.threads);
        int32_t* const first_positions = ListsOf(args, group, division.threads);
        if (!Update(args, group, own, first_positions, parts, step, scale, limit, steps)) caught_up = false;
      }
    });
    if (!caught_up) return absl::InternalError("rows are updated that were not caught up");
    if (++steps == capacity) Settle(args, division.groups, rule, alphas, steps);
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = division.scratch_bytes()};
}

absl::StatusOr<Kernel> MakeSettle(const KernelSpec& spec) {
  std::vector<Group> groups;
  for (int i = deferred_adam::kNumSteps; i < spec.node.num_inputs(); i += deferred_adam::kSettleGroupSize) {
    groups.push_back(GroupOf({TableAt(spec, i)}));
  }
  return Kernel{[groups, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) {
    Settle(args, groups, rule, args.input<float>(deferred_adam::kAlphas),
           *args.variable<int32_t>(deferred_adam::kNumber));
    return absl::OkStatus();
  }};
}

bool Register(OpName op, KernelFactory make) {
  return RegisterKernel({.op = op, .device_kind = "cpu", .dtypes = {DType::kFloat32}, .make = std::move(make)});
}

const bool registered = Register(op::CatchUpRows, MakeCatchUp) && Register(op::ApplyDeferredAdam, MakeApply) &&
                        Register(op::SettleRows, MakeSettle);

}  // namespace
}  // namespace official::compute
