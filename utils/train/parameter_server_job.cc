#include "utils/train/parameter_server_job.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/data/every_nth.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/files/files.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;

// The rows that examples read, in [0, 16), some several times in a batch.
Value IdsOf(const ModelInputs& in, int column) {
  const Value numbers = compute::Slice(in.features[0], {0, column}, {in.features[0].shape().dim(0), 1});
  return compute::Cast(compute::Reshape(numbers, {numbers.shape().dim(0)}), DType::kInt32);
}

}  // namespace

InputFn Examples(int bad, int64_t end_epoch, int batch_size) {
  return [=](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {kExamples, 3}), y(DType::kFloat32, {kExamples});
    for (int i = 0; i < 3 * kExamples; ++i) x.data<float>()[i] = static_cast<float>(i * 7 % 16);
    for (int i = 0; i < kExamples; ++i) y.data<float>()[i] = i == bad ? NAN : static_cast<float>(i % 3);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = batch_size, .start = start, .end_epoch = end_epoch});
  };
}

data::ElementSpec SpecOfExample() {
  return {.features = {{"", {DType::kFloat32, {3}}}}, .labels = {{"", {DType::kFloat32, {}}}}};
}

absl::StatusOr<ModelSpec> Regression(const ModelInputs& in) {
  const Value w = in.graph.Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Zeros()});
  const Value bias = in.graph.Variable({"bias", {DType::kFloat32, {}}, compute::Initializer::Zeros()});
  const Value average = in.graph.Variable({"average", {}, compute::Initializer::Zeros(), /*trainable=*/false});
  const Value x = compute::Dropout(in.features[0], 0.3, in.random_state, "dropout");
  const Value y = compute::Add(compute::Reshape(compute::MatMul(x, w), {x.shape().dim(0)}), bias);
  const Value loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0])));
  return ModelSpec{.loss = loss, .predictions = {}, .metrics = {}, .logged = {}, .moving_averages = {{average, loss}}};
}

Model RegressionModel(OptimizerFn optimizer) {
  Model model;
  model.name = "regression";
  model.model_fn = Regression;
  model.optimizer = std::move(optimizer);
  model.learning_rate = [](int64_t step) { return 0.001 / static_cast<double>(step + 1); };
  return model;
}

Model LinearModel() {
  Model model;
  model.name = "linear";
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Zeros()});
    const Value bias = in.graph.Variable({"bias", {DType::kFloat32, {}}, compute::Initializer::Zeros()});
    const Value y = compute::Reshape(compute::MatMul(in.features[0], w), {in.features[0].shape().dim(0)});
    const Value loss = compute::Mean(compute::Add(compute::Add(y, in.labels[0]), bias));
    return ModelSpec{.loss = loss, .predictions = {}, .metrics = {}, .logged = {}, .moving_averages = {}};
  };
  model.optimizer = compute::GradientDescent;
  model.learning_rate = [](int64_t) { return 1.0 / 64; };
  return model;
}

Model EmbeddingModel(OptimizerFn optimizer, bool whole) {
  Model model = RegressionModel(std::move(optimizer));
  model.name = "embedding";
  model.model_fn = [=](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    const auto normal = compute::Initializer::Normal(0.5);
    const Value users = in.graph.Variable({"users", {DType::kFloat32, {kUsers, kUserSize}}, normal});
    const Value items = in.graph.Variable({"items", {DType::kFloat32, {kItems, kItemSize}}, normal});
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {kUserSize + 2 * kItemSize, 1}}, normal});
    const Value x = compute::Concat({compute::Gather(users, IdsOf(in, 0)), compute::Gather(items, IdsOf(in, 1)),
                                     compute::Gather(items, IdsOf(in, 2))},
                                    1);
    const Value y = compute::Reshape(compute::MatMul(x, w), {x.shape().dim(0)});
    Value loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0])));
    if (whole) loss = compute::Add(loss, compute::L2Loss({users}));
    return ModelSpec{.loss = loss, .predictions = {}, .metrics = {}, .logged = {}, .moving_averages = {}};
  };
  return model;
}

