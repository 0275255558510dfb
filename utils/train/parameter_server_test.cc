// What training with parameter servers promises: one worker ends with the bits of one device, and no update of several
// workers is lost. The tasks are threads here.

#include "utils/train/parameter_server.h"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/dropout/dropout.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/data/every_nth.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/memory_exchange_faults.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/estimator.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using compute::Value;

constexpr int kExamples = 24, kBatch = 4;
constexpr int kWorkers = 4;  // of a server without exchange

// Epochs of the examples, before `end_epoch`; the label of example `bad` is NaN.
InputFn Examples(int bad = -1, int64_t end_epoch = data::kEndless, int batch_size = kBatch) {
  return [=](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    Tensor x(DType::kFloat32, {kExamples, 3}), y(DType::kFloat32, {kExamples});
    for (int i = 0; i < 3 * kExamples; ++i) x.data<float>()[i] = static_cast<float>(i * 7 % 16);
    for (int i = 0; i < kExamples; ++i) y.data<float>()[i] = i == bad ? NAN : static_cast<float>(i % 3);
    return data::Batches(data::TensorSlices({{"", x}}, {{"", y}}),
                         {.batch_size = batch_size, .start = start, .end_epoch = end_epoch});
  };
}

const data::ElementSpec kSpec = {.features = {{"", {DType::kFloat32, {3}}}}, .labels = {{"", {DType::kFloat32, {}}}}};

// x * w + bias with dropout, and the moving average of its error.
absl::StatusOr<ModelSpec> Regression(const ModelInputs& in) {
  const Value w = in.graph.Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Zeros()});
  const Value bias = in.graph.Variable({"bias", {DType::kFloat32, {}}, compute::Initializer::Zeros()});
  const Value average = in.graph.Variable({"average", {}, compute::Initializer::Zeros(), /*trainable=*/false});
  const Value x = compute::Dropout(in.features[0], 0.3, in.random_state, "dropout");
  const Value y = compute::Add(compute::Reshape(compute::MatMul(x, w), {x.shape().dim(0)}), bias);
  const Value loss = compute::Mean(compute::Square(compute::Sub(y, in.labels[0])));
  return ModelSpec{.loss = loss, .predictions = {}, .metrics = {}, .logged = {}, .moving_averages = {{average, loss}}};
}

Model RegressionModel(OptimizerFn optimizer = compute::GradientDescent) {
  Model model;
  model.name = "regression";
  model.model_fn = Regression;
  model.optimizer = std::move(optimizer);
  model.learning_rate = [](int64_t step) { return 0.001 / static_cast<double>(step + 1); };
  return model;
}

// A model whose gradients do not depend on its variables, so that it does not matter in which order they are applied.
// All numbers in it have few bits: the sums are exact.
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

