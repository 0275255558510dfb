// The CUDA kernel of all elementwise ops: an interpreter of their programs. Each thread takes a few elements through
// all instructions, so that finding the next instruction is paid once for them, and keeps them in shared memory, where
// a value can be addressed by its number. For the short programs there are, memory is slower than the interpreter.

#include "utils/compute/ops/elementwise/elementwise.h"

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/launch.h"
#include "utils/compute/cuda/tensor_groups.h"
#include "utils/compute/ops/elementwise/broadcast.h"
#include "utils/compute/ops/elementwise/fused_program.h"
#include "utils/compute/ops/elementwise/math.h"
#include "utils/compute/ops/elementwise/op_table.h"

namespace official::compute {
namespace {

constexpr int kThreads = 128;
constexpr int kElements = 4;  // of a thread
constexpr int kMaxDims = 8;
constexpr int kMaxValues = FusedProgram::kMaxInputs + FusedProgram::kMaxInstructions;

// How an input lies under the elements of a thread.
enum class Access : uint8_t {
  kInOrder,    // as in the output
  kTogether,   // one after the other, from an offset on
  kRepeated,   // one for all
  kScattered,  // each at its own offset
};

struct Input {
  const void* data;
  int8_t member_slot = -1;  // in a group: the place among the member's tensors, or -1 if `data` is for all members
  DType dtype;
  Access access;
  uint8_t slot;
  uint8_t num_dims;
  int64_t sizes[kMaxDims], strides[kMaxDims];  // as Broadcast::dims
};

struct Instruction {
  uint8_t functor;  // its number in ForEachFunctor
  uint8_t operands[3];
  uint8_t slot;
};

struct Interpreted {
  int64_t count;  // elements of the output
  void* output;
  DType output_dtype;
  uint8_t result;  // slot
  uint8_t num_inputs, num_instructions;
  Input inputs[FusedProgram::kMaxInputs];
  Instruction instructions[FusedProgram::kMaxInstructions];
};

template <typename T>
struct alignas(sizeof(T) * kElements) Elements {
  T at[kElements];
};

// Calls f with a value of the C++ type of `dtype`.
template <typename F>
__device__ void WithTensorType(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float());
    case DType::kBFloat16:
      return f(BFloat16());
    case DType::kFloat16:
      return f(Half());
    case DType::kInt32:
      return f(int32_t());
    case DType::kInt64:
      return f(int64_t());
    case DType::kUInt8:
      return f(uint8_t());
    default:
      return f(bool());
  }
}

// The input's element under element `i` of the output.
template <typename Index>
__device__ Index OffsetOf(const Input& input, Index i) {
  Index offset = 0;
  for (int d = input.num_dims - 1; d > 0; --d) {
    const Index size = static_cast<Index>(input.sizes[d]);
    offset += i % size * static_cast<Index>(input.strides[d]);
    i /= size;
  }
  return offset + i * static_cast<Index>(input.strides[0]);
}

// What lies under elements [begin, begin + n) of the output.
template <typename T, typename From, typename Index>
__device__ Elements<T> Load(const Input& input, const void* address, Index begin, int n) {
  const From* const data = static_cast<const From*>(address);
  Elements<T> to = {};
  if (input.access == Access::kRepeated) {
    const T value = ConvertElement<T>(data[OffsetOf(input, begin)]);
#pragma unroll
    for (int k = 0; k < kElements; ++k) to.at[k] = value;
  } else if (input.access == Access::kScattered || n < kElements) {
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      if (k < n) to.at[k] = ConvertElement<T>(data[OffsetOf(input, static_cast<Index>(begin + k))]);
    }
  } else {
    const Index offset = input.access == Access::kInOrder ? begin : OffsetOf(input, begin);
    const Elements<From> from = *reinterpret_cast<const Elements<From>*>(data + offset);
#pragma unroll
    for (int k = 0; k < kElements; ++k) to.at[k] = ConvertElement<T>(from.at[k]);
  }
  return to;
}

template <typename To, typename T, typename Index>
__device__ void Store(const Elements<T>& from, void* output, Index begin, int n) {
  To* const to = static_cast<To*>(output) + begin;
  if (n == kElements) {
    Elements<To> all;
#pragma unroll
    for (int k = 0; k < kElements; ++k) all.at[k] = ConvertElement<To>(from.at[k]);
    *reinterpret_cast<Elements<To>*>(to) = all;
  } else {
    for (int k = 0; k < n; ++k) to[k] = ConvertElement<To>(from.at[k]);
  }
}

