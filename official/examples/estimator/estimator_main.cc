// estimator_main: a model of one's own with the flags, roles and files of the official models. It is the example of
// TensorFlow 1.8's and 1.12's documents on distribution (tensorflow/contrib/distribute/README.md): a dense layer that
// learns that 1 is 1, trained by tf.estimator.train_and_evaluate. One program is each task of a run: TF_CONFIG says
// which one, and the flags which devices it has.

#include <iostream>

#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/files/user_dirs.h"
#include "utils/run/config.h"
#include "utils/run/session.h"
#include "utils/run/standalone/main.h"

namespace official::examples {
namespace {

using compute::Tensor;
using compute::Value;

// The graph of each mode. Gradients, devices and checkpoints are the session's.
absl::StatusOr<train::ModelSpec> ModelFn(const train::ModelInputs& in) {
  compute::Layers layers(in.graph, in.dtype);
  const Value x = compute::Cast(in.features[0], in.dtype);
  const Value logits = compute::Cast(layers.Dense(x, /*units=*/1), compute::DType::kFloat32);  // for the loss
  if (in.mode == train::Mode::kPredict) return train::ModelSpec{.loss = {}, .predictions = {{"logits", logits}}};
  return train::ModelSpec{.loss = compute::Mean(compute::Square(compute::Sub(logits, in.labels[0])))};
}

// A hundred times the example 1, and its label 1.
run::Input InputOf(const run::Config& config) {
  Tensor ones(compute::DType::kFloat32, {100, 1});
  for (int i = 0; i < 100; ++i) ones.data<float>()[i] = 1;
  const data::DatasetPtr dataset = data::TensorSlices({{"", ones}}, {{"", ones}});
  const int64_t batch_size = config.base.batch_size;
  return {.dataset = "ones",
          .spec = dataset->spec(),
          .num_train_examples = dataset->num_examples(),
          .train =
              [=](const run::ReadOptions& read) {
                return run::ReadAhead(
                    dataset,
                    {.batch_size = batch_size, .start = read.start, .end_epoch = read.end_epoch, .rows = read.rows});
              },
          .eval =
              [=](const data::HeldRows& rows) {
                return run::ReadAhead(dataset, {.batch_size = batch_size, .rows = rows});
              }};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config config = run::ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  ASSIGN_OR_RETURN(const auto session, run::Session::Open(config, std::cout));
  const train::Model model = {
      .name = "example", .model_fn = ModelFn, .optimizer = compute::GradientDescent, .learning_rate = [](int64_t) {
        return 0.2;
      }};
  RETURN_IF_ERROR(session->Begin(model, InputOf(config), {.name = "example", .tensors_to_log = {}}).status());
  return session->TrainAndEvaluate("loss");
}

flags::Program Program() {
  return {
      .name = "estimator_main",
      .description = "Trains the model of one dense layer of TensorFlow's documents on distribution.",
      .examples = {{"estimator_main --model_dir=run1", "train for 5 epochs and evaluate"},
                   {"estimator_main --model_dir=run1 --num_cpu_devices=2", "train with two replicas"}},
      .defaults = {{"model_dir", files::DefaultModelDir("example_model")}, {"batch_size", "4"}, {"train_epochs", "5"}},
      .not_used = {{"data_dir", "the example makes its data"},
                   {"export_dir", "the example exports nothing"},
                   {"export_format", "the example exports nothing"},
                   {"save_meta_graph", "the example exports nothing"},
                   {"augment", "the example has no images"},
                   {"data_format", "the example has no images"},
                   {"use_synthetic_data", "the example makes its data"},
                   {"num_parallel_calls", "the example makes its data"}}};
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::examples::Program(), official::examples::Main);
}
