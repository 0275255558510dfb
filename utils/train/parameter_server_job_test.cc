// What training with parameter servers promises: one worker ends with the bits of one process with its devices,
// synchronous ones make the steps of as many replicas, and no update of several workers is lost.

#include "utils/train/parameter_server_job.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using compute::Tensor;

// Endless epochs of the examples, in batches of so many.
InputFn Batches(int batch_size) { return Examples(/*bad=*/-1, data::kEndless, batch_size); }

// Variables in the last checkpoints of two runs agree to 1e-6.
void CheckClose(const EstimatorConfig& a, const EstimatorConfig& b, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    CAPTURE(name);
    const Tensor ours = FindLatestCheckpoint(a.model_dir).value().reader->Read(name).value();
    const Tensor theirs = FindLatestCheckpoint(b.model_dir).value().reader->Read(name).value();
    for (int64_t i = 0; i < ours.num_elements(); ++i) {
      const float x = ours.data<float>()[i], y = theirs.data<float>()[i];
      CHECK(std::abs(x - y) <= 1e-6f * std::max(1.0f, std::abs(y)));
    }
  }
}

TEST_CASE("One worker and its servers end with the bits of one device") {
  const int num_servers = GENERATE(1, 2, 3), micro_batches = GENERATE(1, 2), kind = GENERATE(0, 1, 2);
  CAPTURE(num_servers, micro_batches, kind);
  const Model model = RegressionModel(Optimizer(kind));
  EstimatorConfig alone = NewConfig(micro_batches), with_servers = NewConfig(micro_batches);
  constexpr int64_t kSteps = 9;
  REQUIRE(TrainAlone(model, alone, kSteps).ok());
  if (num_servers == 2) with_servers.servers.placement = distribute::Placement::kGreedy;
  const Ends ends = TrainWithServers(model, with_servers, {1, num_servers}, kSteps);
  CHECK(ends.status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));

  // Both continue the other's checkpoint.
  REQUIRE(TrainAlone(model, with_servers, kSteps + 3).ok());
  CHECK(TrainWithServers(model, alone, {1, num_servers}, kSteps + 3).workers[0].ok());
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
  REQUIRE(TrainAlone(model, alone, kSteps).ok());
  const Ends ends = TrainWithServers(model, with_servers, {num_workers, num_servers}, /*steps=*/1 << 20, epochs);
  CHECK(ends.status() == absl::OkStatus());
  CHECK((Variables(with_servers.model_dir, kSteps) == Variables(alone.model_dir, kSteps)));
}

TEST_CASE("A number that is not finite ends the step, and is named, before it reaches a server") {
  const int num_replicas = GENERATE(1, 2), bad = GENERATE(9, 11);  // of two devices the first or the second has it
  CAPTURE(num_replicas, bad);
  const Ends ends = TrainWithServers(RegressionModel(), NewConfig(), {1, 2, num_replicas}, 9, Examples(bad));
  CHECK(absl::IsInternal(ends.workers[0]));
  CHECK_THAT(std::string(ends.workers[0].message()), Contains("step 3: ") && Contains("labels") && Contains("nan"));
  for (const absl::Status& server : ends.servers) CHECK(absl::IsCancelled(server));
}

TEST_CASE("A worker that does not save names no checkpoint when a number is not finite") {
  EstimatorConfig config = NewConfig();
  config.save_checkpoints_steps = 1;
  constexpr int kBad = 3 * kBatch;  // in the second batch of worker 1
  const Ends ends = TrainWithServers(RegressionModel(), config, {2, 1}, /*steps=*/1 << 20, Examples(kBad));
  CHECK(absl::IsInternal(ends.workers[1]));
  CHECK_THAT(std::string(ends.workers[1].message()),
             Contains("nan") && Contains(". Training stops before that reaches a checkpoint. Try a lower "));
}

TEST_CASE("A server needs a variable that training changes") {
  const Ends ends = TrainWithServers(RegressionModel(), NewConfig(), {1, 5}, 3);
  std::string told;
  for (const absl::Status& status : ends.servers) absl::StrAppend(&told, status.message(), "\n");
  CHECK_THAT(told,
             Contains("the cluster has 5 ps, and of the 3 variables of model regression, which are placed on them "
                      "in turn, ps 0 has none that training changes; use fewer ps"));
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
  REQUIRE(TrainAlone(model, alone, kSteps).ok());
  const Ends ends = TrainWithServers(model, with_servers, {1, num_servers}, kSteps);
  CHECK(ends.status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));
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
  with_servers.servers.partitioner = distribute::FixedShardsPartitioner(num_shards).value();
  REQUIRE(TrainAlone(model, alone, kSteps, num_workers, Batches(num_workers * kBatch)).ok());
  const Ends ends = TrainWithServers(model, with_servers, {num_workers, 2}, kSteps);
  CHECK(ends.status() == absl::OkStatus());
  CheckClose(with_servers, alone, {"users", "items", "w"});
}

