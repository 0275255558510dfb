// Model.fit with parameter servers, against a model on one device and against the rules of Keras.

#include "utils/train/keras/coordinated_model.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/data/dataset.h"
#include "utils/distribute/coordinator/run_task.h"
#include "utils/files/files.h"
#include "utils/train/keras/line_data.h"
#include "utils/train/keras/model.h"

namespace official::keras {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;
using coordinator::ClusterCoordinator;

Value Dense(compute::Layers& layers, const train::ModelInputs& in) { return layers.Dense(in.features[0], 1); }

CompileOptions Options(const std::string& model_dir = "") {
  return {.loss = MeanSquaredError(),
          .optimizer = [](const auto& in, const auto& of) { return compute::Momentum(in, of, {.momentum = 0.5}); },
          .learning_rate = 0.05,
          .metrics = {{"error",
                       [](Value labels, Value outputs) {
                         return compute::Sqrt(compute::Square(compute::Sub(outputs, labels)));
                       }}},
          .model_dir = model_dir};
}

constexpr int64_t kTrainExamples = 12, kEvalExamples = 7, kBatchSize = 4;

// A model with the data sets "train" and "eval", whose order is that of their examples.
struct Fixture {
  explicit Fixture(const std::string& model_dir = "", NetworkFn network = Dense) : model(std::move(network)) {
    REQUIRE(model.Compile(Options(model_dir)).ok());
    REQUIRE(model.AddDataset("train", Line(kTrainExamples), {.batch_size = kBatchSize, .shuffle = false}).ok());
    REQUIRE(model.AddDataset("eval", Line(kEvalExamples), {.batch_size = kBatchSize, .shuffle = false}).ok());
  }
  // Runs the coordinator's part in a job whose tasks are threads.
  absl::Status Run(const coordinator::Program& program, int num_workers = 1, int num_servers = 2) {
    return coordinator::RunInProcess(num_workers, num_servers, model.functions(), {.seed = 1}, program);
  }

  CoordinatedModel model;
};

std::string NewDirectory() {
  const char* const base = std::getenv("TEST_TMPDIR");
  static int count = 0;
  return absl::StrCat(base == nullptr ? "/tmp" : base, "/coordinated_model_test.", getpid(), ".", count++);
}

std::vector<float> Elements(const Tensor& tensor) { return {tensor.flat<float>().begin(), tensor.flat<float>().end()}; }

void CheckNear(const Logs& logs, const Logs& wanted) {
  REQUIRE(logs.size() == wanted.size());
  for (size_t i = 0; i < logs.size(); ++i) {
    INFO(logs[i].first);
    CHECK(logs[i].first == wanted[i].first);
    CHECK(logs[i].second == Approx(wanted[i].second).epsilon(1e-5));
  }
}

TEST_CASE("One worker has the numbers of a model on one device") {
  Model one(Dense);
  REQUIRE(one.Compile(Options()).ok());
  const History wanted =
      one.Fit(Line(kTrainExamples), {.batch_size = kBatchSize, .epochs = 3, .steps_per_epoch = 4, .shuffle = false})
          .value();
  const Weights weights = one.GetWeights().value();
  const Tensor outputs = one.Predict(Line(kEvalExamples), kBatchSize).value();

  Fixture job;
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    ASSIGN_OR_RETURN(const History history, job.model.Fit(coordinator, "train", {.epochs = 3, .steps_per_epoch = 4}));
    CHECK(history.epochs == wanted.epochs);
    for (size_t epoch = 0; epoch < 3; ++epoch) CheckNear(history.logs[epoch], wanted.logs[epoch]);
    ASSIGN_OR_RETURN(const Weights trained, job.model.GetWeights(coordinator));
    REQUIRE(trained.size() == weights.size());
    for (const auto& [name, value] : weights) CHECK(Elements(trained.at(name)) == Elements(value));
    ASSIGN_OR_RETURN(const Tensor predicted, job.model.Predict(coordinator, "eval"));
    REQUIRE(predicted.shape() == compute::Shape{kEvalExamples, 1});
    for (int64_t i = 0; i < kEvalExamples; ++i) CHECK(predicted.data<float>()[i] == outputs.data<float>()[i]);
    return absl::OkStatus();
  };
  CHECK(job.Run(program) == absl::OkStatus());
}

