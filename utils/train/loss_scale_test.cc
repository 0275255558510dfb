// What the Estimator does with gradients that are not finite, and with the loss scale.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/train/estimator.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::LossScale;
using compute::Tensor;
using compute::Value;

// Fits x [batch, 2] * w to the labels [batch] with Adam, and has a moving average. Where the second feature is 0 but in
// few batches, whose updates are never made, its weight stays 0: however large the feature is there, the loss is
// finite, and the gradient is not.
Model Line() {
  return {
      .name = "line",
      .model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
        const Value w = in.graph.Variable({"w", {DType::kFloat32, {2, 1}}, compute::Initializer::Zeros()});
        const Value y = compute::Reshape(compute::MatMul(in.features[0], w), {in.features[0].shape().dim(0)});
        const Value average = in.graph.Variable({"average", {}, compute::Initializer::Zeros(), /*trainable=*/false});
        return ModelSpec{.loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0]))),
                         .predictions = {},
                         .metrics = {},
                         .logged = {},
                         .moving_averages = {{average, in.graph.Constant(Tensor::Scalar(1.0f))}}};
      },
      .optimizer = [](const compute::UpdateInputs& inputs,
                      absl::Span<const compute::VariableGradient> v) { return compute::Adam(inputs, v, {}); },
      .learning_rate = [](int64_t step) { return 0.1 / static_cast<double>(1 + step % 7); }};
}

constexpr int kBatchSize = 4, kBatches = 10;  // of an epoch

// The second feature of the last example of a bad batch, and its label.
struct Bad {
  float feature = 3e38f, label = 1;  // the gradient is finite, but not if it is 32 times as large
};
constexpr Bad kAlwaysBad = {3e38f, 1000};  // the gradient is infinite

// kBatches batches again and again, of which those numbered `bad` are as given, without those numbered `absent`.
InputFn Input(const std::set<int>& bad, const Bad& values = {}, const std::set<int>& absent = {}) {
  return [=](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    const auto n = static_cast<int64_t>((kBatches - absent.size()) * kBatchSize);
    Tensor x(DType::kFloat32, {n, 2}), y(DType::kFloat32, {n});
    int64_t row = 0;
    for (int i = 0; i < kBatches * kBatchSize; ++i) {
      if (absent.count(i / kBatchSize) > 0) continue;
      const bool is_bad = bad.count(i / kBatchSize) > 0 && i % kBatchSize == kBatchSize - 1;
      x.data<float>()[2 * row] = 0.1f * static_cast<float>(i % 7);
      x.data<float>()[2 * row + 1] = is_bad ? values.feature : 0;
      y.data<float>()[row++] = is_bad ? values.label : static_cast<float>(i % 3);
    }
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = kBatchSize, .start = start, .end_epoch = data::kEndless});
  };
}

EstimatorConfig Config(const LossScale& loss_scale, int grad_accum_steps = 1) {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/loss-scale-", getpid(), "-", ++counter);
  config.loss_scale = loss_scale;
  config.grad_accum_steps = grad_accum_steps;
  config.check_replicas_steps = 1;
  return config;
}

std::unique_ptr<Estimator> MakeEstimator(EstimatorConfig config, int num_replicas = 1) {
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(Line(), std::move(config), std::move(strategy)).value();
}

std::string Bytes(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(tensor.num_bytes())};
}

// All that an update changes.
std::vector<std::string> State(const Estimator& estimator) {
  std::vector<std::string> state;
  for (const char* name : {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "average", "global_step"}) {
    state.push_back(Bytes(estimator.Variable(name).value()));
  }
  return state;
}

float Scale(const Estimator& estimator) { return estimator.Variable("_run/loss_scale").value().scalar<float>(); }

// An estimator that is stopped after as many batches as it is told, whether they lead to updates or not.
struct Run {
  explicit Run(EstimatorConfig config, int num_replicas = 1) {
    config.interruption = [left = left] { return --*left == 0 ? Interruption::kStop : Interruption::kNone; };
    estimator = MakeEstimator(std::move(config), num_replicas);
  }
  void Train(const InputFn& input, int batches) {
    *left = batches;
    const absl::Status status = estimator->Train(input, std::nullopt, {});
    INFO(status);
    REQUIRE(absl::IsCancelled(status));
    CHECK(*left == 0);
  }

