// The rules of TensorFlow's ClusterCoordinator and ParameterServerStrategy, in a job whose tasks are threads.

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/data/batch.h"
#include "utils/distribute/coordinator/metric.h"
#include "utils/distribute/coordinator/run_task.h"
#include "utils/distribute/coordinator/worker.h"
#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/memory_exchange_faults.h"

namespace official::coordinator {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;
using distribute::OptimizerFn;
using distribute::ReplicaContext;
using distribute::ReplicaFn;
using Tensors = std::vector<Tensor>;
using Arguments = absl::Span<const Tensor>;

// A step that trains an embedding and two layers to give labels [n, 1] for tokens [n].
ReplicaFn TrainStep(const OptimizerFn& optimizer) {
  return [=](ReplicaContext& context, absl::Span<const Value> inputs) -> absl::StatusOr<std::vector<Value>> {
    compute::Layers layers(context.graph(), DType::kFloat32);
    const Value rows = compute::Gather(layers.EmbeddingTable(8, 4), inputs[0]);
    const Value hidden = layers.Dense(rows, 5, {.activation = compute::Activation::kRelu});
    const Value loss = compute::Mean(compute::Square(compute::Sub(layers.Dense(hidden, 1), inputs[1])));
    const std::vector<Value> variables = context.TrainableVariables();
    const std::vector<Value> gradients = compute::Gradients(loss, variables);
    std::vector<compute::VariableGradient> updates;
    for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
    context.ApplyGradients(optimizer, context.graph().Constant(Tensor::Scalar(0.05f)), updates);
    return std::vector<Value>{loss};
  };
}

Tensors BatchOf(int step) {
  Tensors batch = {Tensor(DType::kInt32, {3}), Tensor(DType::kFloat32, {3, 1})};
  for (int i = 0; i < 3; ++i) {
    batch[0].data<int32_t>()[i] = (5 * step + 3 * i) % 8;
    batch[1].data<float>()[i] = static_cast<float>((step + i) % 3);
  }
  return batch;
}

std::vector<compute::TensorType> TypesOf(const Tensors& tensors) {
  std::vector<compute::TensorType> types;
  for (const Tensor& tensor : tensors) types.push_back(tensor.type());
  return types;
}

std::string BytesOf(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw_data()), static_cast<size_t>(tensor.num_bytes())};
}

// A function that runs the step of the same name on its arguments.
WorkerFn RunStep(const std::string& step) {
  return [=](WorkerContext& context, Arguments arguments) { return context.Run(step, arguments); };
}

Tensors Number(int64_t number) { return {Tensor::Scalar(number)}; }

// Waits, at most for a minute, until something holds.
void WaitUntil(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("does not hold after a minute");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// ---- Variables ----

TEST_CASE("One worker trains the bits of one device") {
  const OptimizerFn optimizers[] = {
      [](const auto& in, auto of) { return compute::GradientDescent(in, of); },
      [](const auto& in, auto of) { return compute::Momentum(in, of, {.momentum = 0.9}); },
      [](const auto& in, auto of) { return compute::Adam(in, of, {}); }};
  const int optimizer = GENERATE(0, 1, 2), num_servers = GENERATE(1, 2, 3);
  const bool partitioned = GENERATE(false, true);
  CoordinatorOptions options = {.seed = 7};
  if (partitioned) options.variable_partitioner = distribute::FixedShardsPartitioner(3).value();
  constexpr int kSteps = 6;
  const ReplicaFn train_step = TrainStep(optimizers[optimizer]);

  const auto strategy = distribute::Strategy::Create({}).value();
  const auto scope = distribute::StrategyScope::Create(*strategy, /*seed=*/7).value();
  distribute::ReplicaFunction function(train_step);
  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    const Tensors batch = BatchOf(step);
    losses.push_back(scope->Run(function, {batch[0], batch[1]}).value()[0].values[0].scalar<float>());
  }

  Functions functions;
  functions.RegisterStep("train_step", train_step);
  functions.Register("train_step", RunStep("train_step"));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    RETURN_IF_ERROR(coordinator.CreateVariables("train_step", TypesOf(BatchOf(0))));
    for (int step = 0; step < kSteps; ++step) {
      ASSIGN_OR_RETURN(const RemoteValue result, coordinator.Schedule("train_step", BatchOf(step)));
      ASSIGN_OR_RETURN(const Tensors loss, coordinator.Fetch(result));
      CHECK(loss[0].scalar<float>() == losses[step]);
    }
    CHECK(coordinator.TrackedNames().value() == scope->VariableNames());
    for (const std::string& name : scope->VariableNames()) {
      INFO(name);
      CHECK(BytesOf(coordinator.ReadVariable(name).value()) == BytesOf(scope->ReadTracked(name).value()));
    }
    return absl::OkStatus();
  };
  CHECK(RunInProcess(1, num_servers, functions, options, program) == absl::OkStatus());
}