EstimatorConfig NewConfig(int micro_batches = 1) {
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

// The values of the variables in a checkpoint, without the state of the run.
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

// Trains in one process, with a batch for each replica.
void TrainAlone(const Model& model, const EstimatorConfig& config, int64_t steps, int num_replicas = 1) {
  auto strategy = distribute::Strategy::Create({.num_replicas = num_replicas, .num_threads = 1}).value();
  const auto estimator = Estimator::Create(model, config, std::move(strategy)).value();
  REQUIRE(estimator->Train(Examples(/*bad=*/-1, data::kEndless, num_replicas * kBatch), steps, {}).ok());
}

// How the tasks of a job have ended.
struct Ends {
  std::vector<absl::Status> workers, servers;
};

// Runs one task of a job, which trains with `config` or serves.
absl::Status RunTask(distribute::Exchange& exchange, const Model& model, const EstimatorConfig& config, int num_workers,
                     int num_servers, int64_t steps, const InputFn& input) {
  auto strategy = distribute::Strategy::Create(
      {.servers = distribute::ServerTasks{.exchange = &exchange, .num_servers = num_servers}, .num_threads = 1});
  auto estimator = Estimator::Create(model, config, *std::move(strategy));
  if (!estimator.ok()) return estimator.status();
  if (exchange.worker() >= num_workers) return (*estimator)->Serve(kSpec);
  const auto own = [&](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    return data::EveryNth(input(start).value(), num_workers, exchange.worker());
  };
  const std::vector<data::Position> positions = (*estimator)->state().worker_positions;
  if (!positions.empty()) (*estimator)->ContinueAt(positions[exchange.worker()], positions);
  absl::Status status = (*estimator)->Train(own, steps, {}, TrainingEnds::kAtMaxStepsOrData);
  if (status.ok()) status = (*estimator)->LeaveServers();
  return status;
}

// Trains with `config` in a job of these tasks.
Ends TrainWithServers(const Model& model, const EstimatorConfig& config, int num_workers, int num_servers,
                      int64_t steps, const InputFn& input = Examples()) {
  const auto exchanges = distribute::MakeMemoryExchanges(num_workers + num_servers);
  Ends ends{std::vector<absl::Status>(num_workers), std::vector<absl::Status>(num_servers)};
  std::vector<std::thread> threads;
  for (int task = 0; task < num_workers + num_servers; ++task) {
    threads.emplace_back([&, task] {
      absl::Status& end = task < num_workers ? ends.workers[task] : ends.servers[task - num_workers];
      end = RunTask(*exchanges[task], model, config, num_workers, num_servers, steps, input);
      if (!end.ok()) exchanges[task]->Fail(end.message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void CheckAllOk(const Ends& ends) {
  for (const auto* statuses : {&ends.workers, &ends.servers}) {
    for (const absl::Status& status : *statuses) CHECK(status == absl::OkStatus());
  }
}

TEST_CASE("One worker and its servers end with the bits of one device") {
  const int num_servers = GENERATE(1, 2, 3), micro_batches = GENERATE(1, 2), kind = GENERATE(0, 1, 2);
  const OptimizerFn momentum = [](const compute::UpdateInputs& inputs,
                                  absl::Span<const compute::VariableGradient> variables) {
    return compute::Momentum(inputs, variables, {});
  };
  const OptimizerFn adam = [](const compute::UpdateInputs& inputs,
                              absl::Span<const compute::VariableGradient> variables) {
    return compute::Adam(inputs, variables, {});
  };
  CAPTURE(num_servers, micro_batches, kind);
  const Model model = RegressionModel(kind == 0 ? OptimizerFn(compute::GradientDescent) : kind == 1 ? momentum : adam);
  EstimatorConfig alone = NewConfig(micro_batches), with_servers = NewConfig(micro_batches);
  constexpr int64_t kSteps = 9;
  TrainAlone(model, alone, kSteps);
  if (num_servers == 2) with_servers.servers.placement = distribute::Placement::kGreedy;
  const Ends ends = TrainWithServers(model, with_servers, 1, num_servers, kSteps);
  CheckAllOk(ends);
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));

  // Both continue the other's checkpoint.
  TrainAlone(model, with_servers, kSteps + 3);
  CHECK(TrainWithServers(model, alone, 1, num_servers, kSteps + 3).workers[0].ok());
  CHECK((Checkpoint(with_servers.model_dir, kSteps + 3) == Checkpoint(alone.model_dir, kSteps + 3)));
}

TEST_CASE("Several workers train on every batch once, and no update is lost") {
  const int num_workers = GENERATE(2, 3), num_servers = GENERATE(1, 2);
  CAPTURE(num_workers, num_servers);
  constexpr int64_t kEpochs = 5, kSteps = kEpochs * kExamples / kBatch;
  const InputFn epochs = [](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    class Ending : public data::BatchSource {
     public:
      explicit Ending(data::BatchSourcePtr source) : source_(std::move(source)) {}
      const data::ElementSpec& spec() const override { return source_->spec(); }
      absl::StatusOr<std::optional<data::Batch>> Next() override {
        if (read_++ == kSteps) return std::nullopt;
        return source_->Next();
      }

     private:
      const data::BatchSourcePtr source_;
      int64_t read_ = 0;
    };
    return std::make_unique<Ending>(Examples()(start).value());
  };
  const Model model = LinearModel();
  const EstimatorConfig alone = NewConfig(), with_servers = NewConfig();
  TrainAlone(model, alone, kSteps);
  const Ends ends = TrainWithServers(model, with_servers, num_workers, num_servers, /*steps=*/1 << 20, epochs);
  CheckAllOk(ends);
  CHECK((Variables(with_servers.model_dir, kSteps) == Variables(alone.model_dir, kSteps)));
}

// Epochs of the examples, of which batch number `at` is not there before `before_batch` has returned; an error of that
// is its own.
InputFn Epochs(int64_t epochs, int at, std::function<absl::Status()> before_batch) {
  class Watched : public data::BatchSource {
   public:
    Watched(data::BatchSourcePtr source, int at, std::function<absl::Status()> before_batch)
        : source_(std::move(source)), at_(at), before_batch_(std::move(before_batch)) {}
    const data::ElementSpec& spec() const override { return source_->spec(); }
    absl::StatusOr<std::optional<data::Batch>> Next() override {
      const absl::Status status = read_++ == at_ ? before_batch_() : absl::OkStatus();
      if (!status.ok()) return status;
      return source_->Next();
    }

   private:
    const data::BatchSourcePtr source_;
    const int at_;
    const std::function<absl::Status()> before_batch_;
    int read_ = 0;
  };
  return [=](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    return std::make_unique<Watched>(Examples(/*bad=*/-1, epochs)(start).value(), at, before_batch);
  };
}

TEST_CASE("A worker that is lost and comes back, twice, trains on what it had not done") {
  constexpr int kServers = 2, kNumWorkers = 2;
  constexpr int64_t kEpochs = 5, kSteps = kEpochs * kExamples / kBatch, kEver = 1 << 20;
  const Model model = LinearModel();
  const EstimatorConfig alone = NewConfig(), with_servers = NewConfig();
  TrainAlone(model, alone, kSteps);
  auto exchanges = distribute::MakeMemoryExchanges(kNumWorkers + kServers);
  const auto nothing = [] { return absl::OkStatus(); };
  // The chief waits with its last batches until the worker is there for good.
  std::promise<void> is_back;
  const InputFn of_chief = Epochs(kEpochs, static_cast<int>(kSteps) - 2, [&] {
    is_back.get_future().wait();
    return absl::OkStatus();
  });
  std::vector<absl::Status> ends(kNumWorkers + kServers);
  std::vector<std::thread> threads;
  for (const int task : {0, 2, 3}) {
    threads.emplace_back([&, task] {
      ends[task] = RunTask(*exchanges[task], model, with_servers, kNumWorkers, kServers, kEver, of_chief);
    });
  }
  // A process makes two steps and is lost when it needs another batch.
  for (int process = 0; process < 2; ++process) {
    const InputFn input = Epochs(kEpochs, 7, [&] {
      distribute::Lose(*exchanges[1]);
      return absl::CancelledError("lost");
    });
    CHECK(absl::IsCancelled(RunTask(*exchanges[1], model, with_servers, kNumWorkers, kServers, kEver, input)));
    exchanges[1] = distribute::StartAgain(*exchanges[1]);
    CHECK(exchanges[1]->incarnation() == process + 1);
  }
  is_back.set_value();
  ends[1] = RunTask(*exchanges[1], model, with_servers, kNumWorkers, kServers, kEver, Epochs(kEpochs, -1, nothing));
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) CHECK(end == absl::OkStatus());
  CHECK((Variables(with_servers.model_dir, kSteps) == Variables(alone.model_dir, kSteps)));
}

TEST_CASE("A worker that comes back with other data is refused") {
  const auto strategy = distribute::Strategy::Create({.num_threads = 1}).value();
  const auto server = ParameterServer::Create(LinearModel(), NewConfig(), kSpec, 1, 0, 2, strategy->device(0)).value();
  RunState beginning;
  beginning.seed = 5;
  server->SetBeginning(beginning, "digits");
  CHECK(RunStateFrom(server->Answer(1, "Pdigits").value()).value().seed == 5);
  CHECK(server->Answer(1, "Pletters").status() ==
        absl::InvalidArgumentError("worker 1 has the data set letters, but the others have digits; give all workers "
                                   "the same data"));
}

TEST_CASE("A checkpoint has the positions of all workers, which begin there again") {
  constexpr int kServers = 1, kNumWorkers = 3;
  constexpr int64_t kSteps = 7;
  const EstimatorConfig config = NewConfig();
  const auto of = [](int64_t epoch, int64_t index) { return data::Position{epoch, index}; };
  // Only the chief trains, and the others never come.
  auto exchanges = distribute::MakeMemoryExchanges(kNumWorkers + kServers);
  for (const int worker : {1, 2}) distribute::Lose(*exchanges[worker]);
  absl::Status served;
  std::thread server(
      [&] { served = RunTask(*exchanges[3], LinearModel(), config, kNumWorkers, kServers, kSteps, Examples()); });
  CHECK(RunTask(*exchanges[0], LinearModel(), config, kNumWorkers, kServers, kSteps, Examples()).ok());
  server.join();
  CHECK(served.ok());
  const auto bundle = BundleReader::Open(absl::StrCat(config.model_dir, "/model.ckpt-", kSteps)).value();
  const RunState state = ReadRunState(*bundle, 1).value();
  CHECK((state.worker_positions == std::vector<data::Position>{of(3, 12), of(0, 0), of(0, 0)}));
  CHECK(state.position == of(3, 12));
  CHECK(BytesOf(RunStateFrom(BytesOf(state)).value()) == BytesOf(state));
  CHECK(absl::IsDataLoss(RunStateFrom(BytesOf(state) + " 1").status()));
  CHECK(absl::IsDataLoss(RunStateFrom(BytesOf(state) + " 1 x").status()));
  // One process continues where the chief was, and forgets the others.
  TrainAlone(LinearModel(), config, kSteps + 1);
  const auto alone = BundleReader::Open(absl::StrCat(config.model_dir, "/model.ckpt-", kSteps + 1)).value();
  CHECK(ReadRunState(*alone, 1).value().worker_positions.empty());
  CHECK(ReadRunState(*alone, 1).value().position == of(3, 16));
}

TEST_CASE("A job whose chief was stopped while it waited for the others goes on where each worker was") {
  const bool sync = GENERATE(false, true);
  CAPTURE(sync);
  constexpr int kEpochs = 2, kOwnSteps = kEpochs * kExamples / kBatch / 2;
  const InputFn epochs = Examples(/*bad=*/-1, kEpochs);
  EstimatorConfig config = NewConfig();
  config.servers = {.sync_replicas = sync, .replicas_to_aggregate = sync ? std::optional(1) : std::nullopt};
  const auto saved = [&] { return ReadRunState(*FindLatestCheckpoint(config.model_dir).value().reader, 1).value(); };
  const data::Position beginning{0, 0}, end{kEpochs, 0};

  // Worker 1 does nothing. The chief is asked after each step, and then while it waits.
  auto exchanges = distribute::MakeMemoryExchanges(3);
  EstimatorConfig stopping = config;
  int asked = 0;
  stopping.interruption = [&] { return ++asked > kOwnSteps ? Interruption::kStop : Interruption::kNone; };
  std::thread server([&] { RunTask(*exchanges[2], LinearModel(), config, 2, 1, 100, epochs).IgnoreError(); });
  CHECK(absl::IsCancelled(RunTask(*exchanges[0], LinearModel(), stopping, 2, 1, 100, epochs)));
  exchanges[0]->Fail("it was stopped");
  server.join();
  CHECK(saved().global_step == kOwnSteps);
  CHECK((saved().worker_positions == std::vector<data::Position>{end, beginning}));

  // The chief has nothing to train any more, but gives the servers the values with which the other one goes on.
  const Ends ends = TrainWithServers(LinearModel(), config, 2, 1, 100, epochs);
  CheckAllOk(ends);
  CHECK((saved().worker_positions == std::vector<data::Position>{end, end}));
  const EstimatorConfig alone = NewConfig();
  TrainAlone(LinearModel(), alone, 2 * kOwnSteps);
  CHECK(Variables(config.model_dir, 2 * kOwnSteps) == Variables(alone.model_dir, 2 * kOwnSteps));
}

TEST_CASE("What a lost worker has not done is left out when the others are done, and that is told") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  constexpr int kEpochs = 2, kOwnSteps = kEpochs * kExamples / kBatch / 2;
  const EstimatorConfig config = NewConfig();
  auto exchanges = distribute::MakeMemoryExchanges(3);
  distribute::Lose(*exchanges[1]);
  absl::Status served;
  std::thread server([&] { served = RunTask(*exchanges[2], LinearModel(), config, 2, 1, 100, Examples(-1, kEpochs)); });
  CHECK(RunTask(*exchanges[0], LinearModel(), config, 2, 1, 100, Examples(-1, kEpochs)).ok());
  server.join();
  CHECK(served.ok());
  const RunState state = ReadRunState(*FindLatestCheckpoint(config.model_dir).value().reader, 1).value();
  CHECK(state.global_step == kOwnSteps);
  CHECK((state.worker_positions == std::vector<data::Position>{{kEpochs, 0}, {kEpochs, 0}}));
  CHECK_THAT(log.Text(), Contains("was lost and has not come back; what it had not done of its data is left out"));
}

TEST_CASE("A number that is not finite ends the step, and is named, before it reaches a server") {
  const Ends ends = TrainWithServers(RegressionModel(), NewConfig(), 1, 2, 9, Examples(/*bad=*/9));
  CHECK(absl::IsInternal(ends.workers[0]));
  CHECK_THAT(std::string(ends.workers[0].message()), Contains("step 3: ") && Contains("labels") && Contains("nan"));
  for (const absl::Status& server : ends.servers) CHECK(absl::IsCancelled(server));
}

TEST_CASE("A server needs a variable that training changes") {
  const Ends ends = TrainWithServers(RegressionModel(), NewConfig(), 1, 5, 3);
  std::string told;
  for (const absl::Status& status : ends.servers) absl::StrAppend(&told, status.message(), "\n");
  CHECK_THAT(told,
             Contains("the cluster has 5 ps, and of the 3 variables of model regression, which are placed on them "
                      "in turn, ps 0 has none that training changes; use fewer ps"));
}

// ---- Tables of which a step reads some rows ----

constexpr int kUsers = 20, kItems = 17, kUserSize = 3, kItemSize = 5;

// The rows that examples read, in [0, 16), some several times in a batch.
Value IdsOf(const ModelInputs& in, int column) {
  const Value numbers = compute::Slice(in.features[0], {0, column}, {in.features[0].shape().dim(0), 1});
  return compute::Cast(compute::Reshape(numbers, {numbers.shape().dim(0)}), DType::kInt32);
}

// A loss of rows of two tables, one of which is read at two places; with `whole`, also of all of the first table.
Model EmbeddingModel(OptimizerFn optimizer, bool whole = false) {
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

TEST_CASE("Rows of tables that a worker reads and sends end with the bits of one device") {
  // With 5 micro-batches one of them has no example.
  const int num_servers = GENERATE(1, 2), kind = GENERATE(0, 1, 2), micro_batches = GENERATE(1, 2, 5);
  const bool sync = GENERATE(false, true), whole = GENERATE(false, true);
  CAPTURE(num_servers, kind, micro_batches, sync, whole);
  const Model model = EmbeddingModel(Optimizer(kind), whole);
  const EstimatorConfig alone = NewConfig(micro_batches);
  EstimatorConfig with_servers = NewConfig(micro_batches);
  with_servers.servers.sync_replicas = sync;
  constexpr int64_t kSteps = 9;
  TrainAlone(model, alone, kSteps);
  const Ends ends = TrainWithServers(model, with_servers, 1, num_servers, kSteps);
  CheckAllOk(ends);
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));
}

// ---- Shards ----

distribute::Partitioner Shards(int64_t num_shards) { return distribute::FixedShardsPartitioner(num_shards).value(); }

TEST_CASE("Shards of variables on several servers end with the bits of one device") {
  const int64_t num_shards = GENERATE(2, 9);  // of 3 rows
  const int kind = GENERATE(0, 1, 2), micro_batches = GENERATE(1, 2);
  const bool sync = GENERATE(false, true);
  CAPTURE(num_shards, kind, micro_batches, sync);
  Model model = RegressionModel(Optimizer(kind));
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    auto spec = Regression(in);
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Zeros()});
    const Value average =
        in.graph.Variable({"average of w", w.type(), compute::Initializer::Ones(), /*trainable=*/false});
    spec->moving_averages.push_back({average, compute::Add(w, w)});
    return spec;
  };
  const EstimatorConfig alone = NewConfig(micro_batches);
  EstimatorConfig with_servers = NewConfig(micro_batches);
  with_servers.servers.sync_replicas = sync;
  with_servers.servers.partitioner = Shards(num_shards);
  constexpr int64_t kSteps = 9;
  TrainAlone(model, alone, kSteps);
  CheckAllOk(TrainWithServers(model, with_servers, 1, 2, kSteps));
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));

  // One device continues, and the servers continue its checkpoint.
  TrainAlone(model, with_servers, kSteps + 3);
  EstimatorConfig continued = with_servers;
  continued.model_dir = alone.model_dir;
  CheckAllOk(TrainWithServers(model, continued, 1, 2, kSteps + 3));
  CHECK((Checkpoint(with_servers.model_dir, kSteps + 3) == Checkpoint(alone.model_dir, kSteps + 3)));
}

