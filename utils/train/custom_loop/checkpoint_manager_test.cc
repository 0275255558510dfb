// Checkpoints of training loops of one's own. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/train/custom_loop/checkpoint_manager.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/distribute/coordinator/run_task.h"
#include "utils/distribute/coordinator/worker.h"
#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;
using distribute::DistributedVariable;
using distribute::ReplicaContext;
using distribute::Strategy;
using distribute::StrategyScope;
using Values = std::vector<Value>;

std::string NewDirectory() {
  static int counter = 0;
  const char* const root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/checkpoints-", getpid(), "-", ++counter);
}

// The variables of a small program: on-read ones that average and sum, and one that its function makes.
struct Program {
  explicit Program(Strategy& strategy) : scope(StrategyScope::Create(strategy, /*seed=*/1).value()) {
    using enum distribute::VariableAggregation;
    const auto make = [&](const char* name, distribute::VariableAggregation aggregation) {
      return scope
          ->CreateVariable({.name = name,
                            .initial_value = Tensor::Scalar(0.0f),
                            .synchronization = distribute::VariableSynchronization::kOnRead,
                            .aggregation = aggregation})
          .value();
    };
    mean = make("mean", kMean);
    sum = make("sum", kSum);
  }
  // On replica r adds 10 (r + 1) to the mean and r + 1 to the sum; returns the weight of the function, and changes it.
  float Step() {
    distribute::ReplicaFunction step([&](ReplicaContext& context, absl::Span<const Value>) {
      const auto number = static_cast<float>(context.replica_id_in_sync_group() + 1);
      context.AssignAdd(*mean, context.graph().Constant(Tensor::Scalar(10 * number)));
      context.AssignAdd(*sum, context.graph().Constant(Tensor::Scalar(number)));
      const Value w = context.graph().Variable({"dense/w", {DType::kFloat32, {}}, compute::Initializer::Constant(2)});
      const Value one = context.graph().Constant(Tensor::Scalar(1.0f));
      const Value before = compute::Mul(w, one);
      context.ApplyGradients(compute::GradientDescent, one, std::vector<compute::VariableGradient>{{w, w}});
      return Values{before};
    });
    return scope->Run(step, {}).value()[0].values[0].scalar<float>();
  }
  float ValueOf(const char* name) { return scope->Variable(name).value()->Read().value().scalar<float>(); }

  std::unique_ptr<StrategyScope> scope;
  DistributedVariable *mean, *sum;
};

std::unique_ptr<Strategy> Devices(int num_replicas) {
  return Strategy::Create({.num_replicas = num_replicas, .num_threads = 1}).value();
}

TEST_CASE("A checkpoint has each variable once, and any strategy restores it") {
  const std::string directory = NewDirectory();
  const auto two = Devices(2), one = Devices(1);
  Program saved(*two);
  const auto manager = CheckpointManager::Open(*saved.scope, directory).value();
  CHECK_FALSE(manager->RestoreLatest().value().has_value());
  CHECK(saved.Step() == 2);
  REQUIRE(manager->Save(7).ok());

  const auto reader = BundleReader::Open(directory + "/model.ckpt-7").value();
  CHECK(reader->ListTensors().size() == 3);
  CHECK(reader->Read("mean").value().scalar<float>() == 15);     // [ran] copies 10, 20
  CHECK(reader->Read("sum").value().scalar<float>() == 3);       // [ran] copies 1, 2
  CHECK(reader->Read("dense/w").value().scalar<float>() == -2);  // 2 - (2 + 2)

  Program again(*two), alone(*one);
  REQUIRE(again.scope->CreateVariable({.name = "new", .initial_value = Tensor::Scalar(5.0f)}).ok());
  CHECK(CheckpointManager::Open(*again.scope, directory).value()->RestoreLatest().value() == 7);
  CHECK(again.sum->LocalCopies().value().values[0].scalar<float>() == 1.5f);  // [ran]
  CHECK(again.sum->LocalCopies().value().values[1].scalar<float>() == 1.5f);
  CHECK(again.ValueOf("new") == 5);  // which the checkpoint does not have
  CHECK(again.mean->LocalCopies().value().values[1].scalar<float>() == 15);
  CHECK(CheckpointManager::Open(*alone.scope, directory).value()->RestoreLatest().value() == 7);
  CHECK(alone.ValueOf("sum") == 3);  // [ran]
  // A variable that a function makes later has its saved value, too.
  CHECK(alone.Step() == -2);
  CHECK(again.Step() == -2);
  CHECK(alone.ValueOf("dense/w") == 0);
}