Tensor FirstRows(const Tensor& tensor, int64_t rows) {
  compute::TensorType type = tensor.type();
  type.shape.set_dim(0, rows);
  return Tensor(type, tensor.raw_data()).Clone();
}

TEST_CASE("A worker of several devices trains the bits of as many mirrored replicas") {
  const int num_devices = GENERATE(2, 3), num_servers = GENERATE(1, 2);
  constexpr int kSteps = 4;
  const ReplicaFn train_step = TrainStep([](const auto& in, auto of) { return compute::Adam(in, of, {}); });
  // Shares of different sizes.
  const auto batch_of = [&](int step) {
    std::vector<distribute::DistributedValue> batch(2, distribute::PerReplica{});
    for (int r = 0; r < num_devices; ++r) {
      const Tensors own = BatchOf(step + 7 * r);
      const int64_t rows = r == 1 ? 2 : 3;
      std::get<distribute::PerReplica>(batch[0]).values.push_back(FirstRows(own[0], rows));
      std::get<distribute::PerReplica>(batch[1]).values.push_back(FirstRows(own[1], rows));
    }
    return batch;
  };
  const auto strategy = distribute::Strategy::Create({.num_replicas = num_devices}).value();
  const auto scope = distribute::StrategyScope::Create(*strategy, /*seed=*/1).value();
  distribute::ReplicaFunction function(train_step);
  std::vector<std::vector<float>> losses(kSteps);
  for (int step = 0; step < kSteps; ++step) {
    const auto results = scope->Run(function, batch_of(step)).value();
    for (const Tensor& loss : results[0].values) losses[step].push_back(loss.scalar<float>());
  }

  Functions functions;
  functions.RegisterStep("train_step", train_step);
  functions.Register("train", [&](WorkerContext& context, Arguments arguments) -> absl::StatusOr<Tensors> {
    CHECK(context.num_replicas_in_sync() == num_devices);
    const auto step = static_cast<int>(arguments[0].scalar<int64_t>());
    ASSIGN_OR_RETURN(const auto results, context.RunPerReplica("train_step", batch_of(step)));
    return results[0].values;
  });
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    CHECK(coordinator.num_replicas_in_sync() == num_devices);
    RETURN_IF_ERROR(coordinator.CreateVariables("train_step", TypesOf(BatchOf(0))));
    for (int step = 0; step < kSteps; ++step) {
      ASSIGN_OR_RETURN(const RemoteValue result, coordinator.Schedule("train", Number(step)));
      ASSIGN_OR_RETURN(const Tensors loss, coordinator.Fetch(result));
      for (int r = 0; r < num_devices; ++r) CHECK(loss[r].scalar<float>() == losses[step][r]);
    }
    for (const std::string& name : scope->VariableNames()) {
      INFO(name);
      CHECK(BytesOf(coordinator.ReadVariable(name).value()) == BytesOf(scope->ReadTracked(name).value()));
    }
    return absl::OkStatus();
  };
  CHECK(RunInProcess(1, num_servers, functions, {.num_devices = num_devices}, program) == absl::OkStatus());
}