TEST_CASE("Rows of shards end with the bits of one device") {
  // Shards of a row each have no row of most batches.
  const int64_t num_shards = GENERATE(2, 3, 99);
  const int kind = GENERATE(0, 1, 2);
  const bool sync = GENERATE(false, true);
  CAPTURE(num_shards, kind, sync);
  const Model model = EmbeddingModel(Optimizer(kind));
  const EstimatorConfig alone = NewConfig();
  EstimatorConfig with_servers = NewConfig();
  with_servers.servers = {.sync_replicas = sync,
                          .placement = sync ? distribute::Placement::kGreedy : distribute::Placement::kRoundRobin,
                          .partitioner = Shards(num_shards)};
  constexpr int64_t kSteps = 9;
  TrainAlone(model, alone, kSteps);
  CheckAllOk(TrainWithServers(model, with_servers, 1, 2, kSteps));
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));
}

TEST_CASE("LazyAdam moves no row of a shard that has none of the batch") {
  const OptimizerFn lazy = [](const compute::UpdateInputs& inputs,
                              absl::Span<const compute::VariableGradient> variables) {
    return compute::Adam(inputs, variables, {.lazy = true});
  };
  const EstimatorConfig whole = NewConfig();
  EstimatorConfig divided = NewConfig();
  divided.servers.partitioner = Shards(99);
  constexpr int64_t kSteps = 9;
  for (const EstimatorConfig& config : {whole, divided}) {
    CheckAllOk(TrainWithServers(EmbeddingModel(lazy), config, 1, 2, kSteps));
  }
  CHECK((Checkpoint(divided.model_dir, kSteps) == Checkpoint(whole.model_dir, kSteps)));
}

