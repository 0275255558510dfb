// CPU kernels of the optimizers. The variables of one update are one long row of elements, cut evenly among threads,
// so that many small variables cost what one large one does. The BUILD file has this file compiled without contraction:
// products are rounded before they are added, as TensorFlow's CPU kernels do it.

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/optimizer/adam_step.h"
#include "utils/compute/ops/optimizer/clip.h"
#include "utils/compute/ops/optimizer/moving_average.h"
#include "utils/compute/ops/optimizer/optimizer.h"

namespace official::compute {
namespace {

#define OFFICIAL_ISA_FILE "utils/compute/ops/optimizer/adam-inl.h"
#include "utils/compute/cpu/foreach_isa.h"

// Take the loss scale off an element of a gradient, and clip it.
struct NoScale {
  static constexpr float scale = 1, limit = kNoClip;
  float operator()(float g) const { return g; }
};
struct Unscale {
  float scale;
  static constexpr float limit = kNoClip;
  float operator()(float g) const { return g / scale; }
};
struct UnscaleAndClip {
  float scale, limit;
  float operator()(float g) const { return ClipByValue(g / scale, limit); }
};

// The loss scale and whether to apply the update, which are behind `scalars` other scalars of a guarded update.
class Guard {
 public:
  Guard(const KernelSpec& spec, int scalars)
      : guarded_(spec.attrs().GetBool("guarded")), limit_(ClipValueOf(spec.attrs())), scalars_(scalars) {}

  // The input that follows all scalars.
  int first() const { return scalars_ + (guarded_ ? update_guard::kNumScalars : 0); }
  bool Applies(const KernelArgs& args) const { return !guarded_ || *args.input<bool>(scalars_ + update_guard::kApply); }
  // Calls f with one of the above.
  template <typename F>
  void WithUnscale(const KernelArgs& args, F f) const {
    if (!guarded_) return f(NoScale());
    const float scale = *args.input<float>(scalars_ + update_guard::kLossScale);
    if (limit_ == kNoClip) return f(Unscale{scale});
    f(UnscaleAndClip{scale, limit_});
  }

 private:
  bool guarded_;
  float limit_;
  int scalars_;
};

// Variables, by the inputs that they are, whose elements stand in a row.
struct Row {
  std::vector<int> inputs;
  std::vector<int64_t> starts = {0};  // of each variable, and the end

