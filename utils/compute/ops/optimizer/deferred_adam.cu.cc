// CUDA kernels of deferred Adam. A warp has one row at a time; each launch is for all tables of the node, block y for
// table y. Sizes and launches depend on the shapes alone. If an earlier kernel of the step found wrong data, the
// variables stay as they are.

#include "utils/compute/ops/optimizer/deferred_adam.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/row_sums.h"
#include "utils/compute/cuda/row_threads.h"
#include "utils/compute/cuda/sorted_indices.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/optimizer/adam_step.h"
#include "utils/compute/ops/optimizer/guarded_update.h"

namespace official::compute {
namespace {

using Warp = RowThreads<32, 1>;
constexpr int kThreads = Warp::kBlock, kWarps = Warp::kRowsOfBlock, kLanes = Warp::kRowThreads;
constexpr unsigned kAllLanes = 0xffffffff;
constexpr int kMaxTables = 16;  // of a node; they are arguments of the kernels

// A table: its group is the inputs from `first` on.
struct Table {
  int first;
  int32_t rows;
  int64_t width;
};

absl::StatusOr<std::vector<Table>> TablesOf(const KernelSpec& spec, int first, int group) {
  std::vector<Table> tables;
  for (int i = first; i < spec.node.num_inputs(); i += group) {
    const Shape& shape = spec.input(i + deferred_adam::kTable).shape;
    tables.push_back({i, static_cast<int32_t>(shape.dim(0)), shape.Product(1, shape.rank())});
  }
  if (tables.size() <= kMaxTables) return tables;
  return absl::UnimplementedError(absl::StrCat(spec.node.op().name.text(), " of ", tables.size(),
                                               " tables: on GPUs it takes at most ", kMaxTables));
}

template <typename T>
struct PerTable {
  T at[kMaxTables];
};

struct TableState {
  float *variable, *m, *v;
  int32_t* made;  // of the deferred steps, by row
  int32_t rows;
  int64_t width;
};

TableState StateOf(const KernelArgs& args, const Table& table) {
  return {args.variable<float>(table.first + deferred_adam::kTable),
          args.variable<float>(table.first + deferred_adam::kM),
          args.variable<float>(table.first + deferred_adam::kV),
          args.variable<int32_t>(table.first + deferred_adam::kMade),
          table.rows,
          table.width};
}

struct DeferredSteps {
  float* alphas;
  int32_t* number;
};

// The deferred steps, which begin at input `first`.
DeferredSteps StepsAt(const KernelArgs& args, int first) {
  return {args.variable<float>(first + deferred_adam::kAlphas), args.variable<int32_t>(first + deferred_adam::kNumber)};
}

// A thread's part of the steps from `made` to `end` of a row without gradients.
__device__ void MakeUp(const TableState& table, int64_t row, AdamStep step, const float* alphas, int32_t made,
                       int32_t end) {
  if (made >= end) return;
  for (int64_t c = Warp::Lane(); c < table.width; c += kLanes) {
    const int64_t at = row * table.width + c;
    float variable = table.variable[at], m = table.m[at], v = table.v[at];
    for (int32_t s = made; s < end; ++s) {
      step.alpha = alphas[s];
      step(variable, m, v, 0);
    }
    table.variable[at] = variable;
    table.m[at] = m;
    table.v[at] = v;
  }
}

struct CaughtUpTable {
  TableState state;
  const int32_t* ids;
  int32_t* ids_out;
  int32_t count;
  DataError error;
};

// A warp for each id. The first to come of those with the same row makes its steps; which one that is changes no bit.
__global__ void __launch_bounds__(kThreads)
    CatchUp(const PerTable<CaughtUpTable> __grid_constant__ tables, AdamStep step, DeferredSteps steps,
            const unsigned long long* data_error) {
  const CaughtUpTable& table = tables.at[blockIdx.y];
  const int64_t i = Warp::Row();
  if (i >= table.count) return;
  const int32_t end = *steps.number, id = table.ids[i];
  int32_t made = end;
  if (Warp::Lane() == 0) {
    table.ids_out[i] = id;
    if (id < 0 || id >= table.state.rows) {
      table.error.Report(id);
    } else if (!SeesDataError(data_error)) {
      made = atomicExch(table.state.made + id, end);
    }
  }
  made = __shfl_sync(kAllLanes, made, 0);
  MakeUp(table.state, id, step, steps.alphas, made, end);
}

absl::StatusOr<Kernel> MakeCatchUp(const KernelSpec& spec) {
  CudaDevice& device = CudaDeviceOf(spec);
  ASSIGN_OR_RETURN(const std::vector<Table> tables,
                   TablesOf(spec, deferred_adam::kNumSteps, deferred_adam::kCatchUpGroupSize));
  std::vector<int32_t> counts;
  std::vector<DataError> errors;
  for (const Table& table : tables) {
    counts.push_back(static_cast<int32_t>(spec.input(table.first + deferred_adam::kIds).shape.num_elements()));
    errors.push_back(device.AddDataError(spec.node, [rows = table.rows](int32_t value) {
      return absl::StrCat("id ", value, " is outside [0, ", rows, ")");
    }));
  }
  const int32_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) {
    return Kernel{[](const KernelArgs&) { return absl::OkStatus(); }};
  }
  return Kernel{[=, step = AdamStepOf(spec.attrs()), stream = device.stream(),
                 data_error = device.data_error_word()](const KernelArgs& args) {
    PerTable<CaughtUpTable> caught_up = {};
    for (size_t k = 0; k < tables.size(); ++k) {
      caught_up.at[k] = {StateOf(args, tables[k]), args.input<int32_t>(tables[k].first + deferred_adam::kIds),
                         args.output<int32_t>(static_cast<int>(k)), counts[k], errors[k]};
    }
    const dim3 blocks(NumBlocks(most, kWarps), static_cast<unsigned>(tables.size()));
    Launch(CatchUp, blocks, kThreads, 0, stream, caught_up, step, StepsAt(args, 0), data_error);
    return LaunchStatus("CatchUp");
  }};
}

// When all rows are brought up to date, and the end of a step.
struct Settlement {
  int32_t ahead;     // steps that the number of steps does not count yet
  int32_t capacity;  // how many steps are deferred at most; 0: none are from now on
};

// The warps of a table take turns at its rows.
__global__ void __launch_bounds__(kThreads)
    Settle(const PerTable<TableState> __grid_constant__ tables, Settlement settlement, Guard guard, AdamStep step,
           DeferredSteps steps, const unsigned long long* data_error) {
  const int32_t end = *steps.number + settlement.ahead;
  if (end < settlement.capacity || HasDataError(data_error) || !guard.Applies()) return;
  const TableState& table = tables.at[blockIdx.y];
  for (int64_t row = Warp::Row(); row < table.rows; row += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int32_t made = table.made[row];
    __syncwarp();
    if (Warp::Lane() == 0) table.made[row] = 0;
    MakeUp(table, row, step, steps.alphas, made, end);
  }
}

__global__ void CountStep(Settlement settlement, Guard guard, DeferredSteps steps,
                          const unsigned long long* data_error) {
  if (HasDataError(data_error) || !guard.Applies()) return;
  const int32_t end = *steps.number + settlement.ahead;
  *steps.number = end < settlement.capacity ? end : 0;
}

// Launches both.
struct Settler {
  Settler(const KernelSpec& spec, const std::vector<Table>& tables, Settlement settlement)
      : tables(tables), settlement(settlement), step(AdamStepOf(spec.attrs())) {
    const CudaDevice& device = CudaDeviceOf(spec);
    stream = device.stream();
    data_error = device.data_error_word();
    // Few enough that most steps, in which there is nothing to do, do not wait for them.
    blocks = dim3(2 * device.properties().multiProcessorCount, static_cast<unsigned>(tables.size()));
  }

