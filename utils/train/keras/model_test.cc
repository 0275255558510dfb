#include "utils/train/keras/model.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/files/files.h"
#include "utils/train/keras/line_data.h"

namespace official::keras {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using compute::DType;
using compute::Tensor;
using compute::Value;

Model DenseModel(int64_t units = 1) {
  return Model([units](compute::Layers& layers, const train::ModelInputs& in) {
    return layers.Dense(in.features[0], units,
                        {.kernel_initializer = [](const compute::Shape&) { return compute::Initializer::Zeros(); }});
  });
}

CompileOptions Options(int num_replicas = 1) {
  return {.loss = MeanSquaredError(),
          .learning_rate = 0.1,
          .metrics = {{"error",
                       [](Value labels, Value outputs) {
                         const Value difference = compute::Sub(outputs, labels);
                         return compute::Sqrt(compute::Square(difference));
                       }}},
          .strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value()};
}

double Log(const Logs& logs, const std::string& name) {
  for (const auto& log : logs) {
    if (log.first == name) return log.second;
  }
  FAIL("no " << name);
  return 0;
}

std::vector<double> Column(const History& history, const std::string& name) {
  std::vector<double> column;
  for (const Logs& logs : history.logs) column.push_back(Log(logs, name));
  return column;
}

void CheckNear(const std::vector<double>& values, const std::vector<double>& wanted) {
  REQUIRE(values.size() == wanted.size());
  for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(wanted[i]).epsilon(1e-5));
}

TEST_CASE("fit, evaluate and predict have the numbers of Keras 3.15") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const History history =
      model.Fit(Line(10), {.batch_size = 4, .epochs = 3, .shuffle = false, .validation_data = Line(3)}).value();
  CHECK(history.epochs == std::vector<int64_t>{0, 1, 2});
  CheckNear(Column(history, "loss"), {2.73153782, 0.441116512, 0.134544477});
  CheckNear(Column(history, "error"), {1.61942124, 0.574340165, 0.319132149});
  CheckNear(Column(history, "val_loss"), {0.0353277959, 0.0771847293, 0.175151899});
  CheckNear(Column(history, "val_error"), {0.147074774, 0.260700613, 0.409731299});
  const Tensor outputs = model.Predict(Line(3), 2).value();
  REQUIRE(outputs.shape() == compute::Shape{3, 1});
  CheckNear({outputs.data<float>()[0], outputs.data<float>()[1], outputs.data<float>()[2]},
            {1.5141737461090088, 1.6097313165664673, 1.7052888870239258});
  // Means over the examples, also where the last batch is smaller.
  for (const int64_t batch_size : {10, 4}) {
    const Logs evaluated = model.Evaluate(Line(10), {.batch_size = batch_size}).value();
    CHECK(Log(evaluated, "loss") == Approx(0.09194497019052505).epsilon(1e-5));
    CHECK(Log(evaluated, "error") == Approx(0.26110610365867615).epsilon(1e-5));
  }
}

TEST_CASE("Classes are learned with the numbers of Keras 3.15") {
  Tensor x(DType::kFloat32, {6, 2}), y(DType::kInt32, {6});
  const float points[] = {1, 0, 0, 1, 1, 1, 2, 0, 0, 2, -1, -1};
  std::copy(std::begin(points), std::end(points), x.data<float>());
  for (int i = 0; i < 6; ++i) y.data<int32_t>()[i] = i % 3;
  const data::DatasetPtr dataset = data::TensorSlices({{"", x}}, {{"", y}});
  Model model = DenseModel(/*units=*/3);
  REQUIRE(
      model
          .Compile(
              {.loss = SparseCategoricalCrossentropy(), .learning_rate = 0.5, .metrics = {SparseCategoricalAccuracy()}})
          .ok());
  const History history = model.Fit(dataset, {.batch_size = 4, .epochs = 3, .shuffle = false}).value();
  CheckNear(Column(history, "loss"), {1.09919071, 0.82942313, 0.711663425});
  CheckNear(Column(history, "accuracy"), {0.5, 0.833333313, 0.833333313});
  const Logs evaluated = model.Evaluate(dataset).value();
  CHECK(Log(evaluated, "loss") == Approx(0.6360153555870056).epsilon(1e-5));
  CHECK(Log(evaluated, "accuracy") == Approx(0.8333333134651184).epsilon(1e-5));
}

