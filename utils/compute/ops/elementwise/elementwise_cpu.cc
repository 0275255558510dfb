// The CPU kernel of all elementwise ops. The output is computed in tiles that stay in the first-level cache: inputs
// that need it are converted or repeated into a tile, then each instruction of the program runs over the tile, and the
// last one writes the output.

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/broadcast.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/elementwise/fused_program.h"
#include "utils/compute/ops/elementwise/op_table.h"
#include "utils/compute/ops/elementwise/tile_functions.h"

namespace official::compute {
namespace {

constexpr int64_t kTileBytes = 4096;
constexpr int64_t kGrain = 16384;  // elements worth a thread
constexpr int64_t kBatch = 64;     // repeated elements loaded at a time
constexpr int kMaxValues = FusedProgram::kMaxInputs + FusedProgram::kMaxInstructions;

struct Input {
  int index = 0;  // of the node
  DType dtype = DType::kFloat32;
  Broadcast broadcast;
  int slot = -1;           // the tile that it is loaded into; -1: read where it lies
  bool every_tile = true;  // false: it has the same elements in each tile, so it is loaded once
  int64_t copy_offset = -1, num_bytes = 0;
};

template <typename T>
struct Instruction {
  TileFunction<T> function = nullptr;
  int operands[3] = {0, 0, 0};  // an input, or num_inputs + an earlier instruction
  int slot = -1;                // the tile of the result; -1: the output itself
};

template <typename T>
class TileKernel {
 public:
  TileKernel(const KernelSpec& spec, const FusedProgram& program);
  void Run(const KernelArgs& args) const;
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  void PlaceInputs(const KernelSpec& spec);
  void PlaceInstructions(const FusedProgram& program);
  // What lies under elements [begin, begin + n) of the output in `input`, whose elements begin at `base`.
  void LoadInput(const Input& input, const void* base, int64_t begin, int64_t n, T* to) const;
  void RunTiles(const void* const* bases, void* output, int64_t first_tile, int64_t last_tile) const;

