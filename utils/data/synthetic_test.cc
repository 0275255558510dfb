#include "utils/data/synthetic.h"

#include <catch2/catch.hpp>

namespace official::data {
namespace {

using compute::DType;
using compute::Shape;
using compute::Tensor;

// The elements of a tensor of batch size 1, as doubles.
std::vector<double> Values(const Tensor& tensor) {
  const Tensor doubles = tensor.CastTo(DType::kFloat64);
  return {doubles.data<double>(), doubles.data<double>() + doubles.num_elements()};
}

// The three cases are those of model_helpers_test.py in tensorflow/models r1.9.
TEST_CASE("Synthetic data repeats input and label") {
  const SyntheticOptions options = {
      .input = {.shapes = {{"", {5}}}, .value = int64_t{123}, .dtype = DType::kFloat32},
      .label = {.shapes = {{"", {}}}, .value = int64_t{456}, .dtype = DType::kInt32},
  };
  const BatchSourcePtr source = GenerateSyntheticData(options, {.batch_size = 1}).value();
  CHECK(source->spec().features == std::vector<Leaf>{{"", {DType::kFloat32, {5}}}});
  CHECK(source->spec().labels == std::vector<Leaf>{{"", {DType::kInt32, {}}}});
  for (int i = 0; i < 5; ++i) {
    const Batch batch = *source->Next().value();
    CHECK(Values(batch.features[0]) == std::vector<double>(5, 123));
    CHECK(Values(batch.labels[0]) == std::vector<double>{456});
    CHECK(batch.first == Position{0, i});
  }
}

TEST_CASE("Synthetic data without a label shape has no labels") {
  const BatchSourcePtr source =
      GenerateSyntheticData({.input = {.shapes = {{"", {4}}}, .value = 43.5}}, {.batch_size = 1}).value();
  const Batch batch = *source->Next().value();
  CHECK(Values(batch.features[0]) == std::vector<double>(4, 43.5));
  CHECK(batch.labels.empty());
}

TEST_CASE("Synthetic data may be nested") {
  const SyntheticOptions options = {.input = {.shapes = {{"a", {2}}, {"b/c", {3}}, {"b/d", {}}}, .value = 1.1}};
  const BatchSourcePtr source = GenerateSyntheticData(options, {.batch_size = 1}).value();
  const Batch batch = *source->Next().value();
  const double value = 1.1f;
  CHECK(Values(batch.features[0]) == std::vector<double>(2, value));
  CHECK(Values(batch.features[1]) == std::vector<double>(3, value));
  CHECK(Values(batch.features[2]) == std::vector<double>{value});
  REQUIRE(source->spec().features.size() == 3);
  CHECK(source->spec().features[1].name == "b/c");
}

TEST_CASE("The type of synthetic data follows from the value if it is not given") {
  const auto dtype = [](std::variant<int64_t, double> value) {
    const SyntheticOptions options = {.input = {.shapes = {{"", {1}}}, .value = value}};
    return GenerateSyntheticData(options, {}).value()->spec().features[0].type.dtype;
  };
  CHECK(dtype(int64_t{7}) == DType::kInt32);
  CHECK(dtype(7.0) == DType::kFloat32);
}

TEST_CASE("Synthetic batches have the sizes and places of real ones, and share memory") {
  const SyntheticOptions options = {.input = {.shapes = {{"image", {2, 3}}}, .value = 0.5}, .num_examples = 5};
  const BatchSourcePtr source = GenerateSyntheticData(options, {.batch_size = 2, .end_epoch = 2}).value();
  const Batch first = *source->Next().value();
  CHECK(first.features[0].shape() == Shape({2, 2, 3}));
  CHECK(source->Next().value()->features[0].raw_data() == first.features[0].raw_data());
  const Batch partial = *source->Next().value();
  CHECK(partial.features[0].shape() == Shape({1, 2, 3}));
  CHECK(Values(partial.features[0]) == std::vector<double>(6, 0.5));
  CHECK(partial.next == Position{1, 0});
  CHECK(source->Next().value()->num_examples == 2);
  REQUIRE(source->Next().ok());
  CHECK(source->Next().value()->num_examples == 1);
  CHECK_FALSE(source->Next().value().has_value());
  CHECK(absl::IsInvalidArgument(GenerateSyntheticData(options, {.batch_size = 0}).status()));
}

}  // namespace
}  // namespace official::data