TEST_CASE("SparseCategoricalAccuracy compares each class with its own label, also of labels [batch, 1]") {
  compute::Graph graph;
  const Value outputs = graph.Input("outputs", {DType::kFloat32, {6, 3}});
  const auto shape_for = [&](const compute::Shape& labels) {
    const Value values =
        SparseCategoricalAccuracy().values(graph.Input("labels" + labels.ToString(), {DType::kInt32, labels}), outputs);
    return values ? values.shape() : compute::Shape{};
  };
  CHECK(shape_for({6}) == compute::Shape{6});
  CHECK(shape_for({6, 1}) == compute::Shape{6, 1});
  REQUIRE(graph.status().ok());
  shape_for({6, 3});
  CHECK(graph.status() ==
        absl::InvalidArgumentError("the labels have the shape [6,3], and what is compared with them [6]; give both the "
                                   "same, up to a last dimension of size 1"));
}

TEST_CASE("Data of another type than that trained on has graphs of its own") {
  Model model([](compute::Layers& layers, const train::ModelInputs& in) {
    return layers.Dense(compute::Cast(in.features[0], DType::kFloat32), 1);
  });
  REQUIRE(model.Compile(Options()).ok());
  REQUIRE(model.Fit(Line(2), {}).ok());
  const Tensor y = Tensor::Of<float>({2, 1}, {1, 3});
  const data::DatasetPtr floats = data::TensorSlices({{"", Tensor::Of<float>({2, 1}, {0, 1})}}, {{"", y}}),
                         integers = data::TensorSlices({{"", Tensor::Of<int32_t>({2, 1}, {0, 1})}}, {{"", y}});
  const Tensor of_floats = model.Predict(floats).value(), of_integers = model.Predict(integers).value();
  for (int i = 0; i < 2; ++i) CHECK(of_integers.data<float>()[i] == of_floats.data<float>()[i]);
  CHECK(Log(model.Evaluate(integers).value(), "loss") == Log(model.Evaluate(floats).value(), "loss"));
  CHECK(model.Fit(integers, {}).ok());
}

TEST_CASE("A second fit trains for as many epochs again, which are counted from 0") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  REQUIRE(model.Fit(Line(10), {.batch_size = 4, .epochs = 3}).ok());
  const History history = model.Fit(Line(10), {.batch_size = 4, .epochs = 2}).value();
  CHECK(history.epochs == std::vector<int64_t>{0, 1});
  CHECK(model.estimator().global_step() == 15);
}

TEST_CASE("Epochs of so many steps go on in the data") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const History history = model.Fit(Line(10), {.batch_size = 4, .epochs = 4, .steps_per_epoch = 2}).value();
  CHECK(history.epochs.size() == 4);
  CHECK(model.estimator().global_step() == 8);
  // Two epochs and two batches; the next call begins with an epoch of its own.
  CHECK(model.estimator().state().position == data::Position{3, 0});
}

TEST_CASE("Calls of fit may count epochs in another way than those before") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const auto steps_of = [&](const FitOptions& options) {
    const int64_t before = model.estimator().global_step();
    CHECK(static_cast<int64_t>(model.Fit(Line(10), options).value().epochs.size()) == options.epochs);
    return model.estimator().global_step() - before;
  };
  CHECK(steps_of({.batch_size = 4, .epochs = 3}) == 9);
  CHECK(steps_of({.batch_size = 4, .epochs = 1, .steps_per_epoch = 2}) == 2);
  CHECK(steps_of({.batch_size = 4, .epochs = 4, .steps_per_epoch = 5}) == 20);
  CHECK(steps_of({.batch_size = 4, .epochs = 1}) == 3);
}

