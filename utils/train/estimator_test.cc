// The parts of the Estimator that a whole program does not show; official/*/*_test.cc run the rest. These are its
// events, its replicas and their shares; estimator_faults_test.cc has what goes wrong, estimator_state_test.cc what a
// run keeps.

#include "utils/train/estimator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/data/records/tf_record.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/hook.h"
#include "utils/protos/event.pb.h"
#include "utils/protos/graph.pb.h"
#include "utils/protos/step_stats.pb.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

// The events of the training in a model_dir, as far as they are visible, file by file.
std::vector<std::vector<tensorflow::Event>> EventFiles(const std::string& model_dir) {
  std::vector<std::vector<tensorflow::Event>> events;
  const std::vector<std::string> names = files::ListDirectory(model_dir).value();
  for (const std::string& name : names) {
    if (!absl::StrContains(name, "tfevents")) continue;
    events.emplace_back();
    const auto reader = data::TFRecordReader::Open(files::JoinPath(model_dir, name)).value();
    for (std::string record; reader->Next(&record).value();) {
      REQUIRE(events.back().emplace_back().ParseFromString(record));
    }
  }
  return events;
}

// Asks for a trace of each step, and counts them; in the event file only for that of step 2.
class TracesEachStep : public logs::Hook {
 public:
  explicit TracesEachStep(int* traces) : traces_(traces) {}
  logs::StepRequest BeforeStep(int64_t next_step, logs::TimePoint) override {
    return {.trace = true, .event_trace = next_step == 2};
  }
  absl::Status AfterStep(const logs::StepInfo& info) override {
    *traces_ += static_cast<int>(info.trace.size());
    return absl::OkStatus();
  }

 private:
  int* const traces_;
};

TEST_CASE("The event file has the graph of the training, and what a step took whose trace is for it") {
  const EstimatorConfig config = Config();
  int traced = 0;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<TracesEachStep>(&traced));
  REQUIRE(MakeEstimator(config)->Train(Input(1), 3, hooks).ok());
  CHECK(traced == 3);

  tensorflow::GraphDef graph;
  tensorflow::RunMetadata metadata;
  int graphs = 0, traces = 0;
  const std::vector<tensorflow::Event> events = EventFiles(config.model_dir).at(0);
  for (const tensorflow::Event& event : events) {
    if (event.has_graph_def() && ++graphs) REQUIRE(graph.ParseFromString(event.graph_def()));
    if (!event.has_tagged_run_metadata()) continue;
    ++traces;
    CHECK(event.step() == 2);
    CHECK(event.tagged_run_metadata().tag() == "step_2");
    REQUIRE(metadata.ParseFromString(event.tagged_run_metadata().run_metadata()));
  }
  REQUIRE(graphs == 1);
  const auto& nodes = graph.node();
  CHECK(
      std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.name() == "w" && n.op() == "VariableV2"; }));
  CHECK(std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return n.op() == "MatMul"; }));
  REQUIRE(traces == 1);
  REQUIRE(metadata.step_stats().dev_stats_size() == 1);
  CHECK(metadata.step_stats().dev_stats(0).device() == "/device:CPU:0");
  CHECK(metadata.step_stats().dev_stats(0).node_stats_size() > 0);
}

// Keeps the visible events of the first event file as they are after step 4.
class ReadsEventsOfFourthStep : public logs::Hook {
 public:
  ReadsEventsOfFourthStep(std::string model_dir, std::vector<tensorflow::Event>* events)
      : model_dir_(std::move(model_dir)), events_(events) {}
  absl::Status AfterStep(const logs::StepInfo& info) override {
    if (info.global_step == 4) *events_ = EventFiles(model_dir_).at(0);
    return absl::OkStatus();
  }

 private:
  const std::string model_dir_;
  std::vector<tensorflow::Event>* const events_;
};

TEST_CASE("The events that a checkpoint covers are visible once it is saved") {
  EstimatorConfig config = Config();
  config.log_every_n_steps = 1;
  config.save_checkpoints_steps = 3;
  std::vector<tensorflow::Event> events;
  std::vector<std::unique_ptr<logs::Hook>> hooks;
  hooks.push_back(std::make_unique<ReadsEventsOfFourthStep>(config.model_dir, &events));
  REQUIRE(MakeEstimator(config)->Train(Input(1), 4, hooks).ok());
  REQUIRE(events.size() > 1);
  REQUIRE(events.size() < 10);  // so many would be visible without a checkpoint
  CHECK(events.back().step() == 3);
  CHECK(events.back().session_log().status() == tensorflow::SessionLog::CHECKPOINT);
  const tensorflow::Event& summary = events[events.size() - 2];
  CHECK(summary.step() == 3);
  CHECK(summary.summary().value(0).tag() == "loss");
}