TEST_CASE("A worker of two devices has the numbers of a model on one") {
  Model one(Dense);
  REQUIRE(one.Compile(Options()).ok());
  const History wanted =
      one.Fit(Line(kTrainExamples), {.batch_size = kBatchSize, .epochs = 3, .steps_per_epoch = 4, .shuffle = false})
          .value();
  Fixture job;
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    ASSIGN_OR_RETURN(const History history, job.model.Fit(coordinator, "train", {.epochs = 3, .steps_per_epoch = 4}));
    for (size_t epoch = 0; epoch < 3; ++epoch) CheckNear(history.logs[epoch], wanted.logs[epoch]);
    return absl::OkStatus();
  };
  CHECK(coordinator::RunInProcess(1, 2, job.model.functions(), {.num_devices = 2}, program) == absl::OkStatus());
  const absl::Status uneven = coordinator::RunInProcess(1, 2, job.model.functions(), {.num_devices = 3}, program);
  CHECK(absl::IsInvalidArgument(uneven));
}

TEST_CASE("An evaluation is the mean over all examples, with any number of workers and devices") {
  const int num_workers = GENERATE(1, 3), num_devices = GENERATE(1, 2, 3);
  Fixture job;
  REQUIRE(job.model.AddDataset("many", Line(26), {.batch_size = 2, .shuffle = false}).ok());
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    // Outputs 3 x + 0: errors |x - 1| for x = 0, 0.1, ... 0.6
    RETURN_IF_ERROR(job.model.SetWeights(
        coordinator, {{"dense/kernel", Tensor::Of<float>({1, 1}, {3})}, {"dense/bias", Tensor::Of<float>({1}, {0})}}));
    ASSIGN_OR_RETURN(const Logs all, job.model.Evaluate(coordinator, "eval"));
    CheckNear(all, {{"loss", (1 + 0.81 + 0.64 + 0.49 + 0.36 + 0.25 + 0.16) / 7}, {"error", 0.7}});
    // 13 batches, several to a call.
    double loss = 0;
    for (int i = 0; i < 26; ++i) loss += (0.1 * i - 1) * (0.1 * i - 1) / 26;
    ASSIGN_OR_RETURN(const Logs many, job.model.Evaluate(coordinator, "many"));
    CHECK(many[0].second == Approx(loss).epsilon(1e-5));
    ASSIGN_OR_RETURN(const Tensor outputs, job.model.Predict(coordinator, "many"));
    REQUIRE(outputs.shape() == compute::Shape{26, 1});
    for (int i = 0; i < 26; ++i) CHECK(outputs.data<float>()[i] == Approx(0.3 * i).margin(1e-6));
    ASSIGN_OR_RETURN(const Logs first, job.model.Evaluate(coordinator, "eval", 1));
    CheckNear(first, {{"loss", (1 + 0.81 + 0.64 + 0.49) / 4}, {"error", 0.85}});
    return absl::OkStatus();
  };
  CHECK(coordinator::RunInProcess(num_workers, 2, job.model.functions(), {.num_devices = num_devices}, program) ==
        absl::OkStatus());
}

TEST_CASE("Several workers learn, each in an order of its own") {
  CoordinatedModel model(Dense);
  REQUIRE(model.Compile(Options()).ok());
  REQUIRE(model.AddDataset("train", Line(20), {.batch_size = 4}).ok());
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    ASSIGN_OR_RETURN(
        const History history,
        model.Fit(coordinator, "train", {.epochs = 20, .steps_per_epoch = 20, .validation_data = "train"}));
    CHECK(history.logs.back()[2].first == "val_loss");
    CHECK(history.logs.back()[2].second < 0.01 * history.logs.front()[2].second);
    return absl::OkStatus();
  };
  CHECK(coordinator::RunInProcess(3, 2, model.functions(), {}, program) == absl::OkStatus());
}