TEST_CASE("Numbers of steps below 1 are refused") {
  const int64_t steps = GENERATE(0, -1);
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const std::string wanted =
      absl::StrCat("=", steps, "; give at least 1, or leave it unset for one pass over the data");
  CHECK(model.Fit(Line(10), {.steps_per_epoch = steps}).status() ==
        absl::InvalidArgumentError("steps_per_epoch" + wanted));
  CHECK(model.estimator().global_step() == 0);
  CHECK(model.Evaluate(Line(10), {.steps = steps}).status() == absl::InvalidArgumentError("steps" + wanted));
}

TEST_CASE("Two replicas train the bits of one") {
  std::vector<Tensor> kernels;
  for (const int num_replicas : {1, 2}) {
    Model model = DenseModel();
    REQUIRE(model.Compile(Options(num_replicas)).ok());
    REQUIRE(model.Fit(Line(10), {.batch_size = 4, .epochs = 3}).ok());
    kernels.push_back(model.estimator().Variable("dense/kernel").value());
  }
  CHECK(kernels[0].scalar<float>() == kernels[1].scalar<float>());
}

std::string NewDirectory() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/keras-", getpid(), "-", ++counter);
}

class StopAfter : public Callback {
 public:
  explicit StopAfter(int64_t epoch) : epoch_(epoch) {}
  absl::Status OnEpochEnd(int64_t epoch, Logs&, Training&) override {
    return epoch == epoch_ ? absl::InternalError("killed") : absl::OkStatus();
  }

 private:
  const int64_t epoch_;
};

TEST_CASE("With a model_dir a program that is started again goes on, and ends with the same bits") {
  std::vector<Tensor> kernels;
  const std::string model_dir = NewDirectory();
  const auto options = [&] {
    CompileOptions options = Options();
    options.model_dir = model_dir;
    return options;
  };
  {
    Model whole = DenseModel();
    REQUIRE(whole.Compile(Options()).ok());
    REQUIRE(whole.Fit(Line(10), {.batch_size = 4, .epochs = 5}).ok());
    kernels.push_back(whole.estimator().Variable("dense/kernel").value());
  }
  {
    Model model = DenseModel();
    REQUIRE(model.Compile(options()).ok());
    std::vector<std::unique_ptr<Callback>> callbacks;
    callbacks.push_back(std::make_unique<StopAfter>(1));
    CHECK(absl::IsInternal(model.Fit(Line(10), {.batch_size = 4, .epochs = 5, .callbacks = callbacks}).status()));
    Model second = DenseModel();
    CHECK(absl::IsAlreadyExists(second.Compile(options())));
  }
  Model again = DenseModel();
  REQUIRE(again.Compile(options()).ok());
  const History history = again.Fit(Line(10), {.batch_size = 4, .epochs = 5}).value();
  CHECK(history.epochs == std::vector<int64_t>{2, 3, 4});
  kernels.push_back(again.estimator().Variable("dense/kernel").value());
  CHECK(kernels[0].scalar<float>() == kernels[1].scalar<float>());
  CHECK(files::Exists(model_dir + "/model.ckpt-15.index"));
  CHECK(again.Fit(Line(10), {.batch_size = 4, .epochs = 1}).value().epochs == std::vector<int64_t>{0});
}

TEST_CASE("Callbacks change the learning rate and end the training") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  std::vector<std::unique_ptr<Callback>> callbacks;
  // Nothing is ever better by so much.
  callbacks.push_back(ReduceLROnPlateau({.monitor = "loss", .factor = 0.5, .patience = 2, .min_delta = 1000}));
  callbacks.push_back(EarlyStopping({.monitor = "loss", .min_delta = 1000, .patience = 3}));
  const History history = model.Fit(Line(10), {.batch_size = 4, .epochs = 10, .callbacks = callbacks}).value();
  CHECK(history.epochs.size() == 4);
  CHECK(model.learning_rate() == 0.05F);
}