  std::shared_ptr<int> left = std::make_shared<int>(0);
  std::unique_ptr<Estimator> estimator;
};

TEST_CASE("A power of two as static loss scale changes no bit") {
  const auto plain = MakeEstimator(Config({})), scaled = MakeEstimator(Config({.value = 128}));
  const auto two = MakeEstimator(Config({.value = 128}), 2);
  for (Estimator* e : {plain.get(), scaled.get(), two.get()}) REQUIRE(e->Train(Input({}), 30, {}).ok());
  CHECK(State(*scaled) == State(*plain));
  CHECK(State(*two) == State(*plain));
  const auto odd = MakeEstimator(Config({.value = 100}));
  REQUIRE(odd->Train(Input({}), 30, {}).ok());
  CHECK(odd->Variable("w")->data<float>()[0] == Approx(plain->Variable("w")->data<float>()[0]).epsilon(1e-5));
}

TEST_CASE("Infinite gradients with a finite loss end a run at their step, unless the loss scale is dynamic") {
  const auto [scale, bad] = GENERATE(std::pair{LossScale{}, kAlwaysBad}, std::pair{LossScale{.value = 128}, Bad{}});
  const int replicas = GENERATE(1, 2, 4), turns = GENERATE(1, 2);
  CAPTURE(scale.value, replicas, turns);
  const auto estimator = MakeEstimator(Config(scale, turns), replicas);
  REQUIRE(estimator->Train(Input({}), 2, {}).ok());
  const absl::Status status = estimator->Train(Input({3}, bad), 10, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains("step 4: the first tensor that is not finite is ") &&
                                                Contains("MatMul") && Contains("float32[2,1]") &&
                                                Contains("(the last one is of step 2)") && Contains("--learning_rate"));
  CHECK((status.message().find("--loss_scale=dynamic") != absl::string_view::npos) == (scale.value > 1));
  CHECK(estimator->global_step() == 3);
  const auto good = MakeEstimator(Config(scale, turns), replicas);
  REQUIRE(good->Train(Input({}), 3, {}).ok());
  CHECK(State(*estimator) == State(*good));
}

TEST_CASE("A batch whose gradients overflow is skipped: it changes the loss scale and the place in the data only") {
  const int replicas = GENERATE(1, 2, 4), turns = GENERATE(1, 2);
  CAPTURE(replicas, turns);
  Run run(Config(compute::DynamicLossScale(), turns), replicas);
  run.Train(Input({2}), 2);
  const std::vector<std::string> before = State(*run.estimator);
  CHECK(Scale(*run.estimator) == 32768);
  run.Train(Input({2}), 1);
  CHECK(State(*run.estimator) == before);
  CHECK(Scale(*run.estimator) == 16384);
  CHECK(run.estimator->global_step() == 2);
  CHECK(run.estimator->state().position == data::Position{0, 3 * kBatchSize});
  // The rest is as if the batches that are skipped were not there.
  run.Train(Input({2, 4, 5}), 11);
  CHECK(Scale(*run.estimator) == 2048);
  CHECK(run.estimator->global_step() == 10);
  const auto without = MakeEstimator(Config({}, turns), replicas);
  REQUIRE(without->Train(Input({}, {}, {2, 4, 5}), 10, {}).ok());
  CHECK(State(*run.estimator) == State(*without));
}

TEST_CASE("The event of a skipped batch has the number of its step") {
  Run run(Config(compute::DynamicLossScale()));
  logs::CapturedLog log(logs::LogFormat::kJson);
  run.Train(Input({2}), 3);
  const std::string text = log.Text();
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const auto skip = std::find_if(lines.begin(), lines.end(), [](absl::string_view line) {
    return absl::StrContains(line, "step 3: gradients that are not finite");
  });
  REQUIRE(skip != lines.end());
  CHECK_THAT(*skip, Contains("\"global_step\": 3,"));
}