template <typename T>
constexpr int NumFunctors() {
  int n = 0;
  math::ForEachFunctor<T>([&](const char*, auto, auto) { ++n; });
  return n;
}

// Applies functor number `functor`, which is in [kFirst, kLast). It is found by bisection (a loop over all would become
// a chain of comparisons), and is the same for all threads: no divergence.
template <typename T, int kFirst = 0, int kLast = NumFunctors<T>()>
__device__ Elements<T> Apply(int functor, const Elements<T>& a, const Elements<T>& b, const Elements<T>& c) {
  if constexpr (kLast - kFirst > 1) {
    constexpr int kMiddle = (kFirst + kLast) / 2;
    if (functor < kMiddle) return Apply<T, kFirst, kMiddle>(functor, a, b, c);
    return Apply<T, kMiddle, kLast>(functor, a, b, c);
  } else {
    Elements<T> y;
    int number = 0;
    math::ForEachFunctor<T>([&]<typename F, int kArity>(const char*, F f, std::integral_constant<int, kArity>) {
      if (number++ != kFirst) return;
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        if constexpr (kArity == 1) {
          y.at[k] = f(a.at[k]);
        } else if constexpr (kArity == 2) {
          y.at[k] = f(a.at[k], b.at[k]);
        } else {
          y.at[k] = f(a.at[k], b.at[k], c.at[k]);
        }
      }
    });
    return y;
  }
}

// Computes elements [begin, begin + n) of the output. `tensors` are those of a member of a group, or nullptr. Each
// thread reads and writes its own elements of `slots` only.
template <typename T, typename Index>
__device__ void RunElements(const Interpreted& program, void* const* tensors, void* output, Index begin, int n,
                            Elements<T>* slots) {
  for (int i = 0; i < program.num_inputs; ++i) {
    const Input& input = program.inputs[i];
    const void* const data = tensors == nullptr || input.member_slot < 0 ? input.data : tensors[input.member_slot];
    WithTensorType(input.dtype, [&]<typename From>(From) {
      slots[input.slot * kThreads] = Load<T, From, Index>(input, data, begin, n);
    });
  }
  for (int k = 0; k < program.num_instructions; ++k) {
    const Instruction& f = program.instructions[k];
    const Elements<T> a = slots[f.operands[0] * kThreads], b = slots[f.operands[1] * kThreads],
                      c = slots[f.operands[2] * kThreads];
    slots[f.slot * kThreads] = Apply<T>(f.functor, a, b, c);
  }
  const Elements<T> result = slots[program.result * kThreads];
  WithTensorType(program.output_dtype, [&]<typename To>(To) { Store<To, T, Index>(result, output, begin, n); });
}

// Index: uint32_t where all offsets fit, since its divisions are fast.
template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads) RunProgram(const Interpreted __grid_constant__ program) {
  const Index count = static_cast<Index>(program.count);
  const Index begin = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) * kElements;
  if (begin >= count) return;
  const int n = count - begin < kElements ? static_cast<int>(count - begin) : kElements;
  RunElements<T, Index>(program, nullptr, program.output, begin, n, DynamicShared<Elements<T>>() + threadIdx.x);
}

// The tensors of a member: its inputs and its output.
using Members = TensorGroups<grouped_elementwise::kMaxMemberInputs + 1, void>;
constexpr int kMemberOutput = grouped_elementwise::kMaxMemberInputs;
static_assert(sizeof(Interpreted) + sizeof(Members) <= 32764);

__global__ void __launch_bounds__(kThreads)
    RunGroup(const Interpreted __grid_constant__ program, const Members __grid_constant__ members) {
  auto* const slots = DynamicShared<Elements<float>>() + threadIdx.x;
  const auto piece = members.PieceOf(static_cast<int>(blockIdx.x));
  void* const* const tensors = members.tensors[piece.group];
  for (int64_t begin = piece.begin + threadIdx.x * kElements; begin < piece.end; begin += kThreads * kElements) {
    const int n = piece.end - begin < kElements ? static_cast<int>(piece.end - begin) : kElements;
    RunElements<float, uint32_t>(program, tensors, tensors[kMemberOutput], static_cast<uint32_t>(begin), n, slots);
  }
}

// An input that must be copied before the kernel writes over it.
struct Copy {
  int input;
  int64_t offset, bytes;  // in the scratch memory
};

template <typename T>
int NumberOfFunctor(const std::string& name) {
  int number = 0, found = -1;
  math::ForEachFunctor<T>([&](const char* functor, auto, auto) {
    if (name == functor) found = number;
    ++number;
  });
  OFFICIAL_CHECK(found >= 0) << name << " is not defined for " << DTypeName(DTypeOf<T>());
  return found;
}