// The variables, with "+" and their first row where they are shards, and the slots that a server has.
std::string PlacedOn(int server, const Model& model, int num_servers, const distribute::Partitioner& partitioner,
                     distribute::Placement placement = distribute::Placement::kRoundRobin) {
  const auto built = BuildModel(
      model, Mode::kTrain, DType::kFloat32, {}, Batched(kSpec, 1), true, 1, StepPart::kUpdate, std::nullopt,
      ServerUpdate{.num_servers = num_servers, .placement = placement, .partitioner = partitioner, .server = server});
  if (!built.ok()) return std::string(built.status().message());
  std::string text;
  for (const auto* specs : {&built->placed.variables, &built->placed.slots}) {
    for (const compute::VariableSpec& spec : *specs) {
      const auto shard = built->placed.shards.find(spec.name);
      absl::StrAppend(&text, text.empty() ? "" : " ", spec.name);
      if (shard == built->placed.shards.end()) continue;
      absl::StrAppend(&text, "=", shard->second.variable, "+", shard->second.first_row);
    }
  }
  return text;
}

TEST_CASE("Shards are placed as variables of their own, each with its slots") {
  const OptimizerFn adam = [](const compute::UpdateInputs& inputs,
                              absl::Span<const compute::VariableGradient> variables) {
    return compute::Adam(inputs, variables, {.scope = "train/"});
  };
  const Model model = RegressionModel(adam);
  CHECK(PlacedOn(0, model, 2, Shards(2)) ==
        "w/part_1=w+2 average train/beta1_power train/beta2_power train/w/part_1/Adam=train/w/Adam+2 "
        "train/w/part_1/Adam_1=train/w/Adam_1+2 global_step");
  CHECK(PlacedOn(1, model, 2, Shards(2)) ==
        "w/part_0=w+0 bias train/beta1_power train/beta2_power train/w/part_0/Adam=train/w/Adam+0 "
        "train/w/part_0/Adam_1=train/w/Adam_1+0 train/bias/Adam train/bias/Adam_1");
  // global_step has 8 bytes, as the larger shard.
  const Model simple = RegressionModel();
  constexpr auto kGreedy = distribute::Placement::kGreedy;
  CHECK(PlacedOn(0, simple, 3, Shards(2), kGreedy) == "average global_step");
  CHECK(PlacedOn(1, simple, 3, Shards(2), kGreedy) == "w/part_0=w+0");
  CHECK(PlacedOn(2, simple, 3, Shards(2), kGreedy) == "w/part_1=w+2 bias");
}

