// linear_main DIRECTORY: a model of one dense layer, trained, evaluated and asked with the library, as an Estimator of
// TensorFlow's is. It fits y = 2 a - 3 b + 1 to 1000 points, prints the variables, the mean squared error of 200 other
// points and the values of two, and leaves a checkpoint and events in DIRECTORY; started again, it trains on from
// there.

#include <iostream>

#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/misc/exit_code.h"
#include "utils/train/estimator.h"
#include "utils/train/run_lock.h"

namespace official::examples {
namespace {

using compute::Tensor;
using compute::Value;

// Points [2] in [-1, 1) and their values [1].
data::DatasetPtr Points(int64_t count, uint64_t seed) {
  Tensor points(compute::DType::kFloat32, {count, 2}), values(compute::DType::kFloat32, {count, 1});
  data::Random random(seed, /*epoch=*/0, /*index=*/0);
  for (int64_t i = 0; i < count; ++i) {
    float* const point = points.data<float>() + 2 * i;
    for (int k = 0; k < 2; ++k) point[k] = random.Uniform(-1, 1);
    values.data<float>()[i] = 2 * point[0] - 3 * point[1] + 1;
  }
  return data::Shuffle(data::TensorSlices({{"", points}}, {{"", values}}), seed);
}

// The model function builds the graph of a mode once; training, gradients and devices are the Estimator's.
absl::StatusOr<train::ModelSpec> Linear(const train::ModelInputs& in) {
  compute::Layers layers(in.graph, in.dtype);
  const Value x = compute::Cast(in.features[0], in.dtype);
  const Value y = compute::Cast(layers.Dense(x, /*units=*/1), compute::DType::kFloat32);  // for the loss
  train::ModelSpec spec;
  if (in.mode == train::Mode::kPredict) {
    spec.predictions = {{"y", y}};
  } else {
    spec.loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0])));
  }
  return spec;
}

absl::Status Main(const std::string& model_dir) {
  const train::Model model = {
      .name = "linear", .model_fn = Linear, .optimizer = compute::GradientDescent, .learning_rate = [](int64_t step) {
        return step < 400 ? 0.1 : 0.01;
      }};
  ASSIGN_OR_RETURN(const auto lock, train::RunLock::Acquire(model_dir));
  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create({}));
  train::EstimatorConfig config;
  config.model_dir = model_dir;
  ASSIGN_OR_RETURN(const auto estimator, train::Estimator::Create(model, config, std::move(strategy)));
  const data::DatasetPtr points = Points(1000, /*seed=*/1), other_points = Points(200, /*seed=*/2);
  const train::InputFn train_batches = [&](data::Position start) {
    return data::Batches(points, {.batch_size = 20, .start = start, .end_epoch = start.epoch + 10});
  };
  RETURN_IF_ERROR(estimator->Train(train_batches, /*max_steps=*/std::nullopt, /*hooks=*/{}));
  for (const char* name : {"dense/kernel", "dense/bias"}) {
    ASSIGN_OR_RETURN(const Tensor value, estimator->Variable(name));
    for (int64_t i = 0; i < value.num_elements(); ++i) std::cout << name << " " << value.data<float>()[i] << "\n";
  }
  const train::InputFn eval_batches = [&](data::Position start) {
    return data::Batches(other_points, {.batch_size = 20, .start = start});
  };
  ASSIGN_OR_RETURN(const train::EvalResults evaluated, estimator->Evaluate(eval_batches, /*max_steps=*/std::nullopt));
  for (const auto& [name, value] : evaluated) std::cout << name << " " << value << "\n";
  const Tensor asked = Tensor::Of<float>({2, 2}, {0, 0, 1, 1});
  ASSIGN_OR_RETURN(const auto predictions, estimator->Predict(points->spec(), {asked}));
  for (const float y : predictions[0].second.flat<float>()) std::cout << "y " << y << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::cerr << "usage: linear_main DIRECTORY\n";
    return 2;
  }
  const absl::Status status = official::examples::Main(argv[1]);
  if (!status.ok()) std::cerr << "linear_main: " << status.message() << "\n";
  return official::misc::ExitCode(status);
}