TEST_CASE("The devices of a worker get batches of its data set, and a mean is that of all of them") {
  const MeanMetric mean("mean");
  Functions functions;
  functions.RegisterDataset("numbers", [](const distribute::InputContext& context) {
    CHECK(context.num_replicas_in_sync == 2);
    // Three batches, of which the last one is alone in its step.
    return data::Batches(data::TensorSlices({{"", Tensor::Of<float>({6}, {1, 2, 3, 4, 5, 6})}}, {}), {.batch_size = 2});
  });
  functions.RegisterStep("mean_step", [&](ReplicaContext& context, absl::Span<const Value> inputs) {
    mean.UpdateState(context, inputs[0]);
    return std::vector<Value>{inputs[0]};
  });
  functions.Register("mean", [](WorkerContext& context, Arguments) -> absl::StatusOr<Tensors> {
    ASSIGN_OR_RETURN(const auto batch, context.NextPerReplica("numbers"));
    ASSIGN_OR_RETURN(const auto results, context.RunPerReplica("mean_step", batch));
    return results[0].values;
  });
  functions.Register("next", [](WorkerContext& context, Arguments) { return context.Next("numbers"); });
  functions.Register("same",
                     [](WorkerContext& context, Arguments arguments) { return context.Run("mean_step", arguments); });
  functions.Register("wrong", [](WorkerContext& context, Arguments arguments) -> absl::StatusOr<Tensors> {
    RETURN_IF_ERROR(context.RunPerReplica("mean_step", {distribute::PerReplica{{arguments[0]}}}).status());
    return Tensors{};
  });
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    RETURN_IF_ERROR(coordinator.CreateVariables("mean_step", TypesOf({Tensor::Of<float>({2}, {1, 2})})));
    coordinator.CreatePerWorkerDataset("numbers");
    const auto run = [&](const std::string& name, Arguments arguments = {}) -> absl::StatusOr<Tensors> {
      ASSIGN_OR_RETURN(const RemoteValue result, coordinator.Schedule(name, arguments));
      (void)coordinator.Join();  // its error is that of the result
      return coordinator.Fetch(result);
    };
    ASSIGN_OR_RETURN(const Tensors first, run("mean"));
    REQUIRE(first.size() == 2);
    CHECK(first[0].flat<float>()[1] == 2);
    CHECK(first[1].flat<float>()[0] == 3);
    CHECK(mean.Result(coordinator).value() == 2.5f);
    ASSIGN_OR_RETURN(const Tensors second, run("mean"));
    CHECK(second[0].num_elements() == 2);
    CHECK(second[1].num_elements() == 0);
    CHECK(mean.Result(coordinator).value() == 3.5f);
    CHECK(absl::IsOutOfRange(run("mean").status()));
    CHECK_THAT(std::string(run("next").status().message()),
               Contains("this worker has 2 devices, and each needs a batch of data set 'numbers'; use NextPerReplica"));
    // What all devices get counts once for each of them, as with strategy.run.
    RETURN_IF_ERROR(mean.ResetState(coordinator));
    ASSIGN_OR_RETURN(const Tensors same, run("same", {Tensor::Of<float>({2}, {8, 9})}));
    CHECK(same[0].flat<float>()[0] == 8);
    CHECK(mean.Result(coordinator).value() == 8.5f);
    CHECK(coordinator.ReadVariable("mean/count").value().scalar<float>() == 4);
    CHECK_THAT(std::string(run("wrong", {Tensor::Of<float>({1}, {1})}).status().message()),
               Contains("a per-replica argument has 1 components, and this worker 2 replicas"));
    return absl::OkStatus();
  };
  CHECK(RunInProcess(1, 1, functions, {.num_devices = 2}, program) == absl::OkStatus());
  CHECK(RunInProcess(1, 1, functions, {.num_devices = 0}, program) ==
        absl::InvalidArgumentError("each worker has num_devices=0; it needs at least 1"));
}

TEST_CASE("What workers add to a variable is not lost, and a mean is that of all workers") {
  const MeanMetric mean("mean");
  const compute::VariableSpec count = {"count", {DType::kInt64, {}}, compute::Initializer::Zeros(), false};
  Functions functions;
  functions.RegisterStep("add", [&](ReplicaContext& context, absl::Span<const Value> inputs) {
    mean.UpdateState(context, inputs[0]);
    context.AssignAdd(count, context.graph().Constant(Tensor::Scalar<int64_t>(2)));
    return std::vector<Value>{};
  });
  functions.Register("add", RunStep("add"));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    RETURN_IF_ERROR(coordinator.CreateVariables("add", TypesOf({Tensor::Of<float>({2}, {1, 2})})));
    CHECK(mean.Result(coordinator).value() == 0);
    for (int i = 0; i < 200; ++i) {
      const auto value = static_cast<float>(i);
      RETURN_IF_ERROR(coordinator.Schedule("add", {Tensor::Of<float>({2}, {value, value + 1})}).status());
    }
    RETURN_IF_ERROR(coordinator.Join());
    CHECK(mean.Result(coordinator).value() == 100);  // of 0, 1, 1, 2, ... 199, 200
    CHECK(coordinator.ReadVariable("count").value().scalar<int64_t>() == 400);
    RETURN_IF_ERROR(mean.ResetState(coordinator));
    CHECK(mean.Result(coordinator).value() == 0);
    RETURN_IF_ERROR(coordinator.Schedule("add", {Tensor::Of<float>({2}, {6, 8})}).status());
    RETURN_IF_ERROR(coordinator.Join());
    CHECK(mean.Result(coordinator).value() == 7);
    return absl::OkStatus();
  };
  CHECK(RunInProcess(3, 2, functions, {}, program) == absl::OkStatus());
}