History FitWith(Model& model, std::vector<std::unique_ptr<Callback>> callbacks, int64_t epochs) {
  return model
      .Fit(Line(10),
           {.batch_size = 4, .epochs = epochs, .shuffle = false, .validation_data = Line(3), .callbacks = callbacks})
      .value();
}

std::vector<std::unique_ptr<Callback>> One(std::unique_ptr<Callback> callback) {
  std::vector<std::unique_ptr<Callback>> callbacks;
  callbacks.push_back(std::move(callback));
  return callbacks;
}

std::vector<double> KernelAndBias(Model& model) {
  const Weights weights = model.GetWeights().value();
  CHECK(weights.size() == 2);
  return {weights.at("dense/kernel").scalar<float>(), weights.at("dense/bias").scalar<float>()};
}

TEST_CASE("The best weights come back at the end, as in Keras 3.15, on all replicas") {
  const int num_replicas = GENERATE(1, 2);
  Model model = DenseModel();
  REQUIRE(model.Compile(Options(num_replicas)).ok());
  CHECK(FitWith(model, One(EarlyStopping({.patience = 2, .restore_best_weights = true})), 10).epochs.size() == 3);
  CheckNear(KernelAndBias(model), {0.5666397, 0.99626124});
  const Tensor outputs = model.Predict(Line(3)).value();
  CheckNear({outputs.data<float>()[0], outputs.data<float>()[1], outputs.data<float>()[2]},
            {0.9962612390518188, 1.0529252290725708, 1.1095892190933228});
  // A training that is not stopped, too.
  Model whole = DenseModel();
  REQUIRE(whole.Compile(Options(num_replicas)).ok());
  CHECK(FitWith(whole, One(EarlyStopping({.patience = 5, .restore_best_weights = true})), 3).epochs.size() == 3);
  CheckNear(KernelAndBias(whole), {0.5666397, 0.99626124});
}

TEST_CASE("A schedule sets the learning rate of each epoch, as in Keras 3.15") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const History history = FitWith(
      model, One(LearningRateScheduler([](int64_t epoch, double rate) { return epoch < 1 ? rate : rate * 0.5; })), 4);
  CheckNear(Column(history, "loss"), {2.73153782, 0.510191143, 0.267501056, 0.20578818});
  CheckNear(Column(history, "error"), {1.61942124, 0.610820472, 0.426129341, 0.373382479});
  CheckNear(Column(history, "val_loss"), {0.0353277959, 0.0165829808, 0.0318092853, 0.0410464033});
  CHECK(Column(history, "learning_rate") == std::vector<double>{0.1F, 0.05F, 0.025F, 0.0125F});
}

TEST_CASE("A lowered learning rate is in the history of the next epoch, as in Keras 3.15") {
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const History history =
      FitWith(model, One(ReduceLROnPlateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 1000})), 3);
  CheckNear(Column(history, "loss"), {2.73153782, 0.441116512, 0.13614051});
  CHECK(Column(history, "learning_rate") == std::vector<double>{0.1F, 0.1F, 0.05F});
}

TEST_CASE("The best epoch's weights are saved, and another model loads them") {
  const std::string directory = NewDirectory();
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  FitWith(model,
          One(ModelCheckpoint({.filepath = directory + "/m-{epoch:02d}-{val_loss:.3f}", .save_best_only = true})), 3);
  CHECK(files::Exists(directory + "/m-01-0.035.index"));  // Keras 3.15: m-01-0.035.keras alone
  CHECK_FALSE(files::Exists(directory + "/m-02-0.077.index"));
  Model other = DenseModel();
  REQUIRE(other.Compile(Options()).ok());
  CHECK(absl::IsFailedPrecondition(other.LoadWeights(directory + "/m-01-0.035")));
  FitWith(other, {}, 1);
  REQUIRE(other.SetWeights({{"dense/bias", Tensor::Of<float>({1}, {3})}}).ok());
  CHECK(KernelAndBias(other)[1] == 3);
  REQUIRE(other.LoadWeights(directory + "/m-01-0.035").ok());
  CheckNear(KernelAndBias(other), {0.5666397, 0.99626124});
  CHECK(other.SetWeights({{"dense/bias", Tensor()}}).code() == absl::StatusCode::kInvalidArgument);
  CHECK(other.SetWeights({{"bias", Tensor()}}) ==
        absl::NotFoundError("model model has no weight bias; it has dense/kernel, dense/bias"));
  CHECK(absl::IsNotFound(other.LoadWeights(directory + "/m-02")));
}