TEST_CASE("Shards that cannot be are refused") {
  const Model model = RegressionModel();
  CHECK(PlacedOn(0, model, 1, [](const auto&) { return 4; }) ==
        "the partitioner must return a number of shards from 1 to the 3 rows of variable w, got: 4");
  CHECK(PlacedOn(0, model, 1, [](const auto&) { return 0; }) ==
        "the partitioner must return a number of shards from 1 to the 3 rows of variable w, got: 0");
  CHECK(PlacedOn(7, model, 8, Shards(2)) ==
        "the cluster has 8 ps, and of the 3 variables of model regression, which are placed on them as 4 shards in "
        "turn, ps 7 has none that training changes; use fewer ps");
  const Model other_slots =
      RegressionModel([](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
        compute::Graph& graph = *variables[0].variable.graph();
        graph.Variable({variables[0].variable.node()->name() + "/sum", {DType::kFloat32, {7}}, {}, false});
        return compute::GradientDescent(inputs, variables);
      });
  CHECK(PlacedOn(0, other_slots, 1, Shards(2)) ==
        "the optimizer's variable w/part_0/sum is float32[7], but has to be divided as w/part_0, which is "
        "float32[2,1]; use no partitioner");
}

TEST_CASE("Synchronous workers take the mean of the rows that any of them sends") {
  const int num_workers = GENERATE(2, 3), kind = GENERATE(0, 1, 2);
  const int64_t num_shards = GENERATE(1, 5);
  CAPTURE(num_workers, kind, num_shards);
  constexpr int64_t kSteps = 7;
  const Model model = EmbeddingModel(Optimizer(kind));
  const EstimatorConfig alone = NewConfig();
  EstimatorConfig with_servers = NewConfig();
  with_servers.servers.sync_replicas = true;
  with_servers.servers.partitioner = Shards(num_shards);
  TrainAlone(model, alone, kSteps, num_workers);
  const Ends ends = TrainWithServers(model, with_servers, num_workers, 2, kSteps);
  CheckAllOk(ends);
  for (const char* const name : {"users", "items", "w"}) {
    CAPTURE(name);
    const Tensor ours = FindLatestCheckpoint(with_servers.model_dir).value().reader->Read(name).value();
    const Tensor theirs = FindLatestCheckpoint(alone.model_dir).value().reader->Read(name).value();
    for (int64_t i = 0; i < ours.num_elements(); ++i) {
      const float a = ours.data<float>()[i], b = theirs.data<float>()[i];
      CHECK(std::abs(a - b) <= 1e-6f * std::max(1.0f, std::abs(b)));
    }
  }
}

// Row numbers, or these and rows, in a request.
std::string RowsIn(const std::vector<int32_t>& ids, const std::vector<float>& rows = {}) {
  std::string bytes;
  const auto count = static_cast<int64_t>(ids.size());
  bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
  bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
  bytes.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
  return bytes;
}

// A request: its kind, a step and then these numbers.
std::string RequestOf(char kind, int64_t step, const std::vector<float>& numbers = {}) {
  std::string request(1, kind);
  request.append(reinterpret_cast<const char*>(&step), sizeof step);
  // The position that follows an update.
  if (kind == 'U') request.append(2 * sizeof(int64_t), '\0');
  request.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  return request;
}

// The 64-bit number `i` of an answer. The first two are the global step and the number of dropped gradients.
int64_t NumberOf(const std::string& answer, size_t i) {
  int64_t number = -1;
  REQUIRE(answer.size() >= (i + 1) * sizeof number);
  std::memcpy(&number, answer.data() + i * sizeof number, sizeof number);
  return number;
}

// The values of w and the bias in an answer.
std::vector<float> ValuesOf(const std::string& answer) {
  constexpr size_t kBefore = 2 * sizeof(int64_t);
  std::vector<float> values(4);
  REQUIRE(answer.size() == kBefore + values.size() * sizeof(float));
  std::memcpy(values.data(), answer.data() + kBefore, values.size() * sizeof(float));
  return values;
}

