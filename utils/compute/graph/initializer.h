// The initial value of a variable. It is a description, not code, so that it is the same on every device and in every
// run.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"

namespace official::compute {

struct Initializer {
  enum class Kind {
    kConstant,         // every element `value`
    kUniform,          // uniform in [-value, value)
    kNormal,           // normal with mean 0 and standard deviation `value`
    kTruncatedNormal,  // the same, drawn again beyond two standard deviations
  };
  Kind kind = Kind::kConstant;
  double value = 0;

  static Initializer Constant(double value) { return {Kind::kConstant, value}; }
  static Initializer Zeros() { return Constant(0); }
  static Initializer Ones() { return Constant(1); }
  // Uniform in +-sqrt(6 / (fan_in + fan_out)): TensorFlow's default for kernels (Glorot and Bengio, 2010, section 4.2).
  // The last two dimensions are input and output channels; the others multiply both fans. The rank is at least 1.
  static Initializer GlorotUniform(const Shape& shape);
  // Uniform in +-sqrt(3 / fan_in): a variance of 1 / fan_in (LeCun et al., 1998, section 4.6).
  static Initializer LecunUniform(const Shape& shape);
  // Truncated normal with standard deviation sqrt(scale / fan_in), without TensorFlow's later correction by 0.8796.
  static Initializer VarianceScaling(const Shape& shape, double scale = 1.0);
  static Initializer Normal(double stddev) { return {Kind::kNormal, stddev}; }
};

// The initial value of the variable `name` under `seed`: element i depends on (seed, name, i) only.
Tensor InitialValue(const Initializer& initializer, const TensorType& type, absl::string_view name, uint64_t seed);

}  // namespace official::compute