  void Add(int input, int64_t elements) {
    inputs.push_back(input);
    starts.push_back(starts.back() + elements);
  }
};

// Calls update(input, begin, end) for all elements of the part, in parallel, with WithSimd around each call.
template <typename F>
void ForAllElements(const Row& row, UpdatePart part, F update) {
  const Share share = ShareOf(row.starts.back(), part.part, part.parts);
  ParallelFor(share.size(), 16384, [&](int64_t begin, int64_t end) {
    begin += share.begin;
    end += share.begin;
    size_t k = std::upper_bound(row.starts.begin(), row.starts.end(), begin) - row.starts.begin() - 1;
    for (; begin < end; ++k) {
      const int64_t start = row.starts[k], stop = std::min(end, row.starts[k + 1]);
      if (begin < stop) WithSimd([&] { update(row.inputs[k], begin - start, stop - start); });
      begin = std::max(begin, stop);
    }
  });
}

// A kernel that calls update(unscale, input, begin, end) for all elements that this device updates, `input` being the
// variable they are of, the first of its group. `prepare(args)` makes the update at each run.
template <typename F>
Kernel MakeUpdate(const KernelSpec& spec, int scalars, int group, F prepare) {
  const Guard guard(spec, scalars);
  Row common, own;  // scalars are each device's own
  for (int i = guard.first(); i < spec.node.num_inputs(); i += group) {
    const Shape& shape = spec.input(i).shape;
    (shape.rank() > 0 ? common : own).Add(i, shape.num_elements());
  }
  return Kernel{[=, part = spec.update_part](const KernelArgs& args) {
    if (!guard.Applies(args)) return absl::OkStatus();
    const auto update = prepare(args);
    guard.WithUnscale(args, [&](auto unscale) {
      const auto of_variable = [&](int input, int64_t begin, int64_t end) { update(unscale, input, begin, end); };
      ForAllElements(common, part, of_variable);
      ForAllElements(own, {}, of_variable);
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeGradientDescent(const KernelSpec& spec) {
  namespace places = apply_gradient_descent;
  return MakeUpdate(spec, places::kNumScalars, places::kGroupSize, [](const KernelArgs& args) {
    const float lr = *args.input<float>(places::kLearningRate);
    return [&args, lr](auto unscale, int first, int64_t begin, int64_t end) {
      float* __restrict v = args.variable<float>(first + places::kVariable);
      const float* __restrict g = args.input<float>(first + places::kGradient);
      for (int64_t i = begin; i < end; ++i) v[i] -= lr * unscale(g[i]);
    };
  });
}

absl::StatusOr<Kernel> MakeMomentum(const KernelSpec& spec) {
  namespace places = apply_momentum;
  const auto momentum = static_cast<float>(spec.attrs().GetFloat("momentum"));
  const bool nesterov = spec.attrs().GetBool("nesterov");
  return MakeUpdate(spec, places::kNumScalars, places::kGroupSize, [=](const KernelArgs& args) {
    const float lr = *args.input<float>(places::kLearningRate);
    return [=, &args](auto unscale, int first, int64_t begin, int64_t end) {
      float* __restrict v = args.variable<float>(first + places::kVariable);
      float* __restrict a = args.variable<float>(first + places::kMomentum);
      const float* __restrict gradient = args.input<float>(first + places::kGradient);
      if (nesterov) {
        for (int64_t i = begin; i < end; ++i) {
          const float g = unscale(gradient[i]);
          a[i] = a[i] * momentum + g;
          v[i] -= g * lr + a[i] * momentum * lr;
        }
      } else {
        for (int64_t i = begin; i < end; ++i) {
          a[i] = a[i] * momentum + unscale(gradient[i]);
          v[i] -= a[i] * lr;
        }
      }
    };
  });
}

absl::StatusOr<Kernel> MakeAdam(const KernelSpec& spec) {
  namespace places = apply_adam;
  const auto adam = HasAvx512() ? &avx512::AdamOfElements : &avx2::AdamOfElements;
  return MakeUpdate(
      spec, places::kNumScalars, places::kGroupSize, [=, rule = AdamStepOf(spec.attrs())](const KernelArgs& args) {
        AdamStep step = rule;
        step.alpha = AdamAlpha(args);
        return [=, &args](auto unscale, int first, int64_t begin, int64_t end) {
          const AdamState state = {args.variable<float>(first + places::kVariable),
                                   args.variable<float>(first + places::kM), args.variable<float>(first + places::kV)};
          adam(state.At(begin), args.input<float>(first + places::kGradient) + begin, end - begin, step, unscale.scale,
               unscale.limit);
        };
      });
}

absl::StatusOr<Kernel> MakeMovingAverages(const KernelSpec& spec) {
  namespace places = update_moving_averages;
  return MakeUpdate(spec, places::kNumScalars, places::kGroupSize,
                    [rate = MovingAverageRate(spec.attrs())](const KernelArgs& args) {
                      return [&args, rate](auto unscale, int first, int64_t begin, int64_t end) {
                        float* __restrict v = args.variable<float>(first + places::kVariable);
                        const float* __restrict value = args.input<float>(first + places::kValue);
                        for (int64_t i = begin; i < end; ++i) v[i] -= (v[i] - unscale(value[i])) * rate;
                      };
                    });
}

absl::StatusOr<Kernel> MakeAccumulate(const KernelSpec& spec) {
  namespace places = accumulate;
  Row row;
  for (int i = places::kNumScalars; i < spec.node.num_inputs(); i += places::kGroupSize) {
    row.Add(i, spec.input(i).shape.num_elements());
  }
  return Kernel{[row](const KernelArgs& args) {
    const bool add = *args.input<bool>(places::kAdd);
    ForAllElements(row, {}, [&](int first, int64_t begin, int64_t end) {
      float* __restrict sum = args.variable<float>(first + places::kVariable);
      const float* __restrict value = args.input<float>(first + places::kValue);
      if (add) {
        for (int64_t i = begin; i < end; ++i) sum[i] += value[i];
      } else {
        std::copy(value + begin, value + end, sum + begin);
      }
    });
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeAssignAdd(const KernelSpec& spec) {
  std::vector<bool> is_int64;
  for (int i = 0; i < spec.node.num_inputs(); i += assign_add::kGroupSize) {
    is_int64.push_back(spec.input(i).dtype == DType::kInt64);
  }
  return Kernel{[is_int64 = std::move(is_int64)](const KernelArgs& args) {
    for (size_t k = 0; k < is_int64.size(); ++k) {
      const int first = static_cast<int>(k) * assign_add::kGroupSize;
      const int variable = first + assign_add::kVariable, delta = first + assign_add::kDelta;
      if (is_int64[k]) {
        *args.variable<int64_t>(variable) += *args.input<int64_t>(delta);
      } else {
        *args.variable<float>(variable) += *args.input<float>(delta);
      }
    }
    return absl::OkStatus();
  }};
}

absl::StatusOr<Kernel> MakeAssignScale(const KernelSpec& spec) {
  const Tensor factors = spec.attrs().Get<Tensor>("factors");
  const int variables = static_cast<int>(factors.num_elements());
  const bool guarded = spec.node.num_inputs() > variables;
  return Kernel{[factors, variables, guarded](const KernelArgs& args) {
    if (guarded && !*args.input<bool>(variables)) return absl::OkStatus();
    for (int i = 0; i < variables; ++i) *args.variable<float>(i) *= factors.data<float>()[i];
    return absl::OkStatus();
  }};
}

bool Register(OpName op, KernelFactory make, std::vector<DType> dtypes = {DType::kFloat32}) {
  return RegisterKernel({.op = op, .device_kind = "cpu", .dtypes = std::move(dtypes), .make = std::move(make)});
}

const bool registered = Register(op::ApplyGradientDescent, MakeGradientDescent) &&
                        Register(op::ApplyMomentum, MakeMomentum) && Register(op::ApplyAdam, MakeAdam) &&
                        Register(op::UpdateMovingAverages, MakeMovingAverages) &&
                        Register(op::Accumulate, MakeAccumulate, {DType::kBool}) &&
                        Register(op::AssignAdd, MakeAssignAdd, {DType::kInt64, DType::kFloat32}) &&
                        Register(op::AssignScale, MakeAssignScale);

}  // namespace
}  // namespace official::compute