TEST_CASE("A save that is asked for before the first update is no reason for one after it") {
  EstimatorConfig config = Config(compute::DynamicLossScale());
  int batches = 0;
  config.interruption = [&] {
    ++batches;
    return batches == 1 ? Interruption::kSave : batches == 3 ? Interruption::kStop : Interruption::kNone;
  };
  CHECK(absl::IsCancelled(MakeEstimator(config)->Train(Input({0}), std::nullopt, {})));
  CHECK(files::Exists(config.model_dir + "/model.ckpt-0.index"));
  CHECK_FALSE(files::Exists(config.model_dir + "/model.ckpt-1.index"));
  CHECK(files::Exists(config.model_dir + "/model.ckpt-2.index"));
}

TEST_CASE("A dynamic loss scale doubles after 2000 updates in a row") {
  const auto estimator = MakeEstimator(Config(compute::DynamicLossScale()));
  REQUIRE(estimator->Train(Input({}), 1999, {}).ok());
  CHECK(Scale(*estimator) == 32768);
  REQUIRE(estimator->Train(Input({}), 2000, {}).ok());
  CHECK(Scale(*estimator) == 65536);
  REQUIRE(estimator->Train(Input({}), 3999, {}).ok());
  CHECK(Scale(*estimator) == 65536);
  REQUIRE(estimator->Train(Input({}), 4000, {}).ok());
  CHECK(Scale(*estimator) == 131072);
}

TEST_CASE(
    "A run with a dynamic loss scale that is stopped after any batch ends with the bits of an uninterrupted one") {
  const InputFn input = Input({2, 3, 7});
  Run whole(Config(compute::DynamicLossScale()));
  whole.Train(input, 14);
  const auto save_steps = GENERATE(std::optional<int64_t>(), std::optional<int64_t>(1));
  for (const int first : {1, 2, 3, 4, 5, 8, 13}) {
    CAPTURE(save_steps, first);
    EstimatorConfig config = Config(compute::DynamicLossScale());
    config.save_checkpoints_steps = save_steps;
    Run(config).Train(input, first);
    Run rest(config);
    const data::Position at = rest.estimator->state().position;
    CHECK(at.epoch * kBatches + at.index / kBatchSize == first);  // skipped batches count
    rest.Train(input, 14 - first);
    CHECK(State(*rest.estimator) == State(*whole.estimator));
    for (const char* name : {"_run/loss_scale", "_run/good_steps"}) {
      CHECK(Bytes(rest.estimator->Variable(name).value()) == Bytes(whole.estimator->Variable(name).value()));
    }
    CHECK(rest.estimator->state().position == whole.estimator->state().position);
  }
}

TEST_CASE("A dynamic loss scale starts again in a run that had none, and a static one forgets it") {
  EstimatorConfig config = Config({});
  REQUIRE(MakeEstimator(config)->Train(Input({}), 2, {}).ok());
  config.loss_scale = compute::DynamicLossScale();
  {
    const auto estimator = MakeEstimator(config);
    REQUIRE(estimator->Train(Input({2}), 4, {}).ok());
    CHECK(Scale(*estimator) == 16384);
  }
  config.loss_scale = {};
  REQUIRE(MakeEstimator(config)->Train(Input({}), 6, {}).ok());
  config.loss_scale = compute::DynamicLossScale();
  const auto estimator = MakeEstimator(config);
  REQUIRE(estimator->Train(Input({}), 7, {}).ok());
  CHECK(Scale(*estimator) == 32768);
}

TEST_CASE("Gradients that are infinite without a loss scale end a run with a dynamic one too") {
  const int replicas = GENERATE(1, 2);
  const auto estimator = MakeEstimator(Config(compute::DynamicLossScale()), replicas);
  REQUIRE(estimator->Train(Input({}), 3, {}).ok());
  const std::vector<std::string> before = State(*estimator);
  const absl::Status status = estimator->Train(Input({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, kAlwaysBad), 10, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains("step 4: the first tensor that is not finite is "));
  CHECK(estimator->global_step() == 3);
  CHECK(Scale(*estimator) == 1);
  CHECK(State(*estimator) == before);
}

}  // namespace
}  // namespace official::train
