// A wish to stop that comes in the middle of a step. It comes out of a kernel, so that no clock is part of it.

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/files/files.h"
#include "utils/train/estimator.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using compute::DType;
using compute::Tensor;
using compute::Value;

// Runs of a TestStop kernel until it wants the stop; 0 or less: it does not.
std::atomic<int> runs_left{0};
std::atomic<int> stop{0};

constexpr compute::OpName kTestStop("TestStop");

// Copies its input.
const bool registered =
    compute::RegisterOp(
        {.name = kTestStop,
         .infer = compute::SameTypeAsInput,
         .gradient = [](const compute::Node&, absl::Span<const Value> dy) { return std::vector<Value>{dy[0]}; },
         .has_side_effect = true}) &&
    compute::RegisterKernel({.op = kTestStop,
                             .device_kind = "cpu",
                             .dtypes = {DType::kFloat32},
                             .make = [](const compute::KernelSpec& spec) -> absl::StatusOr<compute::Kernel> {
                               return compute::Kernel{
                                   [bytes = spec.input(0).num_bytes()](const compute::KernelArgs& args) {
                                     std::memcpy(args.outputs[0], args.inputs[0], bytes);
                                     if (--runs_left == 0) stop = 1;
                                     return absl::OkStatus();
                                   }};
                             }});

// Where in a step the wish comes.
enum class At { kForward, kUpdate };

// Fits x [batch, 2] * w to the labels [batch], with a moving average and a metric beside it.
Model Line(At at) {
  return {.name = "line",
          .model_fn = [at](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
            const Value w = in.graph.Variable({"w", {DType::kFloat32, {2, 1}}, compute::Initializer::Zeros()});
            const Value x = at == At::kForward ? compute::Apply(kTestStop, {in.features[0]}) : in.features[0];
            const Value y = compute::Reshape(compute::MatMul(x, w), {x.shape().dim(0)});
            if (in.mode == Mode::kPredict) return ModelSpec{.loss = {}, .predictions = {{"y", y}}};
            const Value average = in.graph.Variable(
                {"average", {DType::kFloat32, {}}, compute::Initializer::Zeros(), /*trainable=*/false});
            const Value loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0])));
            return ModelSpec{.loss = loss,
                             .metrics = {{"mean_y", compute::Sum(y), in.graph.Constant(Tensor::Scalar(4.0f))}},
                             .moving_averages = {{average, compute::Mean(y)}}};
          },
          .optimizer =
              [at](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
                std::vector<compute::Node*> nodes;
                if (at == At::kUpdate) nodes.push_back(compute::Apply(kTestStop, {inputs.learning_rate}).node());
                for (compute::Node* node : compute::Adam(inputs, variables, {})) nodes.push_back(node);
                return nodes;
              },
          .learning_rate = [](int64_t) { return 0.1; }};
}

InputFn Input() {
  return [](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    constexpr int kExamples = 36;
    Tensor x(DType::kFloat32, {kExamples, 2}), y(DType::kFloat32, {kExamples});
    for (int i = 0; i < 2 * kExamples; ++i) x.data<float>()[i] = std::sin(static_cast<float>(i));
    for (int i = 0; i < kExamples; ++i) y.data<float>()[i] = static_cast<float>(i % 3);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = 4, .start = start, .end_epoch = data::kEndless});
  };
}

struct Parts {
  int replicas = 1, turns = 1;
};

std::unique_ptr<Estimator> MakeEstimator(const std::string& model_dir, At at, const Parts& parts) {
  EstimatorConfig config;
  config.model_dir = model_dir;
  config.grad_accum_steps = parts.turns;
  config.check_replicas_steps = 1;
  config.interruption = [] { return stop != 0 ? Interruption::kStop : Interruption::kNone; };
  config.stop = &stop;
  auto strategy = distribute::Strategy::Create({.num_replicas = parts.replicas, .num_threads = 2}).value();
  return Estimator::Create(Line(at), std::move(config), std::move(strategy)).value();
}

