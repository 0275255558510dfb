// What becomes of the data of workers of a job with parameter servers that are lost, come back or wait for each other.

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/memory_exchange_faults.h"
#include "utils/logs/captured_log.h"
#include "utils/train/checkpoint/bundle.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/parameter_server.h"
#include "utils/train/parameter_server_job.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;

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
  REQUIRE(TrainAlone(model, alone, kSteps).ok());
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
      ends[task] = RunTask(*exchanges[task], model, with_servers, {kNumWorkers, kServers}, kEver, of_chief);
    });
  }
  // A process makes two steps and is lost when it needs another batch.
  for (int process = 0; process < 2; ++process) {
    const InputFn input = Epochs(kEpochs, 7, [&] {
      distribute::Lose(*exchanges[1]);
      return absl::CancelledError("lost");
    });
    CHECK(absl::IsCancelled(RunTask(*exchanges[1], model, with_servers, {kNumWorkers, kServers}, kEver, input)));
    exchanges[1] = distribute::StartAgain(*exchanges[1]);
    CHECK(exchanges[1]->incarnation() == process + 1);
  }
  is_back.set_value();
  ends[1] = RunTask(*exchanges[1], model, with_servers, {kNumWorkers, kServers}, kEver, Epochs(kEpochs, -1, nothing));
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) CHECK(end == absl::OkStatus());
  CHECK((Variables(with_servers.model_dir, kSteps) == Variables(alone.model_dir, kSteps)));
}

TEST_CASE("A worker that comes back with other data is refused") {
  const auto strategy = distribute::Strategy::Create({.num_threads = 1}).value();
  const auto server =
      ParameterServer::Create(LinearModel(), NewConfig(), SpecOfExample(), 1, 0, 2, strategy->device(0)).value();
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
  std::thread server([&] {
    served = RunTask(*exchanges[3], LinearModel(), config, {kNumWorkers, kServers}, kSteps, Examples());
  });
  CHECK(RunTask(*exchanges[0], LinearModel(), config, {kNumWorkers, kServers}, kSteps, Examples()).ok());
  server.join();
  CHECK(served.ok());
  const auto bundle = BundleReader::Open(absl::StrCat(config.model_dir, "/model.ckpt-", kSteps)).value();
  RunState state = ReadRunState(*bundle, 1).value();
  CHECK((state.worker_positions == std::vector<data::Position>{of(3, 12), of(0, 0), of(0, 0)}));
  CHECK(state.position == of(3, 12));
  CHECK(BytesOf(RunStateFrom(BytesOf(state)).value()) == BytesOf(state));
  state.evaluated_step = kSteps;
  state.evaluated_metric = 0.6;
  CHECK(RunStateFrom(BytesOf(state)).value().evaluated_metric == 0.6);
  CHECK(BytesOf(RunStateFrom(BytesOf(state)).value()) == BytesOf(state));
  CHECK(absl::IsDataLoss(RunStateFrom(BytesOf(state) + " 1").status()));
  CHECK(absl::IsDataLoss(RunStateFrom(BytesOf(state) + " 1 x").status()));
  // One process continues where the chief was, and forgets the others.
  REQUIRE(TrainAlone(LinearModel(), config, kSteps + 1).ok());
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
  std::thread server([&] { RunTask(*exchanges[2], LinearModel(), config, {2, 1}, 100, epochs).IgnoreError(); });
  CHECK(absl::IsCancelled(RunTask(*exchanges[0], LinearModel(), stopping, {2, 1}, 100, epochs)));
  exchanges[0]->Fail("it was stopped");
  server.join();
  CHECK(saved().global_step == kOwnSteps);
  CHECK((saved().worker_positions == std::vector<data::Position>{end, beginning}));

  // The chief has nothing to train any more, but gives the servers the values with which the other one goes on.
  const Ends ends = TrainWithServers(LinearModel(), config, {2, 1}, 100, epochs);
  CHECK(ends.status() == absl::OkStatus());
  CHECK((saved().worker_positions == std::vector<data::Position>{end, end}));
  const EstimatorConfig alone = NewConfig();
  REQUIRE(TrainAlone(LinearModel(), alone, 2 * kOwnSteps).ok());
  CHECK(Variables(config.model_dir, 2 * kOwnSteps) == Variables(alone.model_dir, 2 * kOwnSteps));
}

TEST_CASE("A checkpoint is saved again when only the positions of workers have changed") {
  constexpr int kEpochs = 2, kOwnSteps = kEpochs * kExamples / kBatch / 2;
  const InputFn epochs = Examples(/*bad=*/-1, kEpochs);
  const EstimatorConfig config = NewConfig();
  const auto positions = [&] {
    const RunState state = ReadRunState(*FindLatestCheckpoint(config.model_dir).value().reader, 1).value();
    CHECK(state.global_step == kOwnSteps);
    return state.worker_positions;
  };
  const data::Position beginning{0, 0}, end{kEpochs, 0};
  // Worker 1 does nothing. The chief is stopped while it waits for it, and the second time told that it is lost.
  for (const bool is_lost : {false, true}) {
    EstimatorConfig of_chief = config;
    int asked = 0;
    if (!is_lost) {
      of_chief.interruption = [&] { return ++asked > kOwnSteps ? Interruption::kStop : Interruption::kNone; };
    }
    auto exchanges = distribute::MakeMemoryExchanges(3);
    if (is_lost) distribute::Lose(*exchanges[1]);
    std::thread server([&] { RunTask(*exchanges[2], LinearModel(), config, {2, 1}, 100, epochs).IgnoreError(); });
    CHECK(RunTask(*exchanges[0], LinearModel(), of_chief, {2, 1}, 100, epochs).ok() == is_lost);
    if (!is_lost) exchanges[0]->Fail("it was stopped");
    server.join();
    CHECK((positions() == std::vector<data::Position>{end, is_lost ? end : beginning}));
  }
}

TEST_CASE("What a lost worker has not done is left out when the others are done, and that is told") {
  logs::CapturedLog log(logs::LogFormat::kSimple);
  constexpr int kEpochs = 2, kOwnSteps = kEpochs * kExamples / kBatch / 2;
  const EstimatorConfig config = NewConfig();
  auto exchanges = distribute::MakeMemoryExchanges(3);
  distribute::Lose(*exchanges[1]);
  absl::Status served;
  std::thread server([&] {
    served = RunTask(*exchanges[2], LinearModel(), config, {2, 1}, 100, Examples(-1, kEpochs));
  });
  CHECK(RunTask(*exchanges[0], LinearModel(), config, {2, 1}, 100, Examples(-1, kEpochs)).ok());
  server.join();
  CHECK(served.ok());
  const RunState state = ReadRunState(*FindLatestCheckpoint(config.model_dir).value().reader, 1).value();
  CHECK(state.global_step == kOwnSteps);
  CHECK((state.worker_positions == std::vector<data::Position>{{kEpochs, 0}, {kEpochs, 0}}));
  CHECK_THAT(log.Text(), Contains("was lost and has not come back; what it had not done of its data is left out"));
}

}  // namespace
}  // namespace official::train