TEST_CASE("A step sets variables and moving averages on the servers") {
  const distribute::ReplicaFn step = [](ReplicaContext& context, absl::Span<const Value> inputs) {
    compute::Layers layers(context.graph(), DType::kFloat32);
    const Value normalized = layers.BatchNormalization(inputs[0], {.training = true});
    context.UpdateMovingAverages(layers.moving_averages(), 0.9);
    return std::vector<Value>{normalized};
  };
  const Tensor batch = Tensor::Of<float>({2, 1}, {1, 5});
  const auto strategy = distribute::Strategy::Create({}).value();
  const auto scope = distribute::StrategyScope::Create(*strategy, /*seed=*/1).value();
  distribute::ReplicaFunction function(step);
  for (int i = 0; i < 2; ++i) REQUIRE(scope->Run(function, {batch}).ok());

  Functions functions;
  functions.RegisterStep("step", step);
  functions.Register("step", RunStep("step"));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    RETURN_IF_ERROR(coordinator.CreateVariables("step", {batch.type()}));
    for (int i = 0; i < 2; ++i) RETURN_IF_ERROR(coordinator.Schedule("step", {batch}).status());
    RETURN_IF_ERROR(coordinator.Join());
    for (const std::string& name : scope->VariableNames()) {
      INFO(name);
      CHECK(BytesOf(coordinator.ReadVariable(name).value()) == BytesOf(scope->ReadTracked(name).value()));
    }
    return absl::OkStatus();
  };
  CHECK(RunInProcess(1, 2, functions, {}, program) == absl::OkStatus());
}

TEST_CASE("A partitioner that makes no shards, or more than rows, is refused") {
  Functions functions;
  functions.RegisterStep("step", TrainStep([](const auto& in, auto of) { return compute::GradientDescent(in, of); }));
  const int64_t num_shards = GENERATE(0, 9);
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    const absl::Status status = coordinator.CreateVariables("step", TypesOf(BatchOf(0)));
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains("the partitioner must return a number of shards from 1 to the 8 rows of variable "
                        "embedding/embeddings, got: " +
                        std::to_string(num_shards)));
    return absl::OkStatus();
  };
  const CoordinatorOptions options = {.variable_partitioner = [=](const auto&) { return num_shards; }};
  CHECK(RunInProcess(1, 1, functions, options, program) == absl::OkStatus());
}

TEST_CASE("What variables do not take") {
  Functions functions;
  functions.RegisterStep("step", TrainStep([](const auto& in, auto of) { return compute::GradientDescent(in, of); }));
  functions.Register("step", RunStep("step"));
  functions.Register("missing", RunStep("missing"));
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    CHECK_THAT(std::string(coordinator.CreateVariables("missing", {}).message()),
               Contains("no step 'missing' is registered; register it on all tasks"));
    RETURN_IF_ERROR(coordinator.Schedule("step", BatchOf(0)).status());
    const absl::Status not_made = coordinator.Join();
    CHECK(absl::IsNotFound(not_made));
    CHECK_THAT(std::string(not_made.message()), Contains("variable embedding/embeddings is on no ps"));
    RETURN_IF_ERROR(coordinator.Schedule("missing").status());
    CHECK(absl::IsNotFound(coordinator.Join()));
    CHECK(absl::IsNotFound(coordinator.Schedule("nobody").status()));
    CHECK(absl::IsNotFound(coordinator.ReadVariable("nothing").status()));
    CHECK(absl::IsNotFound(coordinator.AssignVariable("nothing", Tensor())));
    RETURN_IF_ERROR(coordinator.CreateVariables("step", TypesOf(BatchOf(0))));
    CHECK(absl::IsInvalidArgument(coordinator.AssignVariable("dense/bias", Tensor::Of<float>({2}, {1, 2}))));
    // Now they are there, also for a step that was built before.
    RETURN_IF_ERROR(coordinator.Schedule("step", BatchOf(0)).status());
    CHECK(coordinator.Join() == absl::OkStatus());
    return absl::OkStatus();
  };
  CHECK(RunInProcess(1, 2, functions, {}, program) == absl::OkStatus());
}