// A server of a job with four workers.
class Server {
 public:
  explicit Server(const Model& model, const ServerOptions& options = {}) {
    EstimatorConfig config = NewConfig();
    config.servers = options;
    server_ = ParameterServer::Create(model, config, kSpec, 1, 0, kWorkers, strategy_->device(0)).value();
  }
  absl::StatusOr<std::string> Ask(int worker, const std::string& request) { return server_->Answer(worker, request); }
  absl::StatusOr<std::string> Ask(const std::string& request) { return Ask(0, request); }
  // Begins with zeros.
  void Begin() { REQUIRE(Ask(RequestOf('S', 0) + std::string(4 * sizeof(float) + sizeof(int64_t), '\0')).ok()); }
  void Leave(int worker) { server_->Leave(worker); }
  void SetBeginning(RunState state) { server_->SetBeginning(std::move(state), ""); }

  // Sends gradients of LinearModel with a learning rate of 1/2. False if they are dropped.
  bool Apply(int worker, int64_t step, const std::vector<float>& gradients) {
    std::vector<float> numbers = {0.5f};
    numbers.insert(numbers.end(), gradients.begin(), gradients.end());
    return NumberOf(Ask(worker, RequestOf('U', step, numbers)).value(), 2) == 1;
  }
  std::vector<float> Values() { return ValuesOf(Ask(RequestOf('R', 0)).value()); }
  int64_t Counted(size_t i) { return NumberOf(Ask("C").value(), i); }
  int64_t GlobalStep() { return Counted(0); }
  int64_t NumDropped() { return Counted(1); }

 private:
  const std::unique_ptr<distribute::Strategy> strategy_ = distribute::Strategy::Create({.num_threads = 1}).value();
  std::unique_ptr<ParameterServer> server_;
};

TEST_CASE("A server refuses what no worker asks") {
  Server server(RegressionModel());
  CHECK(absl::IsDataLoss(server.Ask("").status()));
  CHECK(absl::IsUnavailable(server.Ask(RequestOf('R', 0)).status()));
  CHECK(absl::IsDataLoss(server.Ask("S").status()));
  CHECK(absl::IsDataLoss(server.Ask(RequestOf('S', 0)).status()));
  CHECK(absl::IsUnavailable(server.Ask(RequestOf('R', 0)).status()));
  // w, bias, average and global_step.
  const std::string values(4 * 3 + 4 + 4 + 8, '\0');
  CHECK(absl::IsDataLoss(server.Ask(RequestOf('S', 0) + values + "x").status()));
  CHECK(server.Ask(RequestOf('S', 0) + values).ok());
  CHECK(server.Ask(RequestOf('R', 0)).value().size() == 16 + 4 * 3 + 4 + 4);
  CHECK(server.Ask(RequestOf('A', 0)).value().size() == 16 + values.size());
  CHECK(server.Ask("C").value().size() == 16);
  for (const char* const request :
       {"x", "U", "Uabcd", "Uabcdefgh", "Uabcdefghijkl", "Uabcdefghijklmnopqrstuvwxyz", "T", "R", "A"}) {
    CAPTURE(request);
    CHECK(absl::IsDataLoss(server.Ask(request).status()));
  }
}

// A server that has both tables and w, all zeros.
constexpr int64_t kTables = kUsers * kUserSize + kItems * kItemSize, kWeights = kUserSize + 2 * kItemSize;

