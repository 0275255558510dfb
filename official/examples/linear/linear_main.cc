// linear_main DIRECTORY: a model of one dense layer, trained with the library. It fits y = 2 a - 3 b + 1 to 1000 points
// and leaves a checkpoint and events in DIRECTORY; started again, it trains on from there.

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
data::DatasetPtr Points() {
  Tensor points(compute::DType::kFloat32, {1000, 2}), values(compute::DType::kFloat32, {1000, 1});
  data::Random random(/*seed=*/1, /*epoch=*/0, /*index=*/0);
  for (int i = 0; i < 1000; ++i) {
    float* const point = points.data<float>() + 2 * i;
    for (int k = 0; k < 2; ++k) point[k] = random.Uniform(-1, 1);
    values.data<float>()[i] = 2 * point[0] - 3 * point[1] + 1;
  }
  return data::Shuffle(data::TensorSlices({{"", points}}, {{"", values}}), /*seed=*/1);
}

// The model function builds the graph of a mode once; training, gradients and devices are the Estimator's.
absl::StatusOr<train::ModelSpec> Linear(const train::ModelInputs& in) {
  compute::Layers layers(in.graph, in.dtype);
  const Value y = layers.Dense(in.features[0], /*units=*/1);
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
  const train::InputFn batches = [](data::Position start) {
    return data::Batches(Points(), {.batch_size = 20, .start = start, .end_epoch = start.epoch + 10});
  };
  RETURN_IF_ERROR(estimator->Train(batches, /*max_steps=*/std::nullopt, /*hooks=*/{}));
  for (const char* name : {"dense/kernel", "dense/bias"}) {
    ASSIGN_OR_RETURN(const Tensor value, estimator->Variable(name));
    for (int64_t i = 0; i < value.num_elements(); ++i) std::cout << name << " " << value.data<float>()[i] << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: linear_main DIRECTORY\n";
    return 2;
  }
  const absl::Status status = official::examples::Main(argv[1]);
  if (!status.ok()) std::cerr << "linear_main: " << status.message() << "\n";
  return official::misc::ExitCode(status);
}