TEST_CASE("Callbacks are called after epochs, and change the learning rate, the weights and the end") {
  Fixture job;
  std::vector<std::string> called;
  std::vector<std::unique_ptr<Callback>> callbacks;
  callbacks.push_back(LearningRateScheduler([](int64_t epoch, double) { return epoch == 0 ? 0.05 : 0.0; }));
  callbacks.push_back(
      LambdaCallback({.on_train_begin = [&](Training&) { return called.emplace_back("begin"), absl::OkStatus(); },
                      .on_train_end = [&](Training&) { return called.emplace_back("end"), absl::OkStatus(); },
                      .on_epoch_end = [&](int64_t epoch, Logs&, Training& training) -> absl::Status {
                        called.push_back(absl::StrCat("epoch ", epoch));
                        training.stop_training = epoch == 1;
                        ASSIGN_OR_RETURN(const Weights weights, training.get_weights());
                        called.push_back(absl::StrCat(weights.at("dense/kernel").data<float>()[0]));
                        return absl::OkStatus();
                      }}));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    return job.model.Fit(coordinator, "train", {.epochs = 9, .steps_per_epoch = 2, .callbacks = callbacks}).status();
  };
  CHECK(job.Run(program) == absl::OkStatus());
  REQUIRE(called.size() == 6);
  CHECK(called[0] == "begin");
  CHECK(called[1] == "epoch 0");
  CHECK(called[3] == "epoch 1");
  CHECK(called[2] == called[4]);  // by a rate of 0
  CHECK(called[5] == "end");
}

TEST_CASE(
    "A second fit keeps the learning rate that a callback has set, as in Keras; another job begins with its own") {
  Fixture job;
  std::vector<float> rates;
  std::vector<std::unique_ptr<Callback>> callbacks;
  callbacks.push_back(LambdaCallback({.on_epoch_end = [&](int64_t, Logs&, Training& training) {
    rates.push_back(training.learning_rate);
    training.learning_rate /= 2;
    return absl::OkStatus();
  }}));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    const CoordinatedFitOptions options = {.epochs = 2, .steps_per_epoch = 1, .callbacks = callbacks};
    RETURN_IF_ERROR(job.model.Fit(coordinator, "train", options).status());
    return job.model.Fit(coordinator, "train", options).status();
  };
  for (int i = 0; i < 2; ++i) {
    rates.clear();
    CHECK(job.Run(program) == absl::OkStatus());
    CHECK(rates == std::vector<float>{0.05f, 0.025f, 0.0125f, 0.00625f});
  }
}

TEST_CASE("A job that is started again continues from its last epoch, and a second fit counts from 0") {
  const std::string model_dir = NewDirectory();
  std::vector<int64_t> epochs;
  for (const int64_t end : {2, 5, 5}) {
    Fixture job(model_dir);
    const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
      ASSIGN_OR_RETURN(const History history,
                       job.model.Fit(coordinator, "train", {.epochs = end, .steps_per_epoch = 3}));
      epochs.insert(epochs.end(), history.epochs.begin(), history.epochs.end());
      if (epochs.size() < 5) return absl::OkStatus();
      ASSIGN_OR_RETURN(const History more, job.model.Fit(coordinator, "train", {.epochs = 1, .steps_per_epoch = 4}));
      CHECK(more.epochs == std::vector<int64_t>{0});
      return absl::OkStatus();
    };
    CHECK(job.Run(program) == absl::OkStatus());
    if (epochs.size() >= 5) break;
  }
  CHECK(epochs == std::vector<int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("A model serves one job after the other") {
  Fixture job(NewDirectory());
  std::vector<int64_t> epochs;
  for (const int64_t end : {2, 3}) {
    const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
      ASSIGN_OR_RETURN(const History history,
                       job.model.Fit(coordinator, "train", {.epochs = end, .steps_per_epoch = 3}));
      epochs.insert(epochs.end(), history.epochs.begin(), history.epochs.end());
      return absl::OkStatus();
    };
    CHECK(job.Run(program) == absl::OkStatus());
  }
  CHECK(epochs == std::vector<int64_t>{0, 1, 2});
}

TEST_CASE("A fit after one whose checkpoint could not be read restores it, too") {
  const std::string model_dir = NewDirectory();
  const auto fit = [&](CoordinatedModel& model, ClusterCoordinator& coordinator, int64_t epochs) {
    return model.Fit(coordinator, "train", {.epochs = epochs, .steps_per_epoch = 3});
  };
  {
    Fixture job(model_dir);
    const auto program = [&](ClusterCoordinator& coordinator) { return fit(job.model, coordinator, 1).status(); };
    REQUIRE(job.Run(program) == absl::OkStatus());
  }
  const std::string index = absl::StrCat(model_dir, "/model.ckpt-3.index");
  const std::string intact = files::ReadFile(index, 1 << 20).value();
  REQUIRE(files::WriteFileAtomically(index, "damaged").ok());
  Fixture job(model_dir);
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    CHECK(absl::IsDataLoss(fit(job.model, coordinator, 2).status()));
    CHECK(absl::IsDataLoss(fit(job.model, coordinator, 2).status()));
    RETURN_IF_ERROR(files::WriteFileAtomically(index, intact));
    ASSIGN_OR_RETURN(const History history, fit(job.model, coordinator, 2));
    CHECK(history.epochs == std::vector<int64_t>{1});
    return absl::OkStatus();
  };
  CHECK(job.Run(program) == absl::OkStatus());
}