TEST_CASE("The latest checkpoints are kept, and the last is restored") {
  const std::string directory = NewDirectory();
  const auto one = Devices(1);
  Program program(*one);
  const auto manager = CheckpointManager::Open(*program.scope, directory, /*max_to_keep=*/2).value();
  for (const int step : {1, 2, 3}) REQUIRE(manager->Save(step).ok());
  CHECK(BundleReader::Open(directory + "/model.ckpt-1").status().code() == absl::StatusCode::kNotFound);
  CHECK(BundleReader::Open(directory + "/model.ckpt-2").ok());
  CHECK(manager->RestoreLatest().value() == 3);
}

TEST_CASE("A checkpoint of another program is not restored") {
  const std::string directory = NewDirectory();
  const auto one = Devices(1);
  Program program(*one);
  REQUIRE(CheckpointManager::Open(*program.scope, directory).value()->Save(1).ok());
  const auto other = StrategyScope::Create(*one, 1).value();
  REQUIRE(other->CreateVariable({.name = "sum", .initial_value = Tensor(DType::kFloat32, {2})}).ok());
  CHECK_THAT(std::string(CheckpointManager::Open(*other, directory).value()->RestoreLatest().status().message()),
             Contains("has variable sum as float32[], and this program as float32[2]"));
}

TEST_CASE("A checkpoint must have the variables made so far, if that is asked, but not those made later") {
  const std::string directory = NewDirectory();
  const auto one = Devices(1);
  Program program(*one);  // whose function has not made dense/w yet
  REQUIRE(CheckpointManager::Open(*program.scope, directory).value()->Save(1).ok());
  const RestoreOptions all = {.assert_existing_objects_matched = true};
  Program again(*one), larger(*one);
  CHECK(CheckpointManager::Open(*again.scope, directory).value()->RestoreLatest(all).value() == 1);
  CHECK(again.Step() == 2);
  REQUIRE(larger.scope->CreateVariable({.name = "new", .initial_value = Tensor::Scalar(5.0f)}).ok());
  const absl::Status status = CheckpointManager::Open(*larger.scope, directory).value()->RestoreLatest(all).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             Contains(directory + "/model.ckpt-1 has no variable new, and this program has one; restore it with the "
                                  "program that has trained it, or train in another directory"));
}

TEST_CASE("A checkpoint without a step in its name is an error, not a new start") {
  const std::string directory = NewDirectory();
  const std::string name = GENERATE("ckpt", "ckpt-best");
  const auto one = Devices(1);
  Program program(*one);
  REQUIRE(CheckpointManager::Open(*program.scope, directory).value()->Save(1).ok());
  for (const char* const part : {".index", ".data-00000-of-00001"}) {
    std::filesystem::rename(directory + "/model.ckpt-1" + part, absl::StrCat(directory, "/", name, part));
  }
  std::ofstream(directory + "/checkpoint") << "model_checkpoint_path: \"" << name << "\"\n";
  const absl::Status status = CheckpointManager::Open(*program.scope, directory).value()->RestoreLatest().status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), Contains(absl::StrCat(directory, "/", name, ", does not end in its step")));
}