// ---- Functions and data ----

TEST_CASE("All workers run functions, and each has data and values of its own") {
  Functions functions;
  functions.RegisterDataset("counter", [](const distribute::InputContext& context) {
    Tensor numbers(DType::kInt64, {3});
    for (int64_t i = 0; i < 3; ++i) {
      numbers.data<int64_t>()[i] =
          1000 * context.num_replicas_in_sync + 100 * context.num_input_pipelines + 10 * context.input_pipeline_id + i;
    }
    return data::Batches(data::TensorSlices({{"", numbers}}, {}), {.batch_size = 1});
  });
  functions.Register("id", [](WorkerContext& context, Arguments arguments) {
    return Number(arguments[0].scalar<int64_t>() + context.worker());
  });
  std::atomic<int> here = 0;
  functions.Register("next", [&](WorkerContext& context, Arguments) -> absl::StatusOr<Tensors> {
    ++here;
    WaitUntil([&] { return here % 2 == 0; });  // one on each worker
    ASSIGN_OR_RETURN(const Tensors batch, context.Next("counter"));
    ASSIGN_OR_RETURN(const Tensors id, context.PerWorkerValues("id"));
    return Tensors{batch[0].Reshaped({}), id[0]};
  });
  functions.Register("without", [](WorkerContext& context, Arguments) { return context.Next("other"); });
  functions.Register("without_values", [](WorkerContext& context, Arguments) { return context.PerWorkerValues("x"); });
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    CHECK(coordinator.num_workers() == 2);
    coordinator.CreatePerWorkerDataset("counter");
    coordinator.CreatePerWorkerValues("id", Number(100));
    std::multiset<int64_t> seen;
    for (int round = 0; round < 3; ++round) {
      ASSIGN_OR_RETURN(const RemoteValue a, coordinator.Schedule("next"));
      ASSIGN_OR_RETURN(const RemoteValue b, coordinator.Schedule("next"));
      for (const RemoteValue& value : {a, b}) {
        ASSIGN_OR_RETURN(const Tensors result, coordinator.Fetch(value));
        const auto number = result[0].scalar<int64_t>(), id = result[1].scalar<int64_t>();
        seen.insert(number);
        CHECK(number / 10 % 10 == id - 100);
      }
    }
    CHECK(seen == std::multiset<int64_t>{1200, 1201, 1202, 1210, 1211, 1212});
    RETURN_IF_ERROR(coordinator.Schedule("without").status());
    CHECK(absl::IsFailedPrecondition(coordinator.Join()));
    RETURN_IF_ERROR(coordinator.Schedule("without_values").status());
    CHECK(absl::IsFailedPrecondition(coordinator.Join()));
    coordinator.CreatePerWorkerDataset("unknown");
    RETURN_IF_ERROR(coordinator.Schedule("id", Number(1)).status());
    CHECK_THAT(std::string(coordinator.Join().message()), Contains("no data set 'unknown' is registered"));
    return absl::OkStatus();
  };
  CHECK(RunInProcess(2, 1, functions, {}, program) == absl::OkStatus());
}

TEST_CASE("The end of the data is the error of a function") {
  Functions functions;
  functions.RegisterDataset("one", [](const distribute::InputContext&) {
    return data::Batches(data::TensorSlices({{"", Tensor(DType::kInt64, {1})}}, {}), {.batch_size = 1});
  });
  functions.Register("next", [](WorkerContext& context, Arguments) { return context.Next("one"); });
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    coordinator.CreatePerWorkerDataset("one");
    RETURN_IF_ERROR(coordinator.Schedule("next").status());
    RETURN_IF_ERROR(coordinator.Join());
    CHECK(coordinator.Done().value());
    RETURN_IF_ERROR(coordinator.Schedule("next").status());
    const absl::Status end = coordinator.Join();
    CHECK(absl::IsOutOfRange(end));
    CHECK_THAT(std::string(end.message()), Contains("End of sequence"));
    return coordinator.Join();
  };
  CHECK(RunInProcess(1, 1, functions, {}, program) == absl::OkStatus());
}