TEST_CASE("Weights are saved in TensorFlow's format, for a model on one device, too") {
  const std::string path = absl::StrCat(NewDirectory(), "/weights");
  Fixture job;
  Weights saved;
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    RETURN_IF_ERROR(job.model.Fit(coordinator, "train", {.steps_per_epoch = 2}).status());
    ASSIGN_OR_RETURN(saved, job.model.GetWeights(coordinator));
    RETURN_IF_ERROR(job.model.SaveWeights(coordinator, path));
    RETURN_IF_ERROR(job.model.Fit(coordinator, "train", {.steps_per_epoch = 2}).status());
    RETURN_IF_ERROR(job.model.LoadWeights(coordinator, path));
    ASSIGN_OR_RETURN(const Weights loaded, job.model.GetWeights(coordinator));
    for (const auto& [name, value] : saved) CHECK(Elements(loaded.at(name)) == Elements(value));
    CHECK(absl::IsNotFound(job.model.SetWeights(coordinator, {{"x", Tensor::Scalar(1.0f)}})));
    return absl::OkStatus();
  };
  CHECK(job.Run(program) == absl::OkStatus());
  Model one(Dense);
  REQUIRE(one.Compile(Options()).ok());
  REQUIRE(one.Fit(Line(4), {.epochs = 1}).ok());
  REQUIRE(one.LoadWeights(path).ok());
  CHECK(Elements(one.GetWeights().value().at("dense/kernel")) == Elements(saved.at("dense/kernel")));
}

TEST_CASE("A model without a loss or data without labels do not train") {
  const bool has_loss = GENERATE(false, true);
  CoordinatedModel model(Dense);
  CompileOptions options = Options();
  if (!has_loss) options.loss = nullptr;
  REQUIRE(model.Compile(std::move(options)).ok());
  const data::DatasetPtr dataset = has_loss ? data::TensorSlices({{"", Tensor(DType::kFloat32, {4, 1})}}, {}) : Line(4);
  REQUIRE(model.AddDataset("train", dataset, {.batch_size = kBatchSize}).ok());
  const auto program = [&](ClusterCoordinator& coordinator) {
    return model.Fit(coordinator, "train", {.steps_per_epoch = 2}).status();
  };
  const absl::Status status = coordinator::RunInProcess(1, 1, model.functions(), {}, program);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains(has_loss ? "has no labels" : "compiled without a loss"));
}

TEST_CASE("A step that fails ends the fit with its error") {
  Fixture job("", [](compute::Layers& layers, const train::ModelInputs& in) {
    // Infinite from the start.
    const Value zero = in.graph.Constant(Tensor::Of<float>({1, 1}, {0}));
    return compute::Div(layers.Dense(in.features[0], 1), zero);
  });
  const auto program = [&](ClusterCoordinator& coordinator) {
    return job.model.Fit(coordinator, "train", {.steps_per_epoch = 2}).status();
  };
  const absl::Status status = job.Run(program);
  CHECK(absl::IsOutOfRange(status));
  CHECK_THAT(std::string(status.message()), Contains("CheckNumerics: element 0 of float32[] is nan"));
}

// As many points of the line as `size` says, one less for other threads than that of the coordinator.
class LineOfTwoSizes : public data::Dataset {
 public:
  explicit LineOfTwoSizes(int64_t size) : line_(Line(size)) {}

  const data::ElementSpec& spec() const override { return line_->spec(); }
  int64_t num_examples() const override {
    return line_->num_examples() - (std::this_thread::get_id() == coordinator ? 0 : 1);
  }
  absl::Status Read(int64_t epoch, int64_t index, const data::Example& out) const override {
    return line_->Read(epoch, index, out);
  }

  std::thread::id coordinator;

 private:
  const data::DatasetPtr line_;
};

