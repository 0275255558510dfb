#include "utils/compute/graph/initializer.h"

#include <cmath>
#include <numbers>

#include "utils/compute/core/random.h"

namespace official::compute {
namespace {

struct Fans {
  double in, out;
};

Fans FansOf(const Shape& shape) {
  OFFICIAL_CHECK(shape.rank() >= 1) << "a scalar has no fan-in";
  if (shape.rank() == 1) return {static_cast<double>(shape.dim(0)), static_cast<double>(shape.dim(0))};
  const double receptive = static_cast<double>(shape.Product(0, shape.rank() - 2));
  return {receptive * shape.dim(-2), receptive * shape.dim(-1)};
}

// A standard normal number from two random words (Box and Muller, 1958).
double Gaussian(uint32_t a, uint32_t b) {
  const double u = (a + 1.0) * 0x1p-32;  // (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * (b * 0x1p-32));
}

}  // namespace

Initializer Initializer::GlorotUniform(const Shape& shape) {
  const Fans fans = FansOf(shape);
  return {Kind::kUniform, std::sqrt(6.0 / (fans.in + fans.out))};
}

Initializer Initializer::LecunUniform(const Shape& shape) {
  return {Kind::kUniform, std::sqrt(3.0 / FansOf(shape).in)};
}

Initializer Initializer::VarianceScaling(const Shape& shape, double scale) {
  return {Kind::kTruncatedNormal, std::sqrt(scale / FansOf(shape).in)};
}

Tensor InitialValue(const Initializer& initializer, const TensorType& type, absl::string_view name, uint64_t seed) {
  Tensor result(DType::kFloat32, type.shape);
  const absl::Span<float> values = result.flat<float>();
  const uint64_t stream = StreamOf(name.data(), name.size());
  const double scale = initializer.value;
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      for (float& v : values) v = static_cast<float>(scale);
      break;
    case Initializer::Kind::kUniform:
      for (size_t i = 0; i < values.size(); i += 4) {
        const Philox4 words = Philox(seed, stream, i / 4);
        for (size_t k = 0; k < 4 && i + k < values.size(); ++k) {
          values[i + k] = static_cast<float>((2.0 * UniformFloat(words[k]) - 1.0) * scale);
        }
      }
      break;
    case Initializer::Kind::kNormal:
    case Initializer::Kind::kTruncatedNormal: {
      const double limit = initializer.kind == Initializer::Kind::kNormal ? 1e30 : 2;
      for (size_t i = 0; i < values.size(); ++i) {
        double z = 3;
        for (uint32_t attempt = 0; attempt == 0 || std::abs(z) > limit; ++attempt) {
          const Philox4 words = Philox(seed ^ (uint64_t{attempt} << 32), stream, i);
          z = Gaussian(words[0], words[1]);
        }
        values[i] = static_cast<float>(z * scale);
      }
      break;
    }
  }
  return type.dtype == DType::kFloat32 ? result : result.CastTo(type.dtype);
}

}  // namespace official::compute