// TensorBoard drops what it has read of the step of a START and later: the step of the checkpoint, which is not made
// again, must be before it, and what belongs to the new start behind it.
TEST_CASE("A training begins in its event file with the step that it makes first, also a resumed one") {
  EstimatorConfig config = Config();
  config.log_every_n_steps = 1;
  for (const int64_t step : {3, 5}) {
    config.flags_text = absl::StrCat("--max_train_steps=", step);
    REQUIRE(MakeEstimator(config)->Train(Input(1), step, {}).ok());
  }
  const std::vector<std::vector<tensorflow::Event>> event_files = EventFiles(config.model_dir);
  REQUIRE(event_files.size() == 2);
  for (const auto& [events, first_step] : {std::pair(event_files[0], 1), std::pair(event_files[1], 4)}) {
    REQUIRE(events.size() > 3);
    CHECK(events[0].file_version() == "brain.Event:2");
    CHECK(events[1].step() == first_step);
    CHECK(events[1].session_log().status() == tensorflow::SessionLog::START);
    CHECK(events[2].step() == first_step - 1);
    CHECK(events[2].summary().value(0).tag() == "flags/text_summary");
  }
}

// A source whose data come late: at the third time that it is asked for them.
class LateBatches : public data::BatchSource {
 public:
  explicit LateBatches(data::BatchSourcePtr source) : source_(std::move(source)) {}
  const data::ElementSpec& spec() const override { return source_->spec(); }
  absl::StatusOr<std::optional<data::Batch>> Next() override {
    asked_ = 0;
    return source_->Next();
  }
  bool WaitUntilReady(std::chrono::milliseconds) override { return ++asked_ > 2; }

 private:
  const data::BatchSourcePtr source_;
  int asked_ = 0;
};

TEST_CASE("A wait for data and the evaluation are shown") {
  const auto late = [](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    return std::make_unique<LateBatches>(Input(1)(start).value());
  };
  const auto estimator = MakeEstimator(Config());
  logs::CapturedTasks log;
  REQUIRE(estimator->Train(late, 2, {}).ok());
  REQUIRE(estimator->Evaluate(late, 1).ok());
  const std::string shown = log.Text();
  for (const char* title : {"waiting for the data of step 1", "waiting for the data of step 2", "evaluating step 2"}) {
    CHECK_THAT(shown, Contains(title));
  }
  CHECK_THAT(shown, !Contains("waiting for the data of step 3"));
}

// An Estimator of Line() with another loss.
std::unique_ptr<Estimator> WithLoss(const std::function<Value(const ModelInputs&)>& loss, EstimatorConfig config,
                                    int num_replicas = 1) {
  Model model = Line();
  model.model_fn = [=, line = Line()](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    absl::StatusOr<ModelSpec> spec = line.model_fn(in);
    if (spec.ok()) spec->loss = loss(in);
    return spec;
  };
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(std::move(model), std::move(config), std::move(strategy)).value();
}

TEST_CASE("A loss that is no scalar is refused by name") {
  const auto loss = [](const ModelInputs& in) { return compute::Sub(in.labels[0], in.labels[0]); };
  const absl::Status status = WithLoss(loss, Config())->Train(Input(0), 1, {});
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains("model line: ModelSpec::loss is float32[4]; it must be"));
}

TEST_CASE("A loss that is missing, or that no variable influences, is refused") {
  const int num_replicas = GENERATE(1, 2);
  EstimatorConfig config = Config();
  config.grad_accum_steps = GENERATE(1, 2);
  const auto without = WithLoss([](const ModelInputs&) { return Value(); }, config, num_replicas);
  const absl::Status is_missing = absl::InvalidArgumentError("model line: ModelSpec::loss is missing");
  CHECK(without->Train(Input(0), 1, {}) == is_missing);
  CHECK(without->Evaluate(Input(0), 1).status() == is_missing);
  const auto of_labels = [](const ModelInputs& in) { return compute::Mean(compute::Square(in.labels[0])); };
  const absl::Status no_gradients = absl::InvalidArgumentError("No gradients provided for any variable: ['w'].");
  CHECK(WithLoss(of_labels, config, num_replicas)->Train(Input(0), 1, {}) == no_gradients);
  // With moving averages, such as those of batch normalization, too.
  Model model = Line();
  model.model_fn = [=, line = Line()](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    absl::StatusOr<ModelSpec> spec = line.model_fn(in);
    if (!spec.ok()) return spec;
    const Value average = in.graph.Variable({"average", {}, compute::Initializer::Zeros(), /*trainable=*/false});
    spec->moving_averages = {{average, spec->loss}};
    spec->loss = of_labels(in);
    return spec;
  };
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  const auto averaging = Estimator::Create(std::move(model), config, std::move(strategy)).value();
  CHECK(averaging->Train(Input(0), 1, {}) == no_gradients);
}

