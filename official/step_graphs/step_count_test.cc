#include "official/step_graphs/step_count.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "official/step_graphs/step_graphs.h"

namespace official::step_graphs {
namespace {

using compute::DType;

StepCount CountOf(const std::string& name, DType dtype) {
  for (const TrainedModel& model : CountedModels()) {
    if (model.name != name) continue;
    const train::BuiltModel built =
        train::BuildModel(model.model, train::Mode::kTrain, dtype, DefaultLossScale(dtype),
                          model.types(train::Mode::kTrain, model.batch), /*has_examples=*/true, /*num_replicas=*/1)
            .value();
    return CountStep(built, kH200).value();
  }
  FAIL("there is no model " << name);
  return {};
}

TEST_CASE("A step on a GPU has few nodes") {
  const auto [name, most, most_narrow] =
      GENERATE(std::tuple{"mnist", 18, 27}, std::tuple{"resnet-32 v1", 210, 210}, std::tuple{"resnet-50 v1", 320, 320},
               std::tuple{"transformer base", 610, 610}, std::tuple{"ncf ml-20m", 10, 10});
  CAPTURE(name);
  CHECK(CountOf(name, DType::kFloat32).nodes <= most);
  CHECK(CountOf(name, DType::kBFloat16).nodes <= most_narrow);
}

TEST_CASE("The operations of mnist are those of its layers") {
  // Multiplications for an image: two convolutions of 5 x 5, two dense layers. The backward pass has them twice, but
  // for the gradient of the images.
  constexpr double kFirst = 28 * 28 * 32 * 25.0;
  constexpr double kOthers = 14 * 14 * 64 * 32 * 25.0 + 7 * 7 * 64 * 1024.0 + 1024 * 10.0;
  CHECK(CountOf("mnist", DType::kFloat32).flops == Approx(2 * 100 * (2 * kFirst + 3 * kOthers)));
}

TEST_CASE("A step moves at least what the roofline counts, in no less time") {
  const std::string name = GENERATE("mnist", "resnet-32 v1", "resnet-50 v1", "transformer base", "ncf ml-20m");
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  CAPTURE(name, dtype);
  const StepCount count = CountOf(name, dtype);
  CHECK(count.roofline_bytes > 0);
  CHECK(count.roofline_bytes <= count.bytes);
  CHECK(count.roofline_seconds <= count.node_seconds);
}

}  // namespace
}  // namespace official::step_graphs
