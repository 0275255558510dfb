#include "utils/train/line_model.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::train {

using compute::DType;
using compute::Tensor;
using compute::Value;

Model Line() {
  return {.name = "line",
          .model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
            const compute::Shape& x = in.features[0].shape();
            const Value w = in.graph.Variable({"w", {DType::kFloat32, {x.dim(1), 1}}, compute::Initializer::Zeros()});
            const Value y = compute::Reshape(compute::MatMul(in.features[0], w), {x.dim(0)});
            if (in.mode == Mode::kPredict) return ModelSpec{.loss = {}, .predictions = {{"y", y}}};
            return ModelSpec{.loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0]))),
                             .predictions = {},
                             .metrics = {},
                             .logged = {},
                             .moving_averages = {}};
          },
          .optimizer = compute::GradientDescent,
          .learning_rate = [](int64_t) { return 0.1; }};
}

InputFn Input(float last, std::optional<int> of_batch) {
  return [last, of_batch](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    const int batches = 20;
    Tensor x(DType::kFloat32, {4 * batches, 2}), y(DType::kFloat32, {4 * batches});
    for (int i = 0; i < 8 * batches; ++i) {
      const bool here = i % 8 == 7 && of_batch.value_or(i / 8) == i / 8;
      x.data<float>()[i] = here ? last : static_cast<float>(i % 3);
    }
    for (int i = 0; i < 4 * batches; ++i) y.data<float>()[i] = static_cast<float>(i % 2);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = 4, .start = start, .end_epoch = data::kEndless});
  };
}

EstimatorConfig Config() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/line-", getpid(), "-", ++counter);
  return config;
}

std::unique_ptr<Estimator> MakeEstimator(EstimatorConfig config, int num_replicas) {
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 2}).value();
  return Estimator::Create(Line(), std::move(config), std::move(strategy)).value();
}

}  // namespace official::train
