// Helpers of op tests. One case runs on every device present and in every type the op has a kernel for, against a plain
// float64 reference written in the test; the kernels' gradients are compared with finite differences of that reference.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "utils/compute/graph/graph.h"
#include "utils/compute/program/program.h"

namespace official::compute::testing {

// The kinds of device that this machine has: "cpu", and "cuda" where the CUDA backend was built and there is a GPU, or
// where the test links emulated devices. OP_TEST_KIND in the environment names the only one to test.
std::vector<std::string> KindsUnderTest();

// Calls Program::Run and returns the first error of the run or of the device's work.
absl::Status RunAndWait(Program& program, absl::Span<const Tensor> feeds, Device& device);

// The elements of a tensor as doubles, whatever its type.
using Doubles = std::vector<double>;
Doubles ToDoubles(const Tensor& tensor);

// A tensor of uniform numbers in [low, high), a function of the seed.
Tensor RandomTensor(Shape shape, uint64_t seed, double low = -1, double high = 1);
// A tensor of uniform integers in [0, n).
Tensor RandomInts(Shape shape, uint64_t seed, int n);

struct OpCase {
  // The op under test: its registered kernels say where the case runs, its OpDef how exact it must be.
  OpName op;
  // Floating inputs are given as float32 and cast to the type under test; others are taken as they are.
  std::vector<Tensor> inputs;
  // Adds the op to the graph; returns the values to compare.
  std::function<std::vector<Value>(absl::Span<const Value> inputs)> build;
  // The same values computed plainly in float64.
  std::function<std::vector<Doubles>(const std::vector<Doubles>& inputs)> reference;
  // Other ops that `build` adds and that not every device has: the case runs where all of them have kernels.
  std::vector<OpName> needs = {};
};

// Compares all outputs with the reference, in float32 and, if there are kernels, bfloat16 and half; with fusion on and
// off.
void CheckForward(const OpCase& test);
// Compares the gradient of every floating input, under random output gradients, with central differences of the
// reference. Choose inputs at which the function is smooth within 1e-4.
void CheckGradients(const OpCase& test);

// Runs `build` on the inputs on a device of this kind and returns the results.
std::vector<Tensor> RunOn(absl::string_view device_kind, const std::vector<Tensor>& inputs,
                          const std::function<std::vector<Value>(absl::Span<const Value>)>& build,
                          const CompileOptions& options = {});
// The same on the CPU.
std::vector<Tensor> RunOnCpu(const std::vector<Tensor>& inputs,
                             const std::function<std::vector<Value>(absl::Span<const Value>)>& build,
                             const CompileOptions& options = {});
// Returns the ops of the kernels that the CPU runs for `build`, fused, in order.
std::vector<OpName> CompiledOps(const std::vector<TensorType>& inputs,
                                const std::function<std::vector<Value>(absl::Span<const Value>)>& build);
// Returns the status left by building `build` on inputs of these types.
absl::Status BuildStatus(const std::vector<TensorType>& inputs,
                         const std::function<std::vector<Value>(absl::Span<const Value>)>& build);

// Records the kernels of a test for the op table. With OP_TEST_RECORD=FILE in the environment, the functions above
// append to FILE a line "<op> <device> <type> <what> <tolerance>" for each kernel that they ran, where the type is the
// kernel's key type and <what> is:
//   forward   the kernel's results were compared with the reference
//   gradient  so was its gradient
//   part      it ran where other values or gradients were compared
//   run       it ran, and the test knows what to expect (tolerance 0)
// A test that compiles its own program calls this to add it, as "run".
void RecordKernels(const Program& program, absl::string_view device_kind);
// Records the gradient of an op; a test that itself compares it with central differences calls this.
void RecordGradient(OpName op, absl::string_view device_kind, DType dtype);

}  // namespace official::compute::testing
