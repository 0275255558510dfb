// OpDef: all of an op that is not a kernel. Registered under its name by the op's own source file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

struct InferContext {
  absl::string_view op;
  absl::Span<const Value> inputs;
  const Attrs& attrs;

  int num_inputs() const { return static_cast<int>(inputs.size()); }
  const TensorType& type(int i) const { return inputs[i].type(); }
  const Shape& shape(int i) const { return inputs[i].shape(); }
  DType dtype(int i) const { return inputs[i].dtype(); }
  // InvalidArgument "<op>: <message>; inputs are float32[2,3], float32[4]".
  absl::Status Error(absl::string_view message) const;
};

// Largest error of the op's kernels against a float64 reference, relative to max(1, |reference|): the tested tolerance
// of the op table.
struct Tolerance {
  double float32 = 1e-4;
  double bfloat16 = 2e-2;

  // Three more bits of fraction than bfloat16: its rounding errors are an eighth of those.
  double half() const { return bfloat16 / 8; }
  // float32 for types that are not floating.
  double Of(DType dtype) const {
    return dtype == DType::kBFloat16 ? bfloat16 : dtype == DType::kFloat16 ? half() : float32;
  }
};

struct OpDef {
  std::string name;
  // Types of the outputs from the inputs and attributes; an error says what does not fit.
  std::function<absl::StatusOr<std::vector<TensorType>>(const InferContext&)> infer;
  // Adds the nodes of the backward pass: given the gradients of the outputs (invalid where none is needed), the
  // gradient of each input (invalid: none flows there). Absent: no gradient flows through the op.
  std::function<std::vector<Value>(const Node& node, absl::Span<const Value> output_gradients)> gradient = nullptr;
  // Output 0 is input 0's bytes under another type (Reshape): no kernel, no copy.
  bool is_view = false;
  // Writes into input buffers (variables): never removed as dead, never reordered.
  bool has_side_effect = false;
  // An update of variables by what was computed for them. Where devices share variables, each makes a part of it.
  bool is_update = false;
  // Comes between what reads variables and their updates. Where devices share variables, they meet in it.
  bool precedes_updates = false;
  // Runs as soon as its inputs exist, before what was built in between: for work that goes on while others run.
  bool runs_early = false;
  // Depends on more than inputs and attributes, so it must not be folded.
  bool is_source = false;
  Tolerance tolerance = {};
};

// Registers at static initialization: const bool registered = RegisterOp({.name = "Relu", ...});
bool RegisterOp(OpDef def);
// nullptr if there is none.
const OpDef* FindOp(absl::string_view name);
// All registered ops by name.
std::vector<const OpDef*> AllOps();

// Shape rules that many ops share.
absl::StatusOr<std::vector<TensorType>> SameTypeAsInput(const InferContext& c);
// The shape of a and b broadcast together by NumPy's rule, or an error.
absl::StatusOr<Shape> BroadcastShape(const Shape& a, const Shape& b);

}  // namespace official::compute