TEST_CASE("A batch that reads a row that there is not is told") {
  Model model = EmbeddingModel(Optimizer(2));
  model.model_fn = [built = model.model_fn](const ModelInputs& in) {
    ModelInputs moved = in;
    moved.features[0] = compute::Add(in.features[0], in.features[0]);
    return built(moved);
  };
  const Ends ends = TrainWithServers(model, NewConfig(), {1, 1}, 9);
  CHECK_THAT(std::string(ends.workers[0].message()),
             Contains("the batch reads row ") && Contains(" of variable ") && Contains(", which has "));
}

TEST_CASE("Synchronous workers make the steps of as many replicas") {
  const int num_workers = GENERATE(1, 2, 3), num_servers = GENERATE(1, 2), micro_batches = GENERATE(1, 2);
  CAPTURE(num_workers, num_servers, micro_batches);
  constexpr int64_t kSteps = 7;
  const Model model = RegressionModel();
  const EstimatorConfig alone = NewConfig(micro_batches);
  EstimatorConfig with_servers = NewConfig(micro_batches);
  with_servers.servers.sync_replicas = true;
  REQUIRE(TrainAlone(model, alone, kSteps, num_workers, Batches(num_workers * kBatch)).ok());
  const Ends ends = TrainWithServers(model, with_servers, {num_workers, num_servers}, kSteps);
  CHECK(ends.status() == absl::OkStatus());
  if (num_workers == 1) {
    CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));
    return;
  }
  CheckClose(with_servers, alone, {"w", "bias", "average"});
}

TEST_CASE("Workers whose batches differ in size draw the random numbers of replicas") {
  // The 24 examples make four batches of 5 and one of 4, always of the same worker.
  constexpr int kNumWorkers = 5, kMostExamples = 5;
  constexpr int64_t kSteps = 7;
  const EstimatorConfig alone = NewConfig();
  REQUIRE(TrainAlone(RegressionModel(), alone, kSteps, kNumWorkers, Batches(kNumWorkers * kMostExamples)).ok());
  // The servers take the mean of gradients; replicas weight them by their examples.
  Model model = RegressionModel();
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    absl::StatusOr<ModelSpec> spec = Regression(in);
    const auto examples = static_cast<float>(in.features[0].shape().dim(0));
    spec->loss = compute::Mul(spec->loss, in.graph.Constant(Tensor::Scalar(examples * kNumWorkers / kExamples)));
    return spec;
  };
  EstimatorConfig with_servers = NewConfig();
  with_servers.servers.sync_replicas = true;
  with_servers.batch_size = kMostExamples;
  const Ends ends = TrainWithServers(model, with_servers, {kNumWorkers, 1}, kSteps, Batches(kMostExamples));
  CHECK(ends.status() == absl::OkStatus());
  CheckClose(with_servers, alone, {"w", "bias"});
}

TEST_CASE("One worker with several devices ends with the bits of one process with these") {
  // With 5 micro-batches some devices have no example.
  const int num_replicas = GENERATE(2, 3, 4), micro_batches = GENERATE(1, 5);
  const bool sync = GENERATE(false, true), has_tables = GENERATE(false, true);
  CAPTURE(num_replicas, micro_batches, sync, has_tables);
  const Model model = has_tables ? EmbeddingModel(Optimizer(2)) : RegressionModel(Optimizer(2));
  const EstimatorConfig alone = NewConfig(micro_batches);
  EstimatorConfig with_servers = NewConfig(micro_batches);
  with_servers.servers.sync_replicas = sync;
  with_servers.servers.partitioner = distribute::FixedShardsPartitioner(2).value();
  // Of all examples several devices have gradients of the same rows.
  const InputFn input = Batches(micro_batches == 1 ? kExamples : kBatch);
  constexpr int64_t kSteps = 9;
  REQUIRE(TrainAlone(model, alone, kSteps, num_replicas, input).ok());
  CHECK(TrainWithServers(model, with_servers, {1, 2, num_replicas}, kSteps, input).status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));

  // One process with other devices, and one server with others, continue.
  REQUIRE(TrainAlone(model, with_servers, kSteps + 3, 4, input).ok());
  REQUIRE(TrainWithServers(model, alone, {1, 1, 4}, kSteps + 3, input).status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps + 3) == Checkpoint(alone.model_dir, kSteps + 3)));
}

TEST_CASE("Synchronous workers with several devices make the steps of all of them") {
  const bool has_tables = GENERATE(false, true);
  CAPTURE(has_tables);
  constexpr int kNumWorkers = 2, kDevices = 2;
  constexpr int64_t kSteps = 7;
  const Model model = has_tables ? EmbeddingModel(Optimizer(2)) : RegressionModel(Optimizer(2));
  const EstimatorConfig alone = NewConfig();
  EstimatorConfig with_servers = NewConfig();
  with_servers.servers.sync_replicas = true;
  REQUIRE(TrainAlone(model, alone, kSteps, kNumWorkers * kDevices, Batches(kNumWorkers * kBatch)).ok());
  CHECK(TrainWithServers(model, with_servers, {kNumWorkers, 2, kDevices}, kSteps).status() == absl::OkStatus());
  CheckClose(with_servers, alone,
             has_tables ? std::vector<std::string>{"users", "items", "w"} : std::vector<std::string>{"w", "bias"});
}

}  // namespace
}  // namespace official::train