// Instructions and the slots of all values; the number of slots.
template <typename T>
int PlaceInstructions(const FusedProgram& program, Interpreted& to) {
  const int num_inputs = to.num_inputs, num_instructions = static_cast<int>(program.instructions.size());
  const auto number = [&](FusedProgram::Operand o) { return FusedProgram::IsInput(o) ? ~o : num_inputs + o; };
  int last_use[kMaxValues], slot_of[kMaxValues];
  std::fill_n(last_use, kMaxValues, -1);
  for (int k = 0; k < num_instructions; ++k) {
    for (const FusedProgram::Operand o : program.instructions[k].operands) last_use[number(o)] = k;
  }
  last_use[number(program.result)] = num_instructions;
  int num_slots = num_inputs;
  std::vector<int> free_slots;
  for (int i = 0; i < num_inputs; ++i) slot_of[i] = to.inputs[i].slot = i;
  for (int k = 0; k < num_instructions; ++k) {
    const FusedProgram::Instruction& from = program.instructions[k];
    Instruction& instruction = to.instructions[k];
    instruction.functor = NumberOfFunctor<T>(from.functor);
    for (size_t j = 0; j < 3; ++j) {
      const int operand = number(from.operands[j < from.operands.size() ? j : 0]);
      instruction.operands[j] = slot_of[operand];
      // The result may overwrite an operand that is not needed again.
      if (last_use[operand] == k) {
        free_slots.push_back(slot_of[operand]);
        last_use[operand] = -1;
      }
    }
    instruction.slot = free_slots.empty() ? num_slots++ : free_slots.back();
    if (!free_slots.empty()) free_slots.pop_back();
    slot_of[num_inputs + k] = instruction.slot;
  }
  to.num_instructions = num_instructions;
  to.result = slot_of[number(program.result)];
  return num_slots;
}

Access AccessOf(const Broadcast& broadcast) {
  const Broadcast::Dim& inner = broadcast.dims.back();
  if (broadcast.is_identity()) return Access::kInOrder;
  if (broadcast.dims.size() == 1) return Access::kRepeated;  // a scalar
  // A thread's elements never cross the end of the innermost dimension.
  if (inner.size % kElements == 0) return inner.stride == 0 ? Access::kRepeated : Access::kTogether;
  return Access::kScattered;
}

template <typename T>
absl::StatusOr<Kernel> MakeInterpreter(const KernelSpec& spec) {
  auto program = std::make_shared<Interpreted>();
  const TensorType& output = spec.output(0);
  program->count = output.shape.num_elements();
  program->output_dtype = output.dtype;
  program->num_inputs = spec.node.num_inputs();
  int64_t scratch_bytes = 0;
  std::vector<Copy> copies;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    const Broadcast broadcast = MakeBroadcast(spec.input(i).shape, output.shape);
    if (broadcast.dims.size() > kMaxDims) {
      return absl::UnimplementedError(
          absl::StrCat("broadcasts ", spec.input(i).ToString(), " to ", output.ToString(), " in too many dimensions"));
    }
    Input& input = program->inputs[i];
    input.dtype = spec.input(i).dtype;
    input.access = AccessOf(broadcast);
    input.num_dims = broadcast.dims.size();
    for (size_t d = 0; d < broadcast.dims.size(); ++d) {
      input.sizes[d] = broadcast.dims[d].size;
      input.strides[d] = broadcast.dims[d].stride;
    }
    // An input of as many bytes as the output may lie under it; unless each thread reads what it writes, it must be
    // saved first.
    const int64_t bytes = spec.input(i).num_bytes();
    if (broadcast.is_identity() || bytes != output.num_bytes()) continue;
    copies.push_back({i, scratch_bytes, bytes});
    scratch_bytes += (bytes + 63) / 64 * 64;
  }
  const int num_slots = PlaceInstructions<T>(*ProgramOf(spec.node), *program);
  const size_t shared_bytes = num_slots * kThreads * sizeof(Elements<T>);
  const int64_t num_blocks = (program->count + kThreads * kElements - 1) / (kThreads * kElements);
  const auto kernel = program->count < (int64_t{1} << 31) ? RunProgram<T, uint32_t> : RunProgram<T, int64_t>;
  RETURN_IF_ERROR(AskForShared(spec, kernel, static_cast<int64_t>(shared_bytes)));
  Kernel result;
  result.scratch_bytes = scratch_bytes;
  result.run = [=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) -> absl::Status {
    if (num_blocks == 0) return absl::OkStatus();
    program->output = args.outputs[0];
    for (int i = 0; i < program->num_inputs; ++i) program->inputs[i].data = args.inputs[i];
    for (const Copy& copy : copies) {
      if (args.inputs[copy.input] != args.outputs[0]) continue;
      void* const saved = static_cast<char*>(args.scratch) + copy.offset;
      RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(saved, args.inputs[copy.input], copy.bytes, cudaMemcpyDeviceToDevice, stream),
                     "cudaMemcpyAsync"));
      program->inputs[copy.input].data = saved;
    }
    Launch(kernel, num_blocks, kThreads, shared_bytes, stream, *program);
    return LaunchStatus("elementwise kernel");
  };
  return result;
}