TEST_CASE("Workers restore what the chief reads, and fail with it") {
  const std::string directory = NewDirectory();
  const auto two = Devices(2);
  Program saved(*two);
  saved.Step();
  REQUIRE(CheckpointManager::Open(*saved.scope, directory).value()->Save(7).ok());
  const auto exchanges = distribute::MakeMemoryExchanges(2);
  std::vector<float> sums(2), weights(2);
  float saved_sum = 0;
  std::vector<absl::Status> saves(2), later_saves(2), opens(2);
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      distribute::StrategyOptions options{.num_replicas = 2, .num_threads = 1};
      options.workers = {exchanges[w].get(), {{0, 1}, {1, 2}}};
      const auto strategy = Strategy::Create(options).value();
      Program program(*strategy);
      const auto manager = CheckpointManager::Open(*program.scope, w == 0 ? directory : "/dev/null/none").value();
      manager->RestoreLatest().value();
      sums[w] = program.ValueOf("sum");
      weights[w] = program.Step();
      saves[w] = manager->Save(8);
      if (w == 0) {
        saved_sum = BundleReader::Open(directory + "/model.ckpt-8").value()->Read("sum").value().scalar<float>();
        std::filesystem::remove_all(directory);
      }
      later_saves[w] = manager->Save(9);
      opens[w] = CheckpointManager::Open(*program.scope, w == 0 ? "/dev/null/none" : directory).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sums == std::vector<float>{3, 3});
  CHECK(weights == std::vector<float>{-2, -2});
  CHECK(saves == std::vector<absl::Status>(2));
  CHECK(saved_sum == 6);
  CHECK_FALSE(later_saves[0].ok());
  CHECK(later_saves[1] == later_saves[0]);
  CHECK_FALSE(opens[0].ok());
  CHECK(opens[1] == opens[0]);
}

// A job whose worker adds Adam's updates to two variables, and the number of its steps.
struct CoordinatedJob {
  CoordinatedJob() {
    functions.RegisterStep("step", [](ReplicaContext& context, absl::Span<const Value> inputs) {
      std::vector<compute::VariableGradient> updates;
      for (const char* const name : {"a", "b"}) {
        const Value variable =
            context.graph().Variable({name, inputs[0].type(), compute::Initializer::Constant(name[0])});
        updates.push_back({variable, compute::Mul(variable, inputs[0])});
      }
      context.ApplyGradients([](const auto& in, auto of) { return compute::Adam(in, of, {}); },
                             context.graph().Constant(Tensor::Scalar(0.1f)), updates);
      context.AssignAdd({"steps", {DType::kInt64, {}}, {}, false},
                        context.graph().Constant(Tensor::Scalar<int64_t>(1)));
      return Values{};
    });
    functions.Register("step", [](coordinator::WorkerContext& context, absl::Span<const Tensor> arguments) {
      return context.Run("step", arguments);
    });
  }
  // Continues from the latest checkpoint up to the step, saves, and returns the values of all variables.
  std::map<std::string, std::vector<double>> TrainTo(int64_t last, const std::string& directory, int num_servers) {
    std::map<std::string, std::vector<double>> values;
    const auto program = [&](coordinator::ClusterCoordinator& coordinator) -> absl::Status {
      ASSIGN_OR_RETURN(const auto manager, CheckpointManager::Open(coordinator, directory));
      ASSIGN_OR_RETURN(const std::optional<int64_t> done, manager->RestoreLatest());
      RETURN_IF_ERROR(coordinator.CreateVariables("step", {{DType::kFloat32, {2}}}));
      for (int64_t step = done.value_or(0); step < last; ++step) {
        const auto x = static_cast<float>(step);
        RETURN_IF_ERROR(coordinator.Schedule("step", {Tensor::Of<float>({2}, {x, 3 - x})}).status());
        RETURN_IF_ERROR(coordinator.Join());
      }
      ASSIGN_OR_RETURN(const std::vector<std::string> names, coordinator.TrackedNames());
      for (const std::string& name : names) {
        ASSIGN_OR_RETURN(const Tensor value, coordinator.ReadVariable(name));
        const Tensor numbers = value.CastTo(DType::kFloat64);
        values[name] = {numbers.flat<double>().begin(), numbers.flat<double>().end()};
      }
      return manager->Save(last);
    };
    CHECK(coordinator::RunInProcess(/*num_workers=*/1, num_servers, functions, {}, program) == absl::OkStatus());
    return values;
  }
  coordinator::Functions functions;
};

TEST_CASE("The variables of parameter servers are saved, and restored on any number of servers") {
  CoordinatedJob job;
  const std::string whole = NewDirectory(), parts = NewDirectory();
  const auto expected = job.TrainTo(5, whole, 1);
  CHECK(expected.at("steps") == std::vector<double>{5});
  CHECK(expected.count("a/Adam") == 1);
  job.TrainTo(2, parts, 1);
  CHECK(job.TrainTo(4, parts, 2) != expected);
  CHECK(job.TrainTo(5, parts, 3) == expected);
  CHECK(job.TrainTo(5, parts, 1) == expected);
}

}  // namespace
}  // namespace official::train
