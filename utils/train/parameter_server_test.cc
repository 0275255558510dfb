// What a parameter server answers: with values and rows, to updates that come at any time, and to what no worker asks.

#include "utils/train/parameter_server.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "utils/train/parameter_server_job.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;

constexpr int kWorkers = 4;

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
    server_ = ParameterServer::Create(model, config, SpecOfExample(), 1, 0, kWorkers, strategy_->device(0)).value();
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
  size_t num_programs() const { return server_->num_programs(); }

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
  const bool is_answered = other.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  may_end.set_value();
  CHECK(is_answered);
  CHECK(other.get() == absl::OkStatus());
  CHECK(larger.get() == absl::OkStatus());
  // Their memory has moved, and the others follow it.
  CHECK(server.Ask(0, RequestOf('R', 0) + RowsIn({3}) + RowsIn({})).ok());
  CHECK(server.GlobalStep() == 1);
}

TEST_CASE("A server keeps a limited number of programs, however many shards batches leave without a row") {
  const bool sync = GENERATE(false, true);
  CAPTURE(sync);
  // Each row of a table is a shard, and so is each of w.
  Server server(EmbeddingModel(Optimizer(0)),
                {.sync_replicas = sync,
                 .replicas_to_aggregate = sync ? std::optional(1) : std::nullopt,
                 .partitioner = [](const compute::TensorType& type) { return type.shape.dim(0); }});
  REQUIRE(
      server.Ask(RequestOf('S', 0) + std::string((kTables + kWeights) * sizeof(float) + sizeof(int64_t), '\0')).ok());
  // Reads no row of `w`, whose shards follow one another as the variables do: users, items, w.
  const auto rows_of = [](const std::vector<std::pair<int, float>>& rows) {
    std::string bytes;
    for (int i = 0; i < kUsers + kItems; ++i) {
      const auto row = std::find_if(rows.begin(), rows.end(), [i](const auto& r) { return r.first == i; });
      const bool has_row = row != rows.end();
      bytes += has_row ? RowsIn({0}, std::vector<float>(i < kUsers ? kUserSize : kItemSize, row->second)) : RowsIn({});
    }
    return bytes;
  };
  constexpr int kPaired = 13;  // users: 78 pairs
  std::vector<float> numbers = {0.5f};
  numbers.resize(1 + kWeights);
  int64_t step = 0;
  size_t most_programs = 0;
  for (int a = 0; a < kPaired; ++a) {
    for (int b = 0; b < a; ++b) {
      REQUIRE(server.Ask(RequestOf('U', step++, numbers) + rows_of({{a, 2}, {b, 4}})).ok());
      most_programs = std::max(most_programs, server.num_programs());
    }
  }
  CHECK(most_programs == 64);
  // User u was the first of u pairs and the second of those with the users behind it.
  const std::string all = server.Ask(RequestOf('A', 0)).value();
  for (int user = 0; user < kPaired; ++user) {
    float value = 0;
    std::memcpy(&value, all.data() + 16 + user * kUserSize * sizeof(float), sizeof value);
    CHECK(value == -0.5f * static_cast<float>(2 * user + 4 * (kPaired - 1 - user)));
  }
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

// TensorFlow's SparseConditionalAccumulator would divide the row by 1: see docs/manual/devices.md.
TEST_CASE("A synchronous step divides a row by the number of all gradients, of which one has it") {
  Server server(EmbeddingModel(Optimizer(0)), {.sync_replicas = true, .replicas_to_aggregate = 2});
  REQUIRE(
      server.Ask(RequestOf('S', 0) + std::string((kTables + kWeights) * sizeof(float) + sizeof(int64_t), '\0')).ok());
  std::vector<float> numbers = {0.5f};
  numbers.resize(1 + kWeights);
  REQUIRE(server.Ask(0, RequestOf('U', 0, numbers) + RowsIn({7, 2}, {4, 8, 12, 4, 4, 4}) + RowsIn({})).ok());
  REQUIRE(server.Ask(1, RequestOf('U', 0, numbers) + RowsIn({2}, {8, 8, 8}) + RowsIn({})).ok());
  CHECK(server.GlobalStep() == 1);
  const std::string answer = server.Ask(RequestOf('R', 0) + RowsIn({2, 7}) + RowsIn({})).value();
  std::vector<float> rows(2 * kUserSize);
  REQUIRE(answer.size() >= rows.size() * sizeof(float));
  std::memcpy(rows.data(), answer.data() + answer.size() - rows.size() * sizeof(float), rows.size() * sizeof(float));
  CHECK(rows == std::vector<float>{-3, -3, -3, -1, -2, -3});
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

}  // namespace
}  // namespace official::train
