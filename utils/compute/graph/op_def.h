// OpDef: the definition of an op, without its kernels. The op's own source file registers it under its name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute {

struct InferContext {
  OpName op;
  absl::Span<const Value> inputs;
  const Attrs& attrs;

  int num_inputs() const { return static_cast<int>(inputs.size()); }
  const TensorType& type(int i) const { return inputs[i].type(); }
  const Shape& shape(int i) const { return inputs[i].shape(); }
  DType dtype(int i) const { return inputs[i].dtype(); }
  // Returns InvalidArgument "<op>: <message>; inputs are float32[2,3], float32[4]".
  absl::Status Error(absl::string_view message) const;
};

// The largest error of the op's kernels against a float64 reference, relative to max(1, |reference|): the tested
// tolerance of the op table.
struct Tolerance {
  double float32 = 1e-4;
  double bfloat16 = 2e-2;

  // half has three more bits of fraction than bfloat16, so its rounding errors are an eighth of bfloat16's.
  double half() const { return bfloat16 / 8; }
  // The tolerance for `dtype`; that of float32 for types that are not floating.
  double Of(DType dtype) const {
    return dtype == DType::kBFloat16 ? bfloat16 : dtype == DType::kFloat16 ? half() : float32;
  }
};

struct OpDef {
  OpName name;
  // Infers the types of the outputs from the inputs and attributes; an error says what does not fit.
  std::function<absl::StatusOr<std::vector<TensorType>>(const InferContext&)> infer;
  // Adds the nodes of the backward pass: given the gradients of the outputs (invalid where none is needed), returns the
  // gradient of each input (invalid where none flows). If this is absent, no gradient flows through the op.
  std::function<std::vector<Value>(const Node& node, absl::Span<const Value> output_gradients)> gradient = nullptr;
  // For an input that is a table of which the op reads only the rows [i, ...] that another input names: returns the
  // number of that input, which has int32 row numbers. Nothing for all other inputs.
  std::function<std::optional<int>(const Node& node, int input)> row_ids = nullptr;
  // True if inputs are broadcast to the shape of output 0 by NumPy's rule. Their gradients may then have that shape:
  // Gradients() sums them to the shapes of the inputs.
  bool broadcasts = false;
  // True if output 0 is input 0's bytes, or the first of them, under another type (Reshape, FirstRows): it needs no
  // kernel and no copy.
  bool is_view = false;
  // True if the op writes into input buffers (variables): it is never removed as dead and never reordered.
  bool has_side_effect = false;
  // True for an update of variables by values that were computed for them. If devices share variables, each makes a
  // part of it.
  bool is_update = false;
  // True if the op comes between the ops that read variables and their updates. If devices share variables, they meet
  // in it.
  bool precedes_updates = false;
  // True if the op runs as soon as its inputs exist, before ops that were built in between: for work that continues
  // while others run.
  bool runs_early = false;
  // True if no kernel makes the result: a constant, an input, a variable.
  bool is_source = false;
  Tolerance tolerance = {};
};

// Registers at static initialization: const bool registered = RegisterOp({.name = op::Relu, ...});
bool RegisterOp(OpDef def);
// Returns nullptr if there is none.
const OpDef* FindOp(absl::string_view name);
// All registered ops by name.
std::vector<const OpDef*> AllOps();

// Shape rules that many ops share.
absl::StatusOr<std::vector<TensorType>> SameTypeAsInput(const InferContext& c);
// The shape of a and b broadcast together by NumPy's rule, or an error.
absl::StatusOr<Shape> BroadcastShape(const Shape& a, const Shape& b);

}  // namespace official::compute
