// Kernels: how a device computes an op. A kernel is made once per node of a program, for its shapes, and then run at
// every step.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/kernel/algorithm_choices.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {

// The order of a value's elements in device memory. The logical layout is always row-major (NHWC for images).
enum class Layout : uint8_t {
  kRowMajor,
  // [N, H, W, C] kept as [N, C / 16, H, W, 16] (oneDNN's nChw16c); C is a multiple of 16.
  kChannelBlocked,
};

// The part of all elements that one of several devices with common variables updates, as ShareOf defines it; everything
// for a device with variables of its own.
struct UpdatePart {
  int part = 0, parts = 1;
};

// The pointers of one run. Outputs do not overlap inputs, except as the kernel's in_place pairs allow.
struct KernelArgs {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  void* scratch = nullptr;

  template <typename T>
  const T* input(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  // The address of an input that is a variable, for ops that write it.
  template <typename T>
  T* variable(int i) const {
    return static_cast<T*>(const_cast<void*>(inputs[i]));
  }
  template <typename T>
  T* output(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};

struct Kernel {
  // Computes the outputs. It fails only for errors that depend on the data (a label outside the classes).
  std::function<absl::Status(const KernelArgs&)> run;
  // The size of KernelArgs::scratch, aligned to 64 bytes; its content does not survive the run.
  int64_t scratch_bytes = 0;
  // What computes it, for people: "oneDNN jit:avx512_core", "Winograd". Empty: a kernel of this program, the only one.
  std::string algorithm = {};
};

// The description of the kernel to make.
struct KernelSpec {
  const Node& node;
  Device& device;
  absl::Span<const Layout> input_layouts;
  absl::Span<const Layout> output_layouts;
  // The store for choices that a kernel makes by timing. If nullptr, nothing is timed and the choice depends on the
  // node alone.
  AlgorithmChoices* choices = nullptr;
  // The part of the variables that devices share which this device updates.
  UpdatePart update_part = {};

  const TensorType& input(int i) const { return node.input(i).type(); }
  const TensorType& output(int i) const { return node.output_types()[i]; }
  const Attrs& attrs() const { return node.attrs(); }
};
using KernelFactory = std::function<absl::StatusOr<Kernel>(const KernelSpec&)>;

// The layouts in which a kernel takes its inputs and gives its outputs.
struct LayoutChoice {
  std::vector<Layout> inputs, outputs;
};
// Chooses the layouts, given those that the inputs have now. The planner puts a Reorder before inputs that differ.
using LayoutRule = std::function<LayoutChoice(const Node& node, absl::Span<const Layout> current)>;

// Returns the factory that calls make(spec, T()), where T is the C++ type of input 0, one of StorageTypes(), and
// returns the result: a Kernel or a StatusOr of one.
template <typename Make>
KernelFactory ForStorageType(Make make) {
  return [make](const KernelSpec& spec) {
    return WithStorageType(spec.input(0).dtype, [&](auto zero) -> absl::StatusOr<Kernel> { return make(spec, zero); });
  };
}

struct KernelDef {
  OpName op;
  std::string device_kind;
  // The key types (see KeyType) that this kernel supports.
  std::vector<DType> dtypes;
  // Null where the kind of device merges the nodes of a graph (DeviceKind::merge): the op can be part of what it makes.
  KernelFactory make;
  // Pairs {output, input}: the output may take the input's buffer if nothing reads the input afterwards, and if both
  // have one element type and as many bytes.
  std::vector<std::pair<int, int>> in_place = {};
  // True for the same with {0, 0}, {1, 1}, ... of a node with at least as many inputs as outputs.
  bool each_in_place = false;
  // If this is absent, everything is row-major.
  LayoutRule layout = nullptr;
};

// The type that decides which kernel runs a node: that of its first input, or of output 0 if it has no inputs.
DType KeyType(const Node& node);

// Returns the line of Program::DebugString for a node: "Op(name:0 float32[2,3], ...) -> name:0 float32[2]\n", where
// `type_text` words the types.
std::string KernelLine(const Node& node, absl::FunctionRef<std::string(const Value&)> type_text);

class KernelRegistry {
 public:
  static KernelRegistry& Global();
  void Add(KernelDef def);
  // Returns nullptr if the device has no kernel for this op and type.
  const KernelDef* Find(OpName op, absl::string_view device_kind, DType dtype) const;
  // Returns all kernels, sorted by op, then device kind.
  std::vector<const KernelDef*> All() const;

 private:
  std::vector<std::unique_ptr<KernelDef>> defs_;
};

// Registers at static initialization: const bool registered = RegisterKernel({.op = op::Relu, .device_kind = "cpu",
// ...});
bool RegisterKernel(KernelDef def);

// The layout rule of kernels that compute element by element in any order: every input and the output have one shape
// and one layout (blocked if at least one input is); other inputs (scalars) stay row-major.
LayoutChoice SameLayoutEverywhere(const Node& node, absl::Span<const Layout> current);
// The layouts with everything row-major.
LayoutChoice AllRowMajor(const Node& node);

}  // namespace official::compute
