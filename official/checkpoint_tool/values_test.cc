#include "official/checkpoint_tool/values.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace official::checkpoint_tool {
namespace {

using compute::BFloat16;
using compute::DType;
using compute::Half;
using compute::Tensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_CASE("Statistics are those of the finite elements") {
  const Statistics found = StatisticsOf(Tensor::Of<float>({2, 3}, {1, kNan, 3, -kInf, 5, 7}));
  CHECK(found.min == 1);
  CHECK(found.max == 7);
  CHECK(found.mean == 4);
  CHECK(found.std == Approx(std::sqrt(5.0)));  // distances 3, 1, 1, 3
  CHECK(found.num_nonfinite == 2);
  CHECK(found.first_nonfinite == 1);
}

TEST_CASE("Statistics of nothing finite are zero") {
  for (const Tensor& tensor : {Tensor(DType::kFloat32, {0}), Tensor::Of<float>({1}, {kNan})}) {
    const Statistics found = StatisticsOf(tensor);
    CHECK((found.min == 0 && found.max == 0 && found.mean == 0 && found.std == 0));
    CHECK(found.num_nonfinite == tensor.num_elements());
  }
}

TEST_CASE("Large doubles are finite, and all types have statistics") {
  CHECK(StatisticsOf(Tensor::Scalar(1e300)).num_nonfinite == 0);
  CHECK(StatisticsOf(Tensor::Of<int64_t>({2}, {-3, 5})).mean == 1);
  CHECK(StatisticsOf(Tensor::Of<bool>({2}, {true, false})).mean == 0.5);
  CHECK(StatisticsOf(Tensor::Scalar(BFloat16(1.5f))).max == 1.5);
  CHECK(StatisticsOf(Tensor::Scalar(Half(kInf))).num_nonfinite == 1);
}

TEST_CASE("Differences are counted, and the largest is found") {
  const Tensor a = Tensor::Of<float>({4}, {1, 2, -4, 0});
  const Difference found = DifferenceOf(a, Tensor::Of<float>({4}, {1, 2.5, -5, -0.0f}), 0);
  CHECK(found.num_different == 2);
  CHECK(found.max_abs == 1);
  CHECK(found.max_rel == 0.2);
  CHECK(DifferenceOf(a, a, 0).num_different == 0);
}

TEST_CASE("The tolerance is absolute below 1 and relative above") {
  const Tensor a = Tensor::Of<double>({3}, {0.25, 1000, 1000}), b = Tensor::Of<double>({3}, {0.375, 1100, 1200});
  CHECK(DifferenceOf(a, b, 0.125).num_different == 1);  // only 1000 and 1200
  CHECK(DifferenceOf(a, b, 0.124).num_different == 2);
  CHECK(DifferenceOf(a, b, 0.125).max_abs == 200);
  // Whole numbers have none.
  CHECK(DifferenceOf(Tensor::Scalar<int64_t>(1), Tensor::Scalar<int64_t>(2), 10).num_different == 1);
}

TEST_CASE("NaN equals NaN, and differs from a number by infinity") {
  const Tensor a = Tensor::Of<float>({3}, {kNan, kInf, kNan}), b = Tensor::Of<float>({3}, {-kNan, kInf, 1});
  const Difference found = DifferenceOf(a, b, 1e30);
  CHECK(found.num_different == 1);
  CHECK(found.max_abs == kInf);
  CHECK(DifferenceOf(Tensor::Scalar(kInf), Tensor::Scalar(-kInf), 1).num_different == 1);
}

TEST_CASE("Neighbouring large integers differ, though their doubles do not") {
  const int64_t large = int64_t{1} << 60;
  CHECK(DifferenceOf(Tensor::Scalar(large), Tensor::Scalar(large + 1), 0).num_different == 1);
}

TEST_CASE("A mean is summed in double and rounded once") {
  // In float, 2^24 + 1 + 1 is 2^24.
  const float values[] = {16777216, 1, 1};
  const auto mean = MeanOf({DType::kFloat32, {1}}, 3, [&](int i) { return Tensor::Of<float>({1}, {values[i]}); });
  CHECK(mean.value().scalar<float>() == static_cast<float>(16777218.0 / 3));
  const auto halves = MeanOf({DType::kFloat16, {}}, 2, [](int i) { return Tensor::Scalar(Half(i == 0 ? 1 : 2)); });
  CHECK(static_cast<float>(halves.value().scalar<Half>()) == 1.5f);
  const auto failed = MeanOf({DType::kFloat32, {}}, 2, [](int) { return absl::DataLossError("damaged"); });
  CHECK(absl::IsDataLoss(failed.status()));
}

TEST_CASE("Elements have the fewest digits that read back") {
  CHECK(ElementText(Tensor::Scalar(0.1f), 0) == "0.1");
  CHECK(ElementText(Tensor::Scalar(0.1), 0) == "0.1");
  CHECK(ElementText(Tensor::Scalar(-kInf), 0) == "-inf");
  CHECK(ElementText(Tensor::Of<uint8_t>({2}, {1, 200}), 1) == "200");
  CHECK(ElementText(Tensor::Scalar<int64_t>(-7), 0) == "-7");
  CHECK(ElementText(Tensor::Scalar(true), 0) == "true");
  CHECK(logs::DumpJson(ElementJson(Tensor::Scalar(0.5f), 0)) == "0.5");
  CHECK(logs::DumpJson(ElementJson(Tensor::Scalar(false), 0)) == "false");
}

}  // namespace
}  // namespace official::checkpoint_tool
