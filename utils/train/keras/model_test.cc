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

namespace official::keras {
namespace {

using Catch::Matchers::StartsWith;
using compute::DType;
using compute::Tensor;
using compute::Value;

// Points i / 10 of y = 2 x + 1, for i below `count`.
data::DatasetPtr Line(int64_t count) {
  Tensor x(DType::kFloat32, {count, 1}), y(DType::kFloat32, {count, 1});
  for (int64_t i = 0; i < count; ++i) {
    x.data<float>()[i] = static_cast<float>(i) / 10;
    y.data<float>()[i] = 2 * x.data<float>()[i] + 1;
  }
  return data::TensorSlices({{"", x}}, {{"", y}});
}

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
  // The metric is a mean over examples; the loss one over batches, as with Estimator.
  const Logs evaluated = model.Evaluate(Line(10), {.batch_size = 10}).value();
  CHECK(Log(evaluated, "loss") == Approx(0.09194497019052505).epsilon(1e-5));
  CHECK(Log(evaluated, "error") == Approx(0.26110610365867615).epsilon(1e-5));
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
  absl::Status OnEpochEnd(int64_t epoch, const Logs&, Training&) override {
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

TEST_CASE("Calls in a wrong order are told so") {
  Model model = DenseModel();
  CHECK(model.Fit(Line(10), {}).status() ==
        absl::FailedPreconditionError("model model is not compiled; call Compile before Fit"));
  REQUIRE(model.Compile(Options()).ok());
  CHECK(model.Predict(Line(3)).status() ==
        absl::FailedPreconditionError("model model is not trained; call Fit before Predict"));
  CHECK_THAT(std::string(model.Compile(Options()).message()), StartsWith("model model is compiled already"));
}

}  // namespace
}  // namespace official::keras