  absl::Status Run(const KernelArgs& args, const Guard& guard, const DeferredSteps& steps) const {
    PerTable<TableState> states = {};
    for (size_t k = 0; k < tables.size(); ++k) states.at[k] = StateOf(args, tables[k]);
    Launch(Settle, blocks, kThreads, 0, stream, states, settlement, guard, step, steps, data_error);
    RETURN_IF_ERROR(LaunchStatus("Settle"));
    Launch(CountStep, 1, 1, 0, stream, settlement, guard, steps, data_error);
    return LaunchStatus("CountStep");
  }

  std::vector<Table> tables;
  Settlement settlement;
  AdamStep step;
  dim3 blocks;
  cudaStream_t stream;
  const unsigned long long* data_error;
};

struct UpdatedTable {
  TableState state;
  RowSums<float> gradients;
};

__global__ void __launch_bounds__(kThreads) SumPiecesOfTables(const PerTable<UpdatedTable> __grid_constant__ tables) {
  tables.at[blockIdx.y].gradients.SumSlot<Warp>();
}

// A warp for each place in the sorted order; that of the first place of each row updates the row.
__global__ void __launch_bounds__(kThreads)
    UpdateRows(const PerTable<UpdatedTable> __grid_constant__ tables, Scalars<apply_adam::kNumScalars> scalars,
               Guard guard, AdamStep step, DeferredSteps steps, DataError not_caught_up,
               const unsigned long long* data_error) {
  if (HasDataError(data_error) || !guard.Applies()) return;
  step.alpha = AdamAlpha(*scalars.values[apply_adam::kLearningRate], *scalars.values[apply_adam::kBeta1Power],
                         *scalars.values[apply_adam::kBeta2Power]);
  const int32_t number = *steps.number;
  const int64_t i = Warp::Row();
  // Nothing in this launch reads it.
  if (blockIdx.y == 0 && i == 0 && Warp::Lane() == 0) steps.alphas[number] = step.alpha;
  const UpdatedTable& table = tables.at[blockIdx.y];
  const TableState& state = table.state;
  const int32_t* const indices = table.gradients.sorted.indices;
  if (i >= table.gradients.count || (i > 0 && indices[i - 1] == indices[i])) return;
  const int64_t row = indices[i];
  if (Warp::Lane() == 0) {
    if (state.made[row] != number) not_caught_up.Report(static_cast<int32_t>(row));
    state.made[row] = number + 1;
  }
  for (int64_t c = Warp::Lane(); c < state.width; c += kLanes) {
    const int64_t at = row * state.width + c;
    const float g = table.gradients(static_cast<int32_t>(i), c);
    step(state.variable[at], state.m[at], state.v[at], guard.Unscale(g));
  }
}

absl::StatusOr<Kernel> MakeApply(const KernelSpec& spec) {
  const Places places(spec, apply_adam::kNumScalars);
  const int first = places.first();
  CudaDevice& device = CudaDeviceOf(spec);
  ASSIGN_OR_RETURN(const std::vector<Table> tables,
                   TablesOf(spec, first + deferred_adam::kNumSteps, deferred_adam::kApplyGroupSize));
  // Tables with the same ids share their order.
  std::vector<SortedIndices> sorts;
  std::vector<int64_t> sorts_at, pieces_at;
  std::vector<size_t> same_as;
  std::vector<int32_t> counts;
  Kernel kernel;
  for (size_t k = 0; k < tables.size(); ++k) {
    const Value ids = spec.node.input(tables[k].first + deferred_adam::kIds);
    counts.push_back(static_cast<int32_t>(ids.shape().num_elements()));
    size_t same = 0;
    while (spec.node.input(tables[same].first + deferred_adam::kIds) != ids) ++same;
    same_as.push_back(same);
    sorts.emplace_back();
    sorts_at.push_back(kernel.scratch_bytes);
    if (same == k) {
      ASSIGN_OR_RETURN(sorts[k], SortedIndices::Make(device, spec.node, "id", counts[k], tables[k].rows));
      kernel.scratch_bytes += sorts[k].scratch_bytes();
    }
    pieces_at.push_back(kernel.scratch_bytes);
    constexpr int64_t kAlignment = 256;
    const int64_t bytes = RowSums<float>::ScratchBytes(counts[k], tables[k].width);
    kernel.scratch_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  const DataError not_caught_up = device.AddDataError(
      spec.node, [](int32_t value) { return absl::StrCat("row ", value, " is updated that was not caught up"); },
      absl::StatusCode::kInternal);
  const Settler settler(
      spec, tables,
      {.ahead = 1, .capacity = static_cast<int32_t>(spec.input(first + deferred_adam::kAlphas).shape.dim(0))});
  const int32_t most = std::max(1, *std::max_element(counts.begin(), counts.end()));
  kernel.run = [=](const KernelArgs& args) -> absl::Status {
    PerTable<UpdatedTable> updated = {};
    for (size_t k = 0; k < tables.size(); ++k) {
      UpdatedTable& table = updated.at[k];
      table = {StateOf(args, tables[k]),
               {updated.at[same_as[k]].gradients.sorted, counts[k],
                args.input<float>(tables[k].first + deferred_adam::kRows), tables[k].width,
                RowSums<float>::PiecesAt(args.scratch, pieces_at[k])}};
      if (same_as[k] < k) continue;
      ASSIGN_OR_RETURN(table.gradients.sorted, sorts[k].Sort(args.input<int32_t>(tables[k].first + deferred_adam::kIds),
                                                             static_cast<char*>(args.scratch) + sorts_at[k]));
    }
    if (most > RowSums<float>::kRowsOfPiece) {
      const dim3 slots(NumBlocks(RowSums<float>::NumSlots(most), kWarps), static_cast<unsigned>(tables.size()));
      Launch(SumPiecesOfTables, slots, kThreads, 0, settler.stream, updated);
      RETURN_IF_ERROR(LaunchStatus("SumPiecesOfTables"));
    }
    const Guard guard = places.GuardOf(args);
    const DeferredSteps steps = StepsAt(args, first);
    const dim3 blocks(NumBlocks(most, kWarps), static_cast<unsigned>(tables.size()));
    Launch(UpdateRows, blocks, kThreads, 0, settler.stream, updated, Scalars<apply_adam::kNumScalars>(args), guard,
           settler.step, steps, not_caught_up, settler.data_error);
    RETURN_IF_ERROR(LaunchStatus("UpdateRows"));
    return settler.Run(args, guard, steps);
  };
  return kernel;
}

absl::StatusOr<Kernel> MakeSettle(const KernelSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<Table> tables,
                   TablesOf(spec, deferred_adam::kNumSteps, deferred_adam::kSettleGroupSize));
  return Kernel{[settler = Settler(spec, tables, {.ahead = 0, .capacity = 0})](const KernelArgs& args) {
    return settler.Run(args, {}, StepsAt(args, 0));
  }};
}

const bool registered = [] {
  const auto add = [](OpName op, KernelFactory make) {
    RegisterKernel({.op = op, .device_kind = "cuda", .dtypes = {DType::kFloat32}, .make = std::move(make)});
  };
  add(op::CatchUpRows, MakeCatchUp);
  add(op::ApplyDeferredAdam, MakeApply);
  add(op::SettleRows, MakeSettle);
  return true;
}();

}  // namespace
}  // namespace official::compute