  int64_t count_ = 0;  // elements of the output
  int64_t tile_ = kTileBytes / static_cast<int64_t>(sizeof(T));
  std::vector<Input> inputs_;
  std::vector<TileLoad<T>> loads_;
  std::vector<Instruction<T>> instructions_;
  int result_ = 0;  // as Instruction::operands
  int num_slots_ = 0;
  TileStore<T> store_ = nullptr;  // nullptr if the last instruction writes the output
  int64_t scratch_bytes_ = 0;
};

template <typename T>
TileKernel<T>::TileKernel(const KernelSpec& spec, const FusedProgram& program) {
  const TensorType& output = spec.output(0);
  count_ = output.shape.num_elements();
  if (program.instructions.empty() || output.dtype != DTypeOf<T>()) store_ = FindTileStore<T>(output.dtype);
  PlaceInputs(spec);
  PlaceInstructions(program);
}

template <typename T>
void TileKernel<T>::PlaceInputs(const KernelSpec& spec) {
  const TensorType& output = spec.output(0);
  const int64_t largest_tile = tile_;
  int64_t period = 1;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    Input input{.index = i, .dtype = spec.input(i).dtype, .broadcast = {}, .num_bytes = spec.input(i).num_bytes()};
    input.broadcast = MakeBroadcast(spec.input(i).shape, output.shape);
    const bool repeats = !input.broadcast.is_identity();
    if (repeats || input.dtype != DTypeOf<T>()) input.slot = num_slots_++;
    if (repeats && input.broadcast.period() <= largest_tile) period = std::max(period, input.broadcast.period());
    // An input of as many bytes as the output may lie under it; unless it is read in step with the writing, it must be
    // saved first.
    if (repeats && input.num_bytes == output.num_bytes() && count_ > 0) {
      input.copy_offset = scratch_bytes_;
      scratch_bytes_ += (input.num_bytes + 63) / 64 * 64;
    }
    loads_.push_back(FindTileLoad<T>(input.dtype));
    inputs_.push_back(std::move(input));
  }
  tile_ = largest_tile / period * period;
  for (Input& input : inputs_) {
    input.every_tile = input.broadcast.is_identity() || tile_ % input.broadcast.period() != 0;
  }
}

template <typename T>
void TileKernel<T>::PlaceInstructions(const FusedProgram& program) {
  const int num_inputs = static_cast<int>(inputs_.size());
  const int num_instructions = static_cast<int>(program.instructions.size());
  const auto number = [&](FusedProgram::Operand o) { return FusedProgram::IsInput(o) ? ~o : num_inputs + o; };
  result_ = number(program.result);
  std::vector<int> last_use(num_inputs + num_instructions, -1);
  for (int k = 0; k < num_instructions; ++k) {
    for (const FusedProgram::Operand o : program.instructions[k].operands) last_use[number(o)] = k;
  }
  last_use[result_] = num_instructions;
  std::vector<int> free_slots;
  for (int k = 0; k < num_instructions; ++k) {
    const FusedProgram::Instruction& from = program.instructions[k];
    Instruction<T> to{.function = FindTileFunction<T>(from.functor)};
    OFFICIAL_CHECK(to.function != nullptr) << from.functor << " is not defined for " << DTypeName(DTypeOf<T>());
    for (size_t j = 0; j < from.operands.size(); ++j) {
      to.operands[j] = number(from.operands[j]);
      // The result may overwrite an operand that is not needed again.
      const int temporary = to.operands[j] - num_inputs;
      if (temporary >= 0 && last_use[to.operands[j]] == k) {
        free_slots.push_back(instructions_[temporary].slot);
        last_use[to.operands[j]] = -1;
      }
    }
    for (size_t j = from.operands.size(); j < 3; ++j) to.operands[j] = to.operands[0];
    if (k + 1 < num_instructions || store_ != nullptr) {
      to.slot = free_slots.empty() ? num_slots_++ : free_slots.back();
      if (!free_slots.empty()) free_slots.pop_back();
    }
    instructions_.push_back(to);
  }
}

template <typename T>
void TileKernel<T>::LoadInput(const Input& input, const void* base, int64_t begin, int64_t n, T* to) const {
  const TileLoad<T> load = loads_[input.index];
  const Broadcast::Dim& inner = input.broadcast.dims.back();
  for (int64_t done = 0; done < n;) {
    const int64_t offset = input.broadcast.Offset(begin + done), rest = n - done;
    const int64_t at = (begin + done) % inner.size;
    if (inner.stride != 0) {
      const int64_t run = std::min(rest, inner.size - at);
      load(base, offset, to + done, run);
      done += run;
      continue;
    }
    // A few elements, each to be repeated inner.size times (the first one only so often as it is still to come).
    T elements[kBatch];
    const int64_t batch =
        std::min({kBatch, input.broadcast.RepeatedTogether(begin + done), (at + rest + inner.size - 1) / inner.size});
    load(base, offset, elements, batch);
    for (int64_t k = 0; k < batch; ++k) {
      const int64_t run = std::min(n - done, inner.size - (k == 0 ? at : 0));
      std::fill_n(to + done, run, elements[k]);
      done += run;
    }
  }
}

template <typename T>
void TileKernel<T>::RunTiles(const void* const* bases, void* output, int64_t first_tile, int64_t last_tile) const {
  alignas(64) T tiles[kMaxValues][kTileBytes / sizeof(T)];
  const T* values[kMaxValues];
  const int num_inputs = static_cast<int>(inputs_.size());
  for (const Input& input : inputs_) {
    if (input.every_tile) continue;
    LoadInput(input, bases[input.index], 0, std::min(tile_, count_), tiles[input.slot]);
    values[input.index] = tiles[input.slot];
  }
  for (int64_t tile = first_tile; tile < last_tile; ++tile) {
    const int64_t begin = tile * tile_, n = std::min(tile_, count_ - begin);
    for (const Input& input : inputs_) {
      if (!input.every_tile) continue;
      if (input.slot < 0) {
        values[input.index] = static_cast<const T*>(bases[input.index]) + begin;
        continue;
      }
      LoadInput(input, bases[input.index], begin, n, tiles[input.slot]);
      values[input.index] = tiles[input.slot];
    }
    for (size_t k = 0; k < instructions_.size(); ++k) {
      const Instruction<T>& f = instructions_[k];
      T* const to = f.slot < 0 ? static_cast<T*>(output) + begin : tiles[f.slot];
      f.function(values[f.operands[0]], values[f.operands[1]], values[f.operands[2]], to, n);
      values[num_inputs + k] = to;
    }
    if (store_ != nullptr) store_(values[result_], output, begin, n);
  }
}

template <typename T>
void TileKernel<T>::Run(const KernelArgs& args) const {
  const void* bases[FusedProgram::kMaxInputs];
  for (const Input& input : inputs_) {
    bases[input.index] = args.inputs[input.index];
    if (input.copy_offset < 0 || bases[input.index] != args.outputs[0]) continue;
    void* const copy = static_cast<char*>(args.scratch) + input.copy_offset;
    std::memcpy(copy, bases[input.index], input.num_bytes);
    bases[input.index] = copy;
  }
  const int64_t num_tiles = (count_ + tile_ - 1) / tile_;
  ParallelFor(num_tiles, std::max<int64_t>(1, kGrain / tile_),
              [&](int64_t first, int64_t last) { RunTiles(bases, args.outputs[0], first, last); });
}

template <typename T>
Kernel MakeTileKernel(const KernelSpec& spec) {
  const auto kernel = std::make_shared<const TileKernel<T>>(spec, *ProgramOf(spec.node));
  return {.run =
              [kernel](const KernelArgs& args) {
                kernel->Run(args);
                return absl::OkStatus();
              },
          .scratch_bytes = kernel->scratch_bytes()};
}

absl::StatusOr<Kernel> MakeElementwise(const KernelSpec& spec) {
  switch (ComputeType(spec.node)) {
    case DType::kInt32:
      return MakeTileKernel<int32_t>(spec);
    case DType::kInt64:
      return MakeTileKernel<int64_t>(spec);
    default:
      return MakeTileKernel<float>(spec);
  }
}

void RegisterElementwise(OpName op, std::vector<DType> dtypes, int num_inputs) {
  KernelDef def{.op = op,
                .device_kind = "cpu",
                .dtypes = std::move(dtypes),
                .make = MakeElementwise,
                .in_place = {},
                .layout = SameLayoutEverywhere};
  for (int i = 0; i < num_inputs; ++i) def.in_place.push_back({0, i});
  RegisterKernel(std::move(def));
}

const bool registered = [] {
  for (const ElementwiseOp& op : ElementwiseOps()) RegisterElementwise(op.name, op.key_types, op.num_inputs);
  RegisterElementwise(op::FusedElementwise, FindElementwiseOp(op::Cast)->key_types, FusedProgram::kMaxInputs);
  return true;
}();

}  // namespace
}  // namespace official::compute