std::string NewDirectory() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/stop-", getpid(), "-", ++counter);
}

// All that a checkpoint holds of the variables.
std::string BitsOf(const Estimator& estimator) {
  std::string bits;
  for (const char* name : {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "average", "global_step"}) {
    const Tensor value = estimator.Variable(name).value();
    bits.append(static_cast<const char*>(value.raw_data()), static_cast<size_t>(value.num_bytes()));
  }
  return bits;
}

std::string BitsAfter(int steps, At at, const Parts& parts) {
  stop = 0;
  runs_left = 0;
  const auto estimator = MakeEstimator(NewDirectory(), at, parts);
  REQUIRE(estimator->Train(Input(), steps, {}).ToString() == "OK");
  return BitsOf(*estimator);
}

TEST_CASE("A step that has updated nothing is left, and the run that resumes ends with the same bits") {
  const Parts parts = GENERATE(Parts{1, 1}, Parts{2, 1}, Parts{3, 1}, Parts{1, 2}, Parts{2, 2});
  CAPTURE(parts.replicas, parts.turns);
  const std::string model_dir = NewDirectory();
  const int each_step = parts.replicas * parts.turns;
  for (const int step : {1, 7}) {  // the resumed run is stopped again
    CAPTURE(step);
    const auto estimator = MakeEstimator(model_dir, At::kForward, parts);
    stop = 0;
    runs_left = each_step * (step - 1 - static_cast<int>(estimator->global_step())) + 1;
    const absl::Status status = estimator->Train(Input(), 20, {});
    CHECK(absl::IsCancelled(status));
    CHECK_THAT(std::string(status.message()),
               Contains(absl::StrCat("stopped at step ", step - 1, " in the middle of step ", step, ";")));
    CHECK(estimator->global_step() == step - 1);
    CHECK(files::Exists(absl::StrCat(model_dir, "/model.ckpt-", step - 1, ".index")));
    if (step > 1) CHECK(BitsOf(*estimator) == BitsAfter(step - 1, At::kForward, parts));
  }
  stop = 0;
  runs_left = 0;
  const auto resumed = MakeEstimator(model_dir, At::kForward, parts);
  CHECK(resumed->global_step() == 6);
  REQUIRE(resumed->Train(Input(), 20, {}).ToString() == "OK");
  CHECK(BitsOf(*resumed) == BitsAfter(20, At::kForward, parts));
}

TEST_CASE("A step that has begun to update is finished") {
  const Parts parts = GENERATE(Parts{1, 1}, Parts{2, 1}, Parts{1, 2});
  CAPTURE(parts.replicas, parts.turns);
  const std::string model_dir = NewDirectory();
  const auto estimator = MakeEstimator(model_dir, At::kUpdate, parts);
  stop = 0;
  runs_left = 5 * parts.replicas - parts.replicas + 1;
  const absl::Status status = estimator->Train(Input(), 20, {});
  CHECK(absl::IsCancelled(status));
  CHECK_THAT(std::string(status.message()),
             Contains("stopped at step 5;") && EndsWith(" ms, and the same command continues from it"));
  CHECK(BitsOf(*estimator) == BitsAfter(5, At::kUpdate, parts));
  stop = 0;
}

TEST_CASE("An evaluation is left at any kernel") {
  const Parts parts = GENERATE(Parts{1, 1}, Parts{2, 1});
  const auto estimator = MakeEstimator(NewDirectory(), At::kForward, parts);
  stop = 0;
  runs_left = 0;
  REQUIRE(estimator->Train(Input(), 3, {}).ok());
  runs_left = 2 * parts.replicas + 1;
  const absl::StatusOr<EvalResults> results = estimator->Evaluate(Input(), 5);
  CHECK(absl::IsCancelled(results.status()));
  CHECK_THAT(std::string(results.status().message()), Contains("stopped in the evaluation at step 3"));
  stop = 0;
  const double loss = estimator->Evaluate(Input(), 5).value()[1].second;
  CHECK(std::isfinite(loss));
}

}  // namespace
}  // namespace official::train
