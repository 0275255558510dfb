#include "official/resnet/resnet_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "utils/train/step.h"

namespace official::resnet {
namespace {

using Catch::Contains;
using compute::DType;

train::BuiltModel Build(const ModelConfig& config, train::Mode mode = train::Mode::kTrain) {
  const DatasetInfo& info = InfoOf(config.dataset);
  const data::ElementSpec spec{.features = {{"", {DType::kFloat32, {info.image_size, info.image_size, 3}}}},
                               .labels = {{"", {DType::kInt32, {}}}}};
  ModelConfig with_schedule = config;
  with_schedule.schedule.factors = {1};
  return train::BuildModel(ResnetModel(with_schedule), mode, DType::kFloat32, train::Batched(spec, 2)).value();
}

bool IsOurs(const compute::VariableSpec& v) { return absl::StartsWith(v.name, "resnet_model/"); }
bool IsSlot(const compute::VariableSpec& v) { return absl::EndsWith(v.name, "/Momentum"); }

// The official networks of tensorflow/models at d64bcfe3 under TensorFlow 1.10.1: trainable parameters, trainable
// variables, all variables of the network, batch normalizations and convolutions.
struct Counts {
  DatasetName dataset;
  int size, version;
  int64_t parameters;
  int trainable, all, norms, convs;
};
constexpr auto kImagenet = DatasetName::kImagenet, kCifar10 = DatasetName::kCifar10;
const Counts kOfficial[] = {
    {kImagenet, 18, 1, 11694249, 65, 107, 21, 21},
    {kImagenet, 18, 2, 11692329, 57, 91, 17, 21},
    {kImagenet, 34, 1, 21802409, 113, 187, 37, 37},
    {kImagenet, 34, 2, 21800489, 105, 171, 33, 37},
    {kImagenet, 50, 1, 25559081, 161, 267, 53, 53},
    {kImagenet, 50, 2, 25551401, 153, 251, 49, 53},
    {kImagenet, 101, 1, 44551209, 314, 522, 104, 104},
    {kImagenet, 101, 2, 44543529, 306, 506, 100, 104},
    {kImagenet, 152, 1, 60194857, 467, 777, 155, 155},
    {kImagenet, 152, 2, 60187177, 459, 761, 151, 155},
    {kImagenet, 200, 1, 64675881, 611, 1017, 203, 203},
    {kImagenet, 200, 2, 64668201, 603, 1001, 199, 203},
    {kCifar10, 8, 1, 78330, 32, 52, 10, 10},
    {kCifar10, 8, 2, 78106, 26, 40, 7, 10},
    {kCifar10, 20, 1, 272762, 68, 112, 22, 22},
    {kCifar10, 20, 2, 272538, 62, 100, 19, 22},
    {kCifar10, 32, 1, 467194, 104, 172, 34, 34},
    {kCifar10, 32, 2, 466970, 98, 160, 31, 34},
    {kCifar10, 44, 1, 661626, 140, 232, 46, 46},
    {kCifar10, 44, 2, 661402, 134, 220, 43, 46},
    {kCifar10, 56, 1, 856058, 176, 292, 58, 58},
    {kCifar10, 56, 2, 855834, 170, 280, 55, 58},
    {kCifar10, 110, 1, 1731002, 338, 562, 112, 112},
    {kCifar10, 110, 2, 1730778, 332, 550, 109, 112},
};

TEST_CASE("The networks have the official numbers of variables and parameters") {
  for (const Counts& official : kOfficial) {
    INFO(InfoOf(official.dataset).name << " " << official.size << " v" << official.version);
    const train::BuiltModel built =
        Build({.dataset = official.dataset, .size = official.size, .version = official.version});
    Counts found{official.dataset, official.size, official.version, 0, 0, 0, 0, 0};
    for (const compute::VariableSpec& v : built.graph->variables()) {
      if (!IsOurs(v) || IsSlot(v)) continue;
      ++found.all;
      if (v.trainable) ++found.trainable;
      if (v.trainable) found.parameters += v.type.shape.num_elements();
      if (absl::EndsWith(v.name, "/gamma")) ++found.norms;
      if (absl::StrContains(v.name, "conv2d") && absl::EndsWith(v.name, "/kernel")) ++found.convs;
    }
    CHECK(found.parameters == official.parameters);
    CHECK(found.trainable == official.trainable);
    CHECK(found.all == official.all);
    CHECK(found.norms == official.norms);
    CHECK(found.convs == official.convs);
  }
}

TEST_CASE("Every trainable variable has a momentum slot, and evaluation uses no other variables than training") {
  const auto names = [](train::Mode mode, bool slots) {
    const train::BuiltModel built = Build({.dataset = kCifar10, .size = 8, .version = 1}, mode);
    std::vector<std::string> found;
    for (const compute::VariableSpec& v : built.graph->variables()) {
      if (IsOurs(v) && IsSlot(v) == slots) found.push_back(v.name);
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  CHECK(names(train::Mode::kTrain, true).size() == 32);
  CHECK(names(train::Mode::kTrain, false) == names(train::Mode::kEval, false));
  CHECK(names(train::Mode::kPredict, false) == names(train::Mode::kEval, false));
}

// By hand: 50000 / 128 = 390.625 steps per epoch; epoch 100 ends in step 39062.5.
TEST_CASE("The learning rate of CIFAR-10 falls after the boundaries") {
  const DatasetInfo& info = InfoOf(kCifar10);
  const auto rate = LearningRate(kCifar10, {.boundary_epochs = info.boundary_epochs,
                                            .factors = info.factors,
                                            .batch_size = 128,
                                            .num_train_examples = 50000});
  CHECK(rate(0) == Approx(0.1));
  CHECK(rate(39062) == Approx(0.1));
  CHECK(rate(39063) == Approx(0.01));
  CHECK(rate(58593) == Approx(0.01));
  CHECK(rate(58594) == Approx(0.001));
  CHECK(rate(78125) == Approx(0.001));
  CHECK(rate(78126) == Approx(0.0001));
}

// By hand: two batches of 64 are a step, and 50000 / 128 = 390.625 steps an epoch. TensorFlow's SyncReplicasOptimizer
// does not change the rate itself, either.
TEST_CASE("The learning rate counts steps that take a batch of several workers, and begins as with one batch") {
  const auto rate = LearningRate(kCifar10, {.boundary_epochs = {100},
                                            .factors = {1, 0.1},
                                            .warmup_epochs = 1,
                                            .batch_size = 64,
                                            .batches_per_step = 2,
                                            .num_train_examples = 50000});
  CHECK(rate(195) == Approx(0.05 * 195 / 390));
  CHECK(rate(390) == Approx(0.05));
  CHECK(rate(39062) == Approx(0.05));
  CHECK(rate(39063) == Approx(0.005));
}

TEST_CASE("A boundary or a warm-up beyond all steps is never reached") {
  const auto rate = LearningRate(kCifar10, {.boundary_epochs = {5, 1e20, 1e308},
                                            .factors = {1, 0.1, 0.01, 0},
                                            .batch_size = 128,
                                            .num_train_examples = 1280});
  CHECK(rate(50) == Approx(0.1));
  CHECK(rate(51) == Approx(0.01));
  CHECK(rate(int64_t{1} << 60) == Approx(0.01));
  const auto warm_up = LearningRate(
      kCifar10,
      {.boundary_epochs = {}, .factors = {1}, .warmup_epochs = 1e300, .batch_size = 128, .num_train_examples = 1280});
  CHECK(warm_up(1000) == Approx(0).margin(1e-12));
}

TEST_CASE("The learning rate of ImageNet grows with the batch and rises in the warm-up") {
  const auto rate = LearningRate(
      kImagenet,
      {.boundary_epochs = {2}, .factors = {1, 0.5}, .warmup_epochs = 1, .batch_size = 512, .num_train_examples = 5120});
  CHECK(rate(0) == 0);
  CHECK(rate(5) == Approx(0.1));
  CHECK(rate(10) == Approx(0.2));
  CHECK(rate(20) == Approx(0.2));
  CHECK(rate(21) == Approx(0.1));
}

// By hand: 10 steps per epoch, of which the first epoch is the warm-up: 20 steps are left. Cosine: cos(pi / 4) after 5.
TEST_CASE("Other schedules fall to 0 at the end of the training, or not at all") {
  const auto rate = [](LrSchedule schedule, int64_t step) {
    return LearningRate(kImagenet, {.schedule = schedule,
                                    .boundary_epochs = {2},
                                    .factors = {1, 0.5},
                                    .warmup_epochs = 1,
                                    .batch_size = 512,
                                    .num_train_examples = 5120,
                                    .total_steps = 30})(step);
  };
  for (const LrSchedule schedule : {LrSchedule::kCosine, LrSchedule::kLinear, LrSchedule::kConstant}) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(rate(schedule, 5) == Approx(0.1));
    CHECK(rate(schedule, 10) == Approx(0.2));
  }
  CHECK(rate(LrSchedule::kCosine, 15) == Approx(0.1 * (1 + std::sqrt(0.5))));
  CHECK(rate(LrSchedule::kCosine, 20) == Approx(0.1));
  CHECK(rate(LrSchedule::kLinear, 15) == Approx(0.15));
  for (const int64_t step : {30, 31, 1000}) {
    CHECK(rate(LrSchedule::kCosine, step) == Approx(0).margin(1e-12));
    CHECK(rate(LrSchedule::kLinear, step) == 0);
    CHECK(rate(LrSchedule::kConstant, step) == Approx(0.2));
  }
}

TEST_CASE("Sizes that no network has are refused by name") {
  CHECK(CheckSize(kCifar10, 8).ok());
  CHECK(CheckSize(kImagenet, 200).ok());
  CHECK_THAT(std::string(CheckSize(kCifar10, 33).message()), Contains("6n + 2") && Contains("33"));
  CHECK_THAT(std::string(CheckSize(kCifar10, 2).message()), Contains("not 2"));
  CHECK_THAT(std::string(CheckSize(kImagenet, 33).message()), Contains("18, 34, 50, 101, 152, 200") && Contains("33"));
}

TEST_CASE("Samples have the names of classes, and the numbers of those that share one") {
  const train::EvalSamplesFn samples_of = ImageSamples(kCifar10, {"crane", "dog", "crane"});
  const train::BatchShare share{.examples = {0, 2},
                                .features = {compute::Tensor(DType::kFloat32, {2, 32, 32, 3})},
                                .labels = {compute::Tensor::Of<int32_t>({2}, {2, 1})}};
  const train::EvalSamples samples =
      samples_of(share, {compute::Tensor::Of<int64_t>({2}, {0, 1}), compute::Tensor(DType::kFloat32, {2, 3})}, 2);
  REQUIRE(samples.rows.size() == 2);
  CHECK(samples.rows[0][0] == "crane (2)");
  CHECK(samples.rows[0][1] == "crane (0)");
  CHECK(samples.rows[1][0] == "dog");
}

}  // namespace
}  // namespace official::resnet