TEST_CASE("Callbacks are called in Keras's order") {
  std::vector<std::string> called;
  Model model = DenseModel();
  REQUIRE(model.Compile(Options()).ok());
  const auto callback = [&](Logs& logs) {
    std::string names;
    for (const auto& log : logs) absl::StrAppend(&names, " ", log.first);
    return names;
  };
  FitWith(model,
          One(LambdaCallback({.on_train_begin =
                                  [&](Training&) {
                                    called.push_back("train begin");
                                    return absl::OkStatus();
                                  },
                              .on_train_end =
                                  [&](Training&) {
                                    called.push_back("train end");
                                    return absl::OkStatus();
                                  },
                              .on_epoch_begin =
                                  [&](int64_t epoch, Training&) {
                                    called.push_back(absl::StrCat("begin ", epoch));
                                    return absl::OkStatus();
                                  },
                              .on_epoch_end =
                                  [&](int64_t epoch, Logs& logs, Training&) {
                                    called.push_back(absl::StrCat("end ", epoch, callback(logs)));
                                    return absl::OkStatus();
                                  }})),
          2);
  CHECK(called == std::vector<std::string>{"train begin", "begin 0", "end 0 loss error val_error val_loss", "begin 1",
                                           "end 1 loss error val_error val_loss", "train end"});
}

TEST_CASE("A loss that is not finite ends the training, in the step in which Keras 3.15 finds it") {
  Model model = DenseModel();
  CompileOptions options = Options();
  options.learning_rate = 1e30;
  REQUIRE(model.Compile(std::move(options)).ok());
  const absl::Status status = model.Fit(Line(10), {.batch_size = 4, .epochs = 3, .shuffle = false}).status();
  CHECK_THAT(std::string(status.message()), StartsWith("step 2: "));  // Keras: batch 1, from 0
}

TEST_CASE("Training needs a loss, and both it and an evaluation need labels") {
  const auto check_refused = [](const absl::Status& status, const std::string& message) {
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains(message));
  };
  Model without_loss = DenseModel();
  CompileOptions options = Options();
  options.loss = nullptr;
  REQUIRE(without_loss.Compile(std::move(options)).ok());
  check_refused(without_loss.Fit(Line(3), {}).status(), "compiled without a loss; set CompileOptions::loss");
  const data::DatasetPtr features = data::TensorSlices({{"", Tensor(DType::kFloat32, {3, 1})}}, {});
  Model untrained = DenseModel();
  REQUIRE(untrained.Compile(Options()).ok());
  check_refused(untrained.Fit(features, {}).status(), "the data set has no labels");
  Model trained = DenseModel();
  REQUIRE(trained.Compile(Options()).ok());
  REQUIRE(trained.Fit(Line(3), {}).ok());
  CHECK(trained.Predict(features).ok());
  check_refused(trained.Evaluate(features).status(), "the data set has no labels");
}

TEST_CASE("Calls in a wrong order are told so") {
  Model model = DenseModel();
  CHECK(model.Fit(Line(10), {}).status() ==
        absl::FailedPreconditionError("model model is not compiled; call Compile before Fit"));
  REQUIRE(model.Compile(Options()).ok());
  CHECK(model.GetWeights().status() ==
        absl::FailedPreconditionError("model model has no weights yet; call Fit before asking for them"));
  CHECK(model.Predict(Line(3)).status() ==
        absl::FailedPreconditionError("model model is not trained; call Fit before Predict"));
  CHECK_THAT(std::string(model.Compile(Options()).message()), StartsWith("model model is compiled already"));
}

}  // namespace
}  // namespace official::keras
