// The parts of the Estimator that a whole program does not show; official/*/*_test.cc run the rest.

#include "utils/train/estimator.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/runtime/kernel.h"
#include "utils/files/files.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

// Fits x [batch, 2] * w to the labels [batch].
Model Line() {
  return {.name = "line",
          .model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
            const Value w = in.graph.Variable({"w", {DType::kFloat32, {2, 1}}, compute::Initializer::Zeros()});
            const Value y = compute::Reshape(compute::MatMul(in.features[0], w), {in.features[0].shape().dim(0)});
            return ModelSpec{.loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0]))),
                             .predictions = {},
                             .metrics = {},
                             .logged = {},
                             .moving_averages = {}};
          },
          .optimizer = compute::GradientDescent,
          .learning_rate = [](int64_t) { return 0.1; }};
}

// Batches of 4 examples; the last feature of each batch is `last`.
InputFn Input(float last) {
  return [last](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {8, 2}), y(DType::kFloat32, {8});
    for (int i = 0; i < 16; ++i) x.data<float>()[i] = i % 8 == 7 ? last : static_cast<float>(i % 3);
    for (int i = 0; i < 8; ++i) y.data<float>()[i] = static_cast<float>(i % 2);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = 4, .start = start, .end_epoch = data::kEndless});
  };
}

EstimatorConfig Config() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/estimator-", getpid(), "-", ++counter);
  return config;
}

std::unique_ptr<Estimator> MakeEstimator(EstimatorConfig config, int num_replicas = 1) {
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(Line(), std::move(config), std::move(strategy)).value();
}

TEST_CASE("A number that is not finite in the share of one replica ends all at once") {
  const int bad_replica_of = GENERATE(1, 2, 4);
  const auto estimator = MakeEstimator(Config(), bad_replica_of);
  REQUIRE(estimator->Train(Input(1), 3, {}).ok());
  const absl::Status status = estimator->Train(Input(NAN), 10, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()),
             Contains("step 4: the first tensor that is not finite is features (Input") &&
                 Contains("the last one is of step 3)"));
  CHECK(estimator->global_step() == 3);
}

TEST_CASE("An interruption stops after its step, which is saved, and the run goes on from there") {
  EstimatorConfig config = Config();
  int asked = 0;
  config.interruption = [&] { return ++asked == 5 ? Interruption::kStop : Interruption::kNone; };
  {
    const auto estimator = MakeEstimator(config);
    const absl::Status status = estimator->Train(Input(1), 20, {});
    CHECK(absl::IsCancelled(status));
    CHECK_THAT(std::string(status.message()), Contains("stopped at step 5"));
  }
  const auto resumed = MakeEstimator(config);
  CHECK(resumed->global_step() == 5);
  REQUIRE(resumed->Train(Input(1), 20, {}).ok());
  const auto whole = MakeEstimator(Config());
  REQUIRE(whole->Train(Input(1), 20, {}).ok());
  const Tensor a = resumed->Variable("w").value(), b = whole->Variable("w").value();
  CHECK(std::equal(a.data<float>(), a.data<float>() + 2, b.data<float>()));
}

TEST_CASE("A request to save is met between the regular ones") {
  EstimatorConfig config = Config();
  int asked = 0;
  config.interruption = [&] { return ++asked == 5 ? Interruption::kSave : Interruption::kNone; };
  REQUIRE(MakeEstimator(config)->Train(Input(1), 20, {}).ok());
  CHECK(files::Exists(config.model_dir + "/model.ckpt-5.index"));
  CHECK(files::Exists(config.model_dir + "/model.ckpt-20.index"));
}

// Its kernel has two algorithms. One is chosen as if by timing, and counted.
int choices_made = 0;
const bool registered_choosing =
    compute::RegisterOp(
        {.name = "TestChoosing",
         .infer = compute::SameTypeAsInput,
         .gradient = [](const compute::Node&, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; }}) &&
    compute::RegisterKernel(
        {.op = "TestChoosing",
         .device_kind = "cpu",
         .dtypes = {DType::kFloat32},
         .make = [](const compute::KernelSpec& spec) -> absl::StatusOr<compute::Kernel> {
           std::string algorithm = "default";
           if (spec.choices != nullptr) {
             ASSIGN_OR_RETURN(algorithm,
                              spec.choices->FindOrChoose(absl::StrCat("TestChoosing ", spec.device.Hardware()),
                                                         []() -> absl::StatusOr<std::string> {
                                                           ++choices_made;
                                                           return "chosen";
                                                         }));
           }
           return compute::Kernel{[bytes = spec.input(0).num_bytes(), algorithm](const compute::KernelArgs& args) {
             std::memcpy(args.outputs[0], args.inputs[0], bytes);
             return algorithm == "foreign" ? absl::InternalError("foreign algorithm") : absl::OkStatus();
           }};
         }});

TEST_CASE("What was chosen by timing is chosen again by the next run") {
  Model model = Line();
  model.model_fn = [line = model.model_fn](const ModelInputs& in) {
    ModelInputs chosen = in;
    chosen.features[0] = compute::Apply("TestChoosing", {in.features[0]});
    return line(chosen);
  };
  EstimatorConfig config = Config();
  config.time_algorithms = true;
  const std::string file = config.model_dir + "/algorithms.txt";
  const auto train = [&](int64_t steps) {
    choices_made = 0;
    auto strategy = distribute::Strategy::Create({.num_replicas = 2, .num_threads = 2}).value();
    return Estimator::Create(model, config, std::move(strategy)).value()->Train(Input(1), steps, {});
  };
  REQUIRE(train(2).ok());
  CHECK(choices_made == 1);  // the two replicas are alike
  const std::string text = files::ReadFile(file, 1000).value();
  CHECK_THAT(text, Contains("TestChoosing ") && Contains("1 thread, ") && Contains("\tchosen\n"));
  REQUIRE(train(4).ok());
  CHECK(choices_made == 0);

  // The file decides, not the kernel.
  REQUIRE(files::WriteFileAtomically(file, absl::StrReplaceAll(text, {{"chosen", "foreign"}})).ok());
  CHECK_THAT(std::string(train(6).message()), Contains("foreign algorithm"));
  REQUIRE(files::WriteFileAtomically(file, "not a choice\n").ok());
  REQUIRE(train(6).ok());
  CHECK(choices_made == 1);
  CHECK(files::ReadFile(file, 1000).value() == text);

  REQUIRE(files::RemoveFile(file).ok());
  config.time_algorithms = false;
  REQUIRE(train(8).ok());
  CHECK(choices_made == 0);
  CHECK_FALSE(files::Exists(file));
}

TEST_CASE("The last evaluation is remembered") {
  const EstimatorConfig config = Config();
  const InputFn once = [](data::Position) { return data::Prefetch(Input(1)({}).value(), 0); };
  {
    const auto estimator = MakeEstimator(config, 2);
    REQUIRE(estimator->Train(Input(1), 3, {}).ok());
    CHECK_FALSE(estimator->evaluated_step());
    REQUIRE(estimator->Evaluate(once, 2).ok());
    CHECK(estimator->evaluated_step() == 3);
  }
  CHECK(MakeEstimator(config)->evaluated_step() == 3);
}

}  // namespace
}  // namespace official::train
