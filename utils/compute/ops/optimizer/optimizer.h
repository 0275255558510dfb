// Optimizers as TensorFlow 1.x defines them, each one fused pass over all variables. Their slots are variables with
// TensorFlow's names, so that checkpoints carry over.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName ApplyGradientDescent("ApplyGradientDescent");
inline constexpr OpName ApplyMomentum("ApplyMomentum");
inline constexpr OpName ApplyAdam("ApplyAdam");
inline constexpr OpName UpdateMovingAverages("UpdateMovingAverages");
inline constexpr OpName Accumulate("Accumulate");
inline constexpr OpName AssignAdd("AssignAdd");
inline constexpr OpName AssignScale("AssignScale");

}  // namespace official::compute::op

// An update with the attribute "clip_value" clips the elements of gradients (clip.h); such an update is guarded.
//
// The inputs of updates: kNumScalars scalars, which Input names; if the attribute "guarded" is true, those of
// update_guard; then groups of kGroupSize tensors, one for each variable. Group names the places in a group. The last
// place is that of the gradient or, where there is none, of the value that the variable approaches or is added to.
namespace official::compute::update_guard {
enum Input : int { kLossScale, kApply };  // counted from the first input behind the scalars
inline constexpr int kNumScalars = 2;
}  // namespace official::compute::update_guard

namespace official::compute::apply_gradient_descent {
enum Input : int { kLearningRate };
enum Group : int { kVariable, kGradient };
inline constexpr int kNumScalars = 1, kGroupSize = 2;
}  // namespace official::compute::apply_gradient_descent

namespace official::compute::apply_momentum {
enum Input : int { kLearningRate };
enum Group : int { kVariable, kMomentum, kGradient };
inline constexpr int kNumScalars = 1, kGroupSize = 3;
}  // namespace official::compute::apply_momentum

// The scalars are those of all forms of Adam.
namespace official::compute::apply_adam {
enum Input : int { kLearningRate, kBeta1Power, kBeta2Power };
enum Group : int { kVariable, kM, kV, kGradient };
inline constexpr int kNumScalars = 3, kGroupSize = 4;
}  // namespace official::compute::apply_adam

namespace official::compute::update_moving_averages {
enum Group : int { kVariable, kValue };
inline constexpr int kNumScalars = 0, kGroupSize = 2;
}  // namespace official::compute::update_moving_averages

// It is never guarded.
namespace official::compute::accumulate {
enum Input : int { kAdd };
enum Group : int { kVariable, kValue };
inline constexpr int kNumScalars = 1, kGroupSize = 2;
}  // namespace official::compute::accumulate

namespace official::compute::assign_add {
enum Group : int { kVariable, kDelta };
inline constexpr int kGroupSize = 2;
}  // namespace official::compute::assign_add

// The inputs of AssignScale are as many variables as the attribute "factors" has elements, each of which is multiplied
// by its factor, and perhaps a bool scalar: if it is false, the variables stay as they are.

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
  // More than 0, with a loss scale: each element of a gradient is then clipped into [-clip_value, clip_value].
  std::optional<double> clip_value = std::nullopt;
  // True: Adam brings the rows that IndexedSlices name up to date itself and defers the steps of the others
  // (deferred_adam.h).
  bool defers_rows = false;
};

// Returns InvalidArgument, as TensorFlow's optimizers do, for `variables` of which none has a gradient.
absl::Status NoGradientsError(absl::Span<const Value> variables);

struct MomentumParams {
  double momentum = 0.9;
  bool nesterov = false;
};

struct AdamParams {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
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

struct Count {
  Value variable;  // a scalar, int64 or float32
  Value delta;     // of the same type
};

// Does variable += delta for counters such as global_step, for all in one pass.
Node* AssignAdd(absl::Span<const Count> counts);

}  // namespace official::compute