TEST_CASE("Replicas whose variables have come apart end the run before they are saved") {
  // A sum of what each replica sees of the batches, 8 and 10 after two, which nobody adds up.
  Model model = Line();
  const auto x = std::make_shared<Value>();
  model.model_fn = [x, line = model.model_fn](const ModelInputs& in) {
    *x = in.features[0];
    return line(in);
  };
  model.optimizer = [x](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
    std::vector<compute::Node*> targets = compute::GradientDescent(inputs, variables);
    const Value drift = x->graph()->Variable({"drift", {DType::kFloat32, {}}, compute::Initializer::Zeros(), false});
    targets.push_back(compute::AssignAdd({{drift, compute::Sum(*x)}}));
    return targets;
  };
  EstimatorConfig config = Config();
  config.check_replicas_steps = 2;
  auto strategy = distribute::Strategy::Create({.num_replicas = 2, .num_threads = 2}).value();
  const auto estimator = Estimator::Create(model, config, std::move(strategy)).value();
  const absl::Status status = estimator->Train(Input(2), 20, {});
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()), Contains("drift is no longer the same on replica 0 and replica 1"));
  CHECK(estimator->global_step() == 2);
  CHECK_FALSE(files::Exists(config.model_dir + "/model.ckpt-2.index"));
}

// Batches of 6 examples [4] that are 1 where they count, of which as many as the example's number in its batch do.
InputFn Ragged() {
  return [](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {60, 4});
    for (int i = 0; i < 240; ++i) x.data<float>()[i] = i % 4 < i / 4 % 5 ? 1 : 0;
    return data::Batches(data::TensorSlices({{"", x}}, {}),
                         {.batch_size = 6, .start = start, .end_epoch = data::kEndless});
  };
}

// The mean of (i w - 1)^2 over all numbers that count, packed: i is the place of a number among its share's.
Model Packed() {
  Model model = Line();
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {1}}, compute::Initializer::Zeros()});
    const Value error = compute::Sub(compute::Mul(in.features[0], w), in.features[1]);
    const Value one = in.graph.Constant(Tensor::Scalar(1.0f));
    const Value count = compute::Maximum(compute::Sum(in.features[1]), one);
    return ModelSpec{.loss = compute::Div(compute::Sum(compute::Square(error)), count)};
  };
  // Numbers 1 to 4 of each example that counts, behind each other; then ones for those; both padded to a multiple of 8.
  model.share = [](Mode, const data::Batch& batch, const compute::Share& examples, int) {
    std::vector<float> numbers;
    for (int64_t i = 4 * examples.begin; i < 4 * examples.end; ++i) {
      if (batch.features[0].data<float>()[i] == 1) numbers.push_back(static_cast<float>(i % 4 + 1));
    }
    const auto rows = static_cast<int64_t>(std::max<size_t>(1, (numbers.size() + 7) / 8) * 8);
    Tensor x(DType::kFloat32, {rows}), counts(DType::kFloat32, {rows});
    for (size_t i = 0; i < numbers.size(); ++i) {
      x.data<float>()[i] = numbers[i];
      counts.data<float>()[i] = 1;
    }
    return BatchShare{examples, {x, counts}, {}, static_cast<int64_t>(numbers.size())};
  };
  return model;
}

TEST_CASE("Shares may have shapes of their own, and count by what they hold") {
  const auto train = [&](int num_replicas) {
    auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
    const auto estimator = Estimator::Create(Packed(), Config(), std::move(strategy)).value();
    REQUIRE(estimator->Train(Ragged(), 10, {}).ok());
    return estimator->Variable("w")->data<float>()[0];
  };
  // The same by hand.
  double w = 0;
  for (int step = 0; step < 10; ++step) {
    double gradient = 0;
    int count = 0;
    for (int example = 6 * step; example < 6 * step + 6; ++example) {
      for (int i = 1; i <= example % 5; ++i, ++count) gradient += 2.0 * i * (i * w - 1);
    }
    w -= 0.1 * gradient / count;
  }
  for (const int num_replicas : {1, 2, 3, 7}) {
    CAPTURE(num_replicas);
    CHECK(train(num_replicas) == Approx(w).epsilon(1e-6));
  }
}

TEST_CASE("The loss of an evaluation is the mean over batches, as an Estimator's, or over examples") {
  // Losses of 1, 1 and 16, whatever the weights are: batches of 1 and 16.
  const InputFn input = [](data::Position) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {3, 2}), y(DType::kFloat32, {3});
    std::fill_n(x.data<float>(), 6, 0.0f);
    const float labels[] = {1, 1, 4};
    std::copy(std::begin(labels), std::end(labels), y.data<float>());
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}), {.batch_size = 2});
  };
  const auto estimator = MakeEstimator(Config());
  REQUIRE(estimator->Train(Input(1), 1, {}).ok());
  const auto loss_of = [](const EvalResults& results) {
    return std::find_if(results.begin(), results.end(), [](const auto& r) { return r.first == "loss"; })->second;
  };
  CHECK(loss_of(estimator->Evaluate(input, std::nullopt).value()) == Approx(8.5));
  CHECK(loss_of(estimator->Evaluate(input, std::nullopt, EvalLoss::kOverExamples).value()) == Approx(6));
}

}  // namespace
}  // namespace official::train