absl::StatusOr<Kernel> MakeElementwise(const KernelSpec& spec) {
  switch (ComputeType(spec.node)) {
    case DType::kInt32:
      return MakeInterpreter<int32_t>(spec);
    case DType::kInt64:
      return MakeInterpreter<int64_t>(spec);
    default:
      return MakeInterpreter<float>(spec);
  }
}

absl::StatusOr<Kernel> MakeGroup(const KernelSpec& spec) {
  const std::vector<int64_t>& slots = spec.attrs().GetInts("slots");
  const int num_members = static_cast<int>(spec.attrs().GetInt("members"));
  const int num_slots = static_cast<int>(slots.size());
  const int num_own = (spec.node.num_inputs() - num_slots) / (num_members - 1);
  Interpreted program = {};
  program.output_dtype = spec.output(0).dtype;
  program.num_inputs = num_slots;
  // Of the node's inputs: where those of slot s begin.
  const auto first_of = [=](int s) { return s < num_own ? s * num_members : num_own * num_members + s - num_own; };
  for (int s = 0; s < num_slots; ++s) {
    Input& input = program.inputs[slots[s]];
    input.dtype = spec.input(first_of(s)).dtype;
    input.access = s < num_own ? Access::kInOrder : Access::kRepeated;
    input.num_dims = 1;
    input.strides[0] = s < num_own ? 1 : 0;
    if (s < num_own) input.member_slot = static_cast<int8_t>(s);
  }
  const int values =
      PlaceInstructions<float>(FusedProgram::FromString(spec.attrs().Get<std::string>("program")), program);
  const size_t shared_bytes = values * kThreads * sizeof(Elements<float>);

  auto launches = std::make_shared<std::vector<Members>>();
  for (int m = 0; m < num_members; ++m) {
    if (launches->empty() || launches->back().is_full()) launches->emplace_back().first_number = m;
    launches->back().Add(spec.output(m).shape.num_elements());
  }
  return Kernel{[=, stream = CudaDeviceOf(spec).stream()](const KernelArgs& args) mutable -> absl::Status {
    for (int s = num_own; s < num_slots; ++s) program.inputs[slots[s]].data = args.inputs[first_of(s)];
    for (Members& members : *launches) {
      for (int g = 0; g < members.num_groups; ++g) {
        const int m = members.first_number + g;
        for (int s = 0; s < num_own; ++s) members.tensors[g][s] = const_cast<void*>(args.inputs[first_of(s) + m]);
        members.tensors[g][kMemberOutput] = args.outputs[m];
      }
      if (members.num_blocks() == 0) continue;
      Launch(RunGroup, members.num_blocks(), kThreads, shared_bytes, stream, program, members);
      RETURN_IF_ERROR(LaunchStatus("RunGroup"));
    }
    return absl::OkStatus();
  }};
}

void Register(OpName op, std::vector<DType> dtypes, int num_inputs) {
  KernelDef def{.op = op, .device_kind = "cuda", .dtypes = std::move(dtypes), .make = MakeElementwise};
  for (int i = 0; i < num_inputs; ++i) def.in_place.push_back({0, i});
  RegisterKernel(std::move(def));
}

const bool registered = [] {
  for (const ElementwiseOp& op : ElementwiseOps()) Register(op.name, op.key_types, op.num_inputs);
  Register(op::FusedElementwise, FindElementwiseOp(op::Cast)->key_types, FusedProgram::kMaxInputs);
  return RegisterKernel({.op = op::GroupedElementwise,
                         .device_kind = "cuda",
                         .dtypes = StorageTypes(),
                         .make = MakeGroup,
                         .each_in_place = true});
}();

}  // namespace
}  // namespace official::compute