// ---- Losses ----

// A job whose workers get lost when a test says so. The coordinator runs `program` on the thread of the test.
struct Job {
  Job(int num_workers, Functions& functions, const CoordinatorOptions& options = {})
      : functions(functions), options(options), exchanges(distribute::MakeMemoryExchanges(1 + num_workers + kServers)) {
    for (size_t task = 1; task < exchanges.size(); ++task) Start(static_cast<int>(task));
  }
  void Start(int task) {
    threads.emplace_back([this, task, &exchange = *exchanges[task]] {
      const auto none = [](ClusterCoordinator&) { return absl::OkStatus(); };
      const absl::Status status = RunTask(exchange, kServers, functions, options, none);
      const std::lock_guard<std::mutex> lock(mutex);
      statuses[{task, exchange.incarnation()}] = status;
    });
  }
  void Lose(int worker) { distribute::Lose(*exchanges[worker]); }
  void StartAgain(int worker) {
    auto again = distribute::StartAgain(*exchanges[worker]);
    lost.push_back(std::exchange(exchanges[worker], std::move(again)));
    Start(worker);
  }
  absl::Status Run(const Program& program) {
    const absl::Status status = RunTask(*exchanges[0], kServers, functions, options, program);
    threads.clear();
    return status;
  }

  static constexpr int kServers = 1;
  Functions& functions;
  const CoordinatorOptions options;
  std::vector<std::unique_ptr<distribute::Exchange>> exchanges, lost;
  std::mutex mutex;
  std::map<std::pair<int, int>, absl::Status> statuses;  // by task and incarnation
  std::vector<std::jthread> threads;
};

TEST_CASE("The function of a lost worker runs on another, and the job goes on") {
  Functions functions;
  std::atomic<int> calls = 0, lost_worker = 0;
  std::atomic<bool> release = false;
  functions.Register("where", [&](WorkerContext& context, Arguments) {
    if (++calls == 1) {
      lost_worker = context.worker() + 1;
      WaitUntil([&] { return release.load(); });
    }
    return Number(context.worker() + 1);
  });
  Job job(2, functions);
  const absl::Status status = job.Run([&](ClusterCoordinator& coordinator) -> absl::Status {
    ASSIGN_OR_RETURN(const RemoteValue first, coordinator.Schedule("where"));
    WaitUntil([&] { return lost_worker > 0; });
    job.Lose(lost_worker);
    ASSIGN_OR_RETURN(const Tensors result, coordinator.Fetch(first));
    CHECK(result[0].scalar<int64_t>() == 3 - lost_worker);
    for (int i = 0; i < 10; ++i) RETURN_IF_ERROR(coordinator.Schedule("where").status());
    RETURN_IF_ERROR(coordinator.Join());
    CHECK(calls == 12);
    release = true;
    return absl::OkStatus();
  });
  CHECK(status == absl::OkStatus());
  CHECK(job.statuses.at({3 - lost_worker, 0}) == absl::OkStatus());
  CHECK(absl::IsCancelled(job.statuses.at({lost_worker, 0})));
}

TEST_CASE("A worker that comes back gets its data anew, and runs what waits for it") {
  Functions functions;
  std::atomic<int> made = 0;
  functions.RegisterDataset("data", [&](const distribute::InputContext&) {
    ++made;
    return data::Batches(data::TensorSlices({{"", Tensor::Of<int64_t>({2}, {5, 6})}}, {}), {.batch_size = 1});
  });
  functions.Register("next", [](WorkerContext& context, Arguments) { return context.Next("data"); });
  Job job(1, functions);
  const absl::Status status = job.Run([&](ClusterCoordinator& coordinator) -> absl::Status {
    coordinator.CreatePerWorkerDataset("data");
    for (int incarnation = 0; incarnation < 3; ++incarnation) {
      if (incarnation > 0) job.Lose(1);
      ASSIGN_OR_RETURN(const RemoteValue next, coordinator.Schedule("next"));
      if (incarnation > 0) job.StartAgain(1);
      ASSIGN_OR_RETURN(const Tensors result, coordinator.Fetch(next));
      CHECK(result[0].data<int64_t>()[0] == 5);  // the first one
      CHECK(made == incarnation + 1);
    }
    return absl::OkStatus();
  });
  CHECK(status == absl::OkStatus());
  CHECK(job.statuses.at({1, 2}) == absl::OkStatus());
}