OptimizerFn Optimizer(int kind) {
  if (kind == 0) return compute::GradientDescent;
  return [=](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
    return kind == 1 ? compute::Momentum(inputs, variables, {}) : compute::Adam(inputs, variables, {});
  };
}

EstimatorConfig NewConfig(int micro_batches) {
  static int counter = 0;
  const char* const root = std::getenv("TEST_TMPDIR");
  EstimatorConfig config;
  config.model_dir = absl::StrCat(root ? root : "/tmp", "/parameter-server-", getpid(), "-", ++counter);
  config.grad_accum_steps = micro_batches;
  return config;
}

std::string Checkpoint(const std::string& model_dir, int64_t step) {
  return files::ReadFile(absl::StrCat(model_dir, "/model.ckpt-", step, ".data-00000-of-00001"), 1 << 20).value();
}

std::map<std::string, std::string> Variables(const std::string& model_dir, int64_t step) {
  const auto bundle = BundleReader::Open(absl::StrCat(model_dir, "/model.ckpt-", step)).value();
  std::map<std::string, std::string> values;
  for (const StoredTensor& tensor : bundle->ListTensors()) {
    if (absl::StartsWith(tensor.name, kRunPrefix)) continue;
    const Tensor value = bundle->Read(tensor.name).value();
    values[tensor.name] = std::string(static_cast<const char*>(value.raw_data()), value.num_bytes());
  }
  return values;
}

absl::Status TrainAlone(const Model& model, const EstimatorConfig& config, int64_t steps, int num_replicas,
                        const InputFn& input) {
  ASSIGN_OR_RETURN(auto strategy, distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 1}));
  ASSIGN_OR_RETURN(const auto estimator, Estimator::Create(model, config, std::move(strategy)));
  return estimator->Train(input, steps, {});
}

absl::Status Ends::status() const {
  absl::Status cancelled;
  for (const auto* statuses : {&workers, &servers}) {
    for (const absl::Status& status : *statuses) {
      if (!status.ok() && !absl::IsCancelled(status)) return status;
      cancelled.Update(status);
    }
  }
  return cancelled;
}

absl::Status RunTask(distribute::Exchange& exchange, const Model& model, const EstimatorConfig& config,
                     const Tasks& tasks, int64_t steps, const InputFn& input) {
  const bool serves = exchange.worker() >= tasks.num_workers;
  ASSIGN_OR_RETURN(auto strategy,
                   distribute::Strategy::Create(
                       {.device_kind = serves ? "cpu" : tasks.device_kind,
                        .num_replicas = serves ? 1 : tasks.num_replicas,
                        .servers = distribute::ServerTasks{.exchange = &exchange, .num_servers = tasks.num_servers},
                        .num_threads = 1}));
  ASSIGN_OR_RETURN(const auto estimator, Estimator::Create(model, config, std::move(strategy)));
  if (serves) return estimator->Serve(SpecOfExample());
  const auto own = [&](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    ASSIGN_OR_RETURN(data::BatchSourcePtr all, input(start));
    return data::EveryNth(std::move(all), tasks.num_workers, exchange.worker());
  };
  const std::vector<data::Position> positions = estimator->state().worker_positions;
  if (!positions.empty()) estimator->ContinueAt(positions[exchange.worker()], positions);
  RETURN_IF_ERROR(estimator->Train(own, steps, {}, TrainingEnds::kAtMaxStepsOrData));
  return estimator->LeaveServers();
}

Ends TrainWithServers(const Model& model, const EstimatorConfig& config, const Tasks& tasks, int64_t steps,
                      const InputFn& input) {
  const auto exchanges = distribute::MakeMemoryExchanges(tasks.num_workers + tasks.num_servers);
  Ends ends{std::vector<absl::Status>(tasks.num_workers), std::vector<absl::Status>(tasks.num_servers)};
  std::vector<std::thread> threads;
  for (int task = 0; task < tasks.num_workers + tasks.num_servers; ++task) {
    threads.emplace_back([&, task] {
      absl::Status& end = task < tasks.num_workers ? ends.workers[task] : ends.servers[task - tasks.num_workers];
      end = RunTask(*exchanges[task], model, config, tasks, steps, input);
      if (!end.ok()) exchanges[task]->Fail(end.message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace official::train