TEST_CASE("A server answers with the rows that it is asked for, and moves those that have gradients") {
  Server server(EmbeddingModel(Optimizer(0)));
  REQUIRE(
      server.Ask(RequestOf('S', 0) + std::string((kTables + kWeights) * sizeof(float) + sizeof(int64_t), '\0')).ok());
  constexpr size_t kCounts = 16;
  const std::string none = server.Ask(RequestOf('R', 0) + RowsIn({}) + RowsIn({})).value();
  CHECK(none.size() == kCounts + kWeights * sizeof(float));
  std::vector<float> numbers = {0.5f};
  numbers.resize(1 + kWeights);
  const std::string update =
      RequestOf('U', 0, numbers) + RowsIn({7, 2}, {2, 4, 6, 8, 10, 12}) + RowsIn({16}, {2, 0, 0, 0, 0});
  REQUIRE(server.Ask(update).ok());
  const std::string some = server.Ask(RequestOf('R', 0) + RowsIn({2, 3, 7}) + RowsIn({16, 0})).value();
  const std::vector<float> expected = {-4, -5, -6, 0, 0, 0, -1, -2, -3, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<float> rows(expected.size());
  REQUIRE(some.size() == none.size() + rows.size() * sizeof(float));
  std::memcpy(rows.data(), some.data() + none.size(), rows.size() * sizeof(float));
  CHECK(rows == expected);
  CHECK(server.Ask(RequestOf('A', 0)).value().size() ==
        kCounts + (kTables + kWeights) * sizeof(float) + sizeof(int64_t));
}

TEST_CASE("A server answers others while it makes the programs for a larger batch") {
  Model model = EmbeddingModel(Optimizer(0));
  std::promise<void> begun, may_end;
  std::atomic<int> built = 0;
  model.model_fn = [&, model_fn = model.model_fn](const ModelInputs& in) {
    if (++built == 2) {
      begun.set_value();
      may_end.get_future().wait();
    }
    return model_fn(in);
  };
  Server server(model);
  REQUIRE(
      server.Ask(RequestOf('S', 0) + std::string((kTables + kWeights) * sizeof(float) + sizeof(int64_t), '\0')).ok());
  std::vector<int32_t> many(kUsers);
  std::iota(many.begin(), many.end(), 0);
  std::vector<float> numbers(1 + kWeights);
  const std::string update =
      RequestOf('U', 0, numbers) + RowsIn(many, std::vector<float>(kUsers * kUserSize)) + RowsIn({});
  auto larger = std::async(std::launch::async, [&] { return server.Ask(1, update).status(); });
  begun.get_future().wait();
  auto other = std::async(std::launch::async,
                          [&] { return server.Ask(0, RequestOf('R', 0) + RowsIn({}) + RowsIn({})).status(); });
  const bool is_answered = other.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  may_end.set_value();
  CHECK(is_answered);
  CHECK(other.get() == absl::OkStatus());
  CHECK(larger.get() == absl::OkStatus());
  // Their memory has moved, and the others follow it.
  CHECK(server.Ask(0, RequestOf('R', 0) + RowsIn({3}) + RowsIn({})).ok());
  CHECK(server.GlobalStep() == 1);
}

TEST_CASE("A server refuses rows that its tables do not have") {
  Server server(EmbeddingModel(Optimizer(2)));
  REQUIRE(
      server
          .Ask(RequestOf('S', 0) + std::string((3 * (kTables + kWeights) + 2) * sizeof(float) + sizeof(int64_t), '\0'))
          .ok());
  std::vector<float> numbers(1 + kWeights);
  const std::string update = RequestOf('U', 0, numbers), read = RequestOf('R', 0);
  const std::vector<float> row(kUserSize);
  for (const std::string& request :
       {read, read + RowsIn({0}), read + RowsIn({kUsers}) + RowsIn({}), read + RowsIn({-1}) + RowsIn({}),
        read + RowsIn({}) + RowsIn({}) + "x", read + RowsIn({}) + RowsIn({kItems}), update, update + RowsIn({}),
        update + RowsIn({0}) + RowsIn({}), update + RowsIn({kUsers}, row) + RowsIn({}),
        update + RowsIn(std::vector<int32_t>(kUsers + 1), std::vector<float>((kUsers + 1) * kUserSize)) + RowsIn({}),
        update + RowsIn({0}, row) + RowsIn({}) + "x"}) {
    CAPTURE(request.size());
    CHECK(absl::IsDataLoss(server.Ask(request).status()));
  }
  CHECK_THAT(std::string(server.Ask(read + RowsIn({kUsers}) + RowsIn({})).status().message()),
             Contains("has row 20 of variable users, which has 20"));
  CHECK(server.Ask(update + RowsIn({0}, row) + RowsIn({})).ok());
  std::vector<float> nan = row;
  nan[1] = NAN;
  CHECK(absl::IsOutOfRange(server.Ask(update + RowsIn({0}, nan) + RowsIn({})).status()));
}

TEST_CASE("A batch that reads a row that there is not is told") {
  Model model = EmbeddingModel(Optimizer(2));
  model.model_fn = [built = model.model_fn](const ModelInputs& in) {
    ModelInputs moved = in;
    moved.features[0] = compute::Add(in.features[0], in.features[0]);
    return built(moved);
  };
  const Ends ends = TrainWithServers(model, NewConfig(), 1, 1, 9);
  CHECK_THAT(std::string(ends.workers[0].message()),
             Contains("the batch reads row ") && Contains(" of variable ") && Contains(", which has "));
}

TEST_CASE("Updates that come at the same time are made one after the other") {
  Server server(LinearModel());
  server.Begin();
  constexpr int kUpdates = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kWorkers; ++t) {
    threads.emplace_back([&, t] {
      const auto gradient = static_cast<float>(1 << t);
      for (int i = 0; i < kUpdates; ++i) {
        if (!server.Ask(t, RequestOf('U', 0, {0.5f, gradient, 2 * gradient, 0, -gradient})).ok()) std::abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(server.GlobalStep() == kWorkers * kUpdates);
  const float sum = 0.5f * kUpdates * ((1 << kWorkers) - 1);
  CHECK(server.Values() == std::vector<float>{-sum, -2 * sum, 0, sum});
}

TEST_CASE("A server makes no update from sums that are not finite") {
  Server server(LinearModel());
  server.Begin();
  CHECK(absl::IsOutOfRange(server.Ask(RequestOf('U', 0, {0.5f, 1, 2, 3, NAN})).status()));
  CHECK(server.Values() == std::vector<float>(4));
  CHECK(server.Apply(0, 0, {1, 2, 3, 4}));
  CHECK(server.Values() == std::vector<float>{-0.5f, -1, -1.5f, -2});
}

TEST_CASE("Gradients that are too old are dropped") {
  Server server(LinearModel(), {.max_gradient_staleness = 1});
  server.Begin();
  CHECK(server.Apply(0, 0, {2, 0, 0, 0}));
  CHECK(server.Apply(1, 0, {0, 2, 0, 0}));
  CHECK_FALSE(server.Apply(2, 0, {0, 0, 2, 0}));
  CHECK(server.Apply(2, 1, {0, 0, 0, 2}));
  CHECK(server.Values() == std::vector<float>{-1, -1, 0, -1});
  CHECK(server.GlobalStep() == 3);
  CHECK(server.NumDropped() == 1);
}

TEST_CASE("A synchronous step takes the mean of so many gradients") {
  Server server(LinearModel(), {.sync_replicas = true, .replicas_to_aggregate = 3});
  server.Begin();
  CHECK(server.Apply(3, 0, {8, 0, 0, 3}));
  CHECK(server.Apply(0, 0, {0, 2, 0, 3}));
  CHECK(server.GlobalStep() == 0);
  CHECK(server.Apply(1, 0, {1, 1, 0, 3}));
  CHECK(server.GlobalStep() == 1);
  CHECK(server.Values() == std::vector<float>{-1.5f, -0.5f, 0, -1.5f});
  // That of the slowest worker comes too late.
  CHECK_FALSE(server.Apply(2, 0, {1, 1, 1, 1}));
  CHECK(server.NumDropped() == 1);
  for (const int worker : {3, 0, 1, 2}) CHECK(NumberOf(server.Ask(worker, "T").value(), 2) == 1);
  // There is no more than one for each.
  const std::string none = server.Ask(0, "T").value();
  CHECK(NumberOf(none, 2) == -1);
  CHECK(NumberOf(none, 3) == 0);
}

TEST_CASE("A synchronous server waits for the step that a worker has seen on another") {
  Server server(LinearModel(), {.sync_replicas = true, .replicas_to_aggregate = 1});
  server.Begin();
  CHECK(absl::IsUnavailable(server.Ask(RequestOf('R', 1)).status()));
  CHECK(server.Apply(0, 0, {1, 1, 1, 1}));
  CHECK(server.Ask(RequestOf('R', 1)).ok());
}

TEST_CASE("A synchronous step does not wait for who has left") {
  Server server(LinearModel(), {.sync_replicas = true});
  server.Begin();
  server.Leave(3);
  server.Leave(2);
  CHECK(server.Apply(0, 0, {2, 0, 0, 0}));
  CHECK(server.GlobalStep() == 0);
  server.Leave(1);
  CHECK(server.GlobalStep() == 1);
  CHECK(server.Values() == std::vector<float>{-1, 0, 0, 0});
  // Who comes back is waited for again.
  CHECK(server.Apply(1, 1, {2, 0, 0, 0}));
  CHECK(server.GlobalStep() == 1);
}

TEST_CASE("A synchronous step does not wait for a worker that rests") {
  Server server(LinearModel(), {.sync_replicas = true});
  server.Begin();
  server.Leave(3);
  server.Leave(2);
  CHECK(server.Apply(1, 0, {2, 0, 0, 0}));
  CHECK(server.GlobalStep() == 0);
  REQUIRE(server.Ask(0, "E").ok());
  CHECK(server.GlobalStep() == 1);
  // It may still look, and waits for the others when it trains again.
  REQUIRE(server.Ask(0, "C").ok());
  REQUIRE(server.Ask(0, RequestOf('A', 1)).ok());
  CHECK(server.Apply(1, 1, {2, 0, 0, 0}));
  CHECK(server.GlobalStep() == 2);
  REQUIRE(server.Ask(0, RequestOf('R', 2)).ok());
  CHECK(server.Apply(1, 2, {2, 0, 0, 0}));
  CHECK(server.GlobalStep() == 2);
}

TEST_CASE("All workers are told why a synchronous step is not made") {
  Server server(LinearModel(), {.sync_replicas = true, .replicas_to_aggregate = 2});
  server.Begin();
  constexpr float kHuge = 3e38f;
  CHECK(server.Apply(0, 0, {kHuge, 0, 0, 0}));
  CHECK(absl::IsOutOfRange(server.Ask(1, RequestOf('U', 0, {0.5f, kHuge, 0, 0, 0})).status()));
  CHECK(absl::IsOutOfRange(server.Ask(0, "T").status()));
  CHECK(absl::IsOutOfRange(server.Ask(2, RequestOf('R', 0)).status()));
}

TEST_CASE("A gradient of another length is its worker's error") {
  const bool sync = GENERATE(false, true);
  Server server(LinearModel(), {.sync_replicas = sync});
  server.Begin();
  CHECK(absl::IsDataLoss(server.Ask(0, RequestOf('U', 0, {0.5f, 1, 2, 3})).status()));
  CHECK(absl::IsDataLoss(server.Ask(0, RequestOf('U', 0, {0.5f, 1, 2, 3, 4, 5})).status()));
  CHECK(server.Apply(0, 0, {1, 2, 3, 4}));
}

TEST_CASE("A batch counts as done when the synchronous step of its gradient is made") {
  Server server(LinearModel(), {.sync_replicas = true, .replicas_to_aggregate = 2});
  RunState beginning;
  beginning.worker_positions.resize(kWorkers);
  server.SetBeginning(beginning);
  server.Begin();
  const auto apply = [&](int worker, int64_t step, int64_t index) {
    std::string request = RequestOf('U', step, {0.5f, 1, 1, 1, 1});
    std::memcpy(request.data() + 1 + 2 * sizeof(int64_t), &index, sizeof index);
    REQUIRE(server.Ask(worker, request).ok());
  };
  // The index of worker `w` in what is saved: the last pairs of numbers.
  const auto saved = [&](int w) {
    const std::string answer = server.Ask(RequestOf('A', 0)).value();
    int64_t index = -1;
    std::memcpy(&index, answer.data() + answer.size() - (2 * (kWorkers - w) - 1) * sizeof index, sizeof index);
    return index;
  };
  const auto welcomed = [&](int w) { return RunStateFrom(server.Ask(w, "P").value()).value().position.index; };
  apply(1, 0, 4);
  CHECK(saved(1) == 0);
  CHECK(welcomed(1) == 4);  // its gradient is there
  apply(0, 0, 8);
  CHECK(saved(0) == 8);
  CHECK(saved(1) == 4);
  apply(2, 0, 12);  // which is dropped
  CHECK(saved(2) == 12);
  CHECK(saved(3) == 0);
}

TEST_CASE("Synchronous workers make the steps of as many replicas") {
  const int num_workers = GENERATE(1, 2, 3), num_servers = GENERATE(1, 2), micro_batches = GENERATE(1, 2);
  CAPTURE(num_workers, num_servers, micro_batches);
  constexpr int64_t kSteps = 7;
  const Model model = RegressionModel();
  const EstimatorConfig alone = NewConfig(micro_batches);
  EstimatorConfig with_servers = NewConfig(micro_batches);
  with_servers.servers.sync_replicas = true;
  TrainAlone(model, alone, kSteps, num_workers);
  const Ends ends = TrainWithServers(model, with_servers, num_workers, num_servers, kSteps);
  CheckAllOk(ends);
  if (num_workers == 1) {
    CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));
    return;
  }
  for (const char* const name : {"w", "bias", "average"}) {
    CAPTURE(name);
    const Tensor ours = FindLatestCheckpoint(with_servers.model_dir).value().reader->Read(name).value();
    const Tensor theirs = FindLatestCheckpoint(alone.model_dir).value().reader->Read(name).value();
    for (int64_t i = 0; i < ours.num_elements(); ++i) {
      const float a = ours.data<float>()[i], b = theirs.data<float>()[i];
      CHECK(std::abs(a - b) <= 1e-6f * std::max(1.0f, std::abs(b)));
    }
  }
}

}  // namespace
}  // namespace official::train