TEST_CASE("A worker that comes back at the end of the job ends, too") {
  Functions functions;
  functions.Register("f", [](WorkerContext&, Arguments) { return Tensors{}; });
  Job job(2, functions);
  const absl::Status status = job.Run([&](ClusterCoordinator& coordinator) -> absl::Status {
    job.Lose(2);
    RETURN_IF_ERROR(coordinator.Schedule("f").status());
    RETURN_IF_ERROR(coordinator.Join());
    job.StartAgain(2);
    return absl::OkStatus();
  });
  CHECK(status == absl::OkStatus());
  CHECK(job.statuses.at({1, 0}) == absl::OkStatus());
  CHECK(job.statuses.at({2, 1}) == absl::OkStatus());
}

TEST_CASE("A job that is without workers for too long fails, and can be started again") {
  Functions functions;
  functions.Register("f", [](WorkerContext&, Arguments) { return Tensors{}; });
  Job job(2, functions, {.worker_timeout = std::chrono::seconds(1)});
  const absl::Status status = job.Run([&](ClusterCoordinator& coordinator) -> absl::Status {
    RETURN_IF_ERROR(coordinator.Schedule("f").status());
    RETURN_IF_ERROR(coordinator.Join());
    for (const int task : {1, 2}) job.Lose(task);
    ASSIGN_OR_RETURN(const RemoteValue value, coordinator.Schedule("f"));
    const absl::Status error = coordinator.Join();
    CHECK(absl::IsUnavailable(error));
    CHECK_THAT(std::string(error.message()),
               Contains("there has been no worker for 1 s") && Contains("worker 1, worker 2"));
    CHECK(coordinator.Fetch(value).status() == error);
    return error;
  });
  CHECK(absl::IsCancelled(status));
  CHECK(absl::IsCancelled(job.statuses.at({3, 0})));  // the ps
}

TEST_CASE("When another task fails, the program is told, and all end") {
  Functions functions;
  std::atomic<bool> runs = false;
  functions.Register("wait", [&](WorkerContext&, Arguments) -> absl::StatusOr<Tensors> {
    runs = true;
    WaitUntil([&] { return !runs; });
    return Tensors{};
  });
  const bool is_idle = GENERATE(true, false);
  Job job(1, functions);
  const absl::Status status = job.Run([&](ClusterCoordinator& coordinator) -> absl::Status {
    if (!is_idle) {
      RETURN_IF_ERROR(coordinator.Schedule("wait").status());
      WaitUntil([&] { return runs.load(); });
    }
    job.exchanges[2]->Fail("the ps was lost");
    if (is_idle) WaitUntil([&] { return !coordinator.Done().ok(); });
    const absl::Status error = coordinator.Join();
    CHECK(absl::IsUnavailable(error));
    CHECK_THAT(std::string(error.message()), Contains("the ps was lost"));
    CHECK(coordinator.Schedule("wait").status() == error);
    CHECK(absl::IsUnavailable(coordinator.TrackedNames().status()));
    runs = false;
    return error;
  });
  CHECK(absl::IsCancelled(status));
  CHECK(absl::IsCancelled(job.statuses.at({1, 0})));
}

TEST_CASE("An error of the program ends all tasks") {
  Functions functions;
  Job job(2, functions);
  CHECK(job.Run([](ClusterCoordinator&) { return absl::InternalError("a bug"); }) == absl::InternalError("a bug"));
  for (const int task : {1, 2, 3}) {
    CHECK(absl::IsCancelled(job.statuses.at({task, 0})));
    CHECK_THAT(std::string(job.statuses.at({task, 0}).message()), Contains("worker 0 has failed: a bug"));
  }
}

TEST_CASE("A job needs a worker and a ps") {
  const auto none = [](ClusterCoordinator&) { return absl::OkStatus(); };
  CHECK(RunInProcess(1, 0, {}, {}, none) == absl::InvalidArgumentError("There must be at least one ps."));
  CHECK(RunInProcess(0, 1, {}, {}, none) == absl::InvalidArgumentError("There must be at least one worker."));
}

}  // namespace
}  // namespace official::coordinator
