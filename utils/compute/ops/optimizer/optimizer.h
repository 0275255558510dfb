// Optimizers as TensorFlow 1.x defines them, each one fused pass over all variables. Their slots are variables with
// TensorFlow's names, so that checkpoints carry over.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName ApplyGradientDescent("ApplyGradientDescent");
inline constexpr OpName ApplyMomentum("ApplyMomentum");
inline constexpr OpName ApplyAdam("ApplyAdam");
inline constexpr OpName ApplyLazyAdam("ApplyLazyAdam");
inline constexpr OpName UpdateMovingAverages("UpdateMovingAverages");
inline constexpr OpName Accumulate("Accumulate");
inline constexpr OpName AssignAdd("AssignAdd");
inline constexpr OpName AssignScale("AssignScale");

}  // namespace official::compute::op

namespace official::compute {

// A float32 variable and its gradient, of the same shape.
struct VariableGradient {
  Value variable;
  Value gradient;
};

// The inputs of an update other than variables and gradients.
struct UpdateInputs {
  UpdateInputs(Value learning_rate) : learning_rate(learning_rate) {}  // NOLINT: most updates have no more

  Value learning_rate;  // float32 scalar
  // Both are given or neither. The gradients are divided by `loss_scale`, a float32 scalar; if `apply`, a bool scalar,
  // is false, variables, slots and powers stay as they are.
  Value loss_scale = {}, apply = {};
};

struct MomentumParams {
  double momentum = 0.9;
  bool nesterov = false;
};

struct AdamParams {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  // True for tf.contrib.opt.LazyAdamOptimizer: a gradient that is an IndexedSlices updates only the rows it names and
  // their moments. If false, every gradient is dense.
  bool lazy = false;
  std::string scope = "";  // the prefix of the names of slots and powers, such as "model/get_train_op/"
};

// Each function adds the nodes that do one update and returns them: they are targets of the training program.

// v -= lr * g
std::vector<Node*> GradientDescent(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables);

// a = momentum * a + g; v -= lr * a; with Nesterov v -= lr * (g + momentum * a). Slot <variable>/Momentum holds a.
std::vector<Node*> Momentum(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables,
                            const MomentumParams& params);

// m += (g - m) * (1 - beta1); s += (g * g - s) * (1 - beta2);
// v -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(s) + epsilon), t the number of this update from 1.
// Slots <variable>/Adam (m) and <variable>/Adam_1 (s); beta1_power and beta2_power hold beta^t.
// A gradient that is an IndexedSlices of rows that CatchUpRows (deferred_adam.h) brought up to date has the same
// effect, but rows that it does not name get their steps later. Source: Kingma and Ba 2015, the form before section 2.1
// (epsilon outside the bias correction).
std::vector<Node*> Adam(const UpdateInputs& inputs, absl::Span<const VariableGradient> variables,
                        const AdamParams& params);

struct MovingAverage {
  Value variable;  // float32, not trainable
  Value value;     // the value of this step, of the same shape
};

// Does variable -= (variable - value) * (1 - momentum), for all in one pass, with every operation rounded to float32:
// the bits of TensorFlow's batch_normalization. `apply`, if given, is a bool scalar: false leaves the variables as they
// are.
Node* UpdateMovingAverages(absl::Span<const MovingAverage> averages, double momentum, Value apply = {});

struct RunningSum {
  Value variable;  // float32, each device's own
  Value value;     // the value of this run, of the same shape
};

// Sums over several runs: variable = value or, if the bool scalar `add` is true, variable + value; for all in one pass.
Node* Accumulate(Value add, absl::Span<const RunningSum> sums);

// Does variable += delta, a scalar of the variable's type (int64 or float32), for counters such as global_step.
Node* AssignAdd(Value variable, Value delta);

}  // namespace official::compute