TEST_CASE("Workers whose data set has another size are refused") {
  Fixture job;
  const auto line = std::make_shared<LineOfTwoSizes>(8);
  REQUIRE(job.model.AddDataset("two", line, {.batch_size = kBatchSize}).ok());
  const auto program = [&](ClusterCoordinator& coordinator) {
    line->coordinator = std::this_thread::get_id();
    for (const absl::Status& refused :
         {job.model.Fit(coordinator, "two", {.steps_per_epoch = 2}).status(),
          job.model.Evaluate(coordinator, "two").status(), job.model.Predict(coordinator, "two").status()}) {
      CHECK(absl::IsInvalidArgument(refused));
      CHECK_THAT(std::string(refused.message()),
                 Contains("data set 'two' of model model has 7 examples on this worker, but 8 on the coordinator"));
    }
    return absl::OkStatus();
  };
  CHECK(job.Run(program) == absl::OkStatus());
}

TEST_CASE("Metrics have names of their own, of all models") {
  for (const char* name : {"loss", "learning_rate", "global_step", "error"}) {
    CompileOptions options[] = {Options(), Options()};
    for (CompileOptions& of : options) of.metrics.push_back({name, of.metrics[0].values});
    CoordinatedModel coordinated(Dense, "net");
    Model one(Dense, "net");
    const absl::Status refused = coordinated.Compile(std::move(options[0]));
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(refused == one.Compile(std::move(options[1])));
    CHECK_THAT(std::string(refused.message()), Contains(absl::StrCat(" named '", name, "'")));
  }
}

TEST_CASE("What cannot be is refused") {
  CoordinatedModel model(Dense, "net");
  CHECK_THAT(std::string(model.AddDataset("train", Line(4)).message()),
             Contains("model net is not compiled; call Compile before AddDataset"));
  CompileOptions with_strategy = Options();
  with_strategy.strategy = distribute::Strategy::Create({}).value();
  CHECK_THAT(std::string(model.Compile(std::move(with_strategy)).message()), Contains("has a strategy; leave it out"));
  REQUIRE(model.Compile(Options()).ok());
  CHECK(absl::IsFailedPrecondition(model.Compile(Options())));
  REQUIRE(model.AddDataset("train", Line(4)).ok());
  CHECK_THAT(std::string(model.AddDataset("none", Line(4), {.batch_size = 0}).message()), Contains("batch_size=0;"));
  const data::DatasetPtr other =
      data::TensorSlices({{"", Tensor(DType::kFloat32, {4, 2})}}, {{"", Tensor(DType::kFloat32, {4, 1})}});
  CHECK_THAT(std::string(model.AddDataset("other", other).message()), Contains("has other features or labels"));
  const absl::Status empty = model.AddDataset("empty", Line(0));
  CHECK(absl::IsDataLoss(empty));
  CHECK_THAT(std::string(empty.message()), Contains("data set 'empty' of model net has no examples"));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    for (const int64_t steps : {0, -1}) {
      const absl::Status no_batch = model.Evaluate(coordinator, "train", steps).status();
      CHECK(absl::IsInvalidArgument(no_batch));
      CHECK_THAT(std::string(no_batch.message()), Contains(absl::StrCat("steps=", steps, "; give at least 1")));
    }
    const CoordinatedFitOptions none = {.steps_per_epoch = 1, .validation_data = "train", .validation_steps = 0};
    CHECK_THAT(std::string(model.Fit(coordinator, "train", none).status().message()), Contains("validation_steps=0;"));
    const absl::Status no_steps = model.Fit(coordinator, "train", {}).status();
    CHECK(absl::IsInvalidArgument(no_steps));
    CHECK_THAT(std::string(no_steps.message()),
               Contains("`steps_per_epoch`, `validation_steps` or `steps` argument must be provided in `Model.fit`, "
                        "`Model.evaluate`, or `Model.predict`"));
    CHECK_THAT(std::string(model.Fit(coordinator, "x", {.steps_per_epoch = 1}).status().message()),
               Contains("model net has no data set 'x'; add it with AddDataset on all tasks"));
    CHECK(absl::IsNotFound(model.Fit(coordinator, "train", {.steps_per_epoch = 1, .validation_data = "x"}).status()));
    CHECK(absl::IsNotFound(model.Evaluate(coordinator, "x").status()));
    CHECK(absl::IsNotFound(model.Predict(coordinator, "x").status()));
    return absl::OkStatus();
  };
  CHECK(coordinator::RunInProcess(1, 1, model.functions(), {}, program) == absl::OkStatus());
}

}  // namespace
}  // namespace official::keras
