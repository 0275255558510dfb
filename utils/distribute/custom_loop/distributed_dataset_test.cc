// How batches reach the replicas. Expected values marked [ran] are what TensorFlow 2.21 printed.

#include "utils/distribute/custom_loop/distributed_dataset.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/data/auto_shard.h"
#include "utils/data/dataset.h"
#include "utils/data/records/tf_record.h"
#include "utils/data/records/tf_record_dataset.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/logs/captured_log.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using compute::Tensor;
using Sizes = std::vector<int64_t>;
using Floats = std::vector<float>;
// [step][local replica]
using Seen = std::vector<std::vector<Floats>>;

// Batches of the numbers from `first` on, [n], with themselves as labels.
data::BatchSourcePtr Numbers(int first, int count, int64_t batch_size) {
  Tensor numbers(compute::DType::kFloat32, {count});
  std::iota(numbers.data<float>(), numbers.data<float>() + count, static_cast<float>(first));
  return data::Batches(data::TensorSlices({{"", numbers}}, {{"", numbers}}), {.batch_size = batch_size}).value();
}

// The features of each local replica.
std::vector<Floats> Features(const DistributedBatch& batch) {
  std::vector<Floats> features;
  for (const Tensor& tensor : batch.features[0].values) {
    features.emplace_back(tensor.flat<float>().begin(), tensor.flat<float>().end());
  }
  return features;
}

Seen All(DistributedDataset& dataset) {
  Seen seen;
  for (auto batch = dataset.Next().value(); batch; batch = dataset.Next().value()) {
    seen.push_back(Features(*batch));
    CHECK(batch->Arguments().size() == 2);
    CHECK(batch->labels[0].values[0].type() == batch->features[0].values[0].type());
  }
  return seen;
}

// What each worker, with so many replicas, sees of a dataset, [worker].
template <typename F>
std::vector<Seen> OnWorkers(const std::vector<compute::Share>& split, const F& make) {
  const auto exchanges = MakeMemoryExchanges(static_cast<int>(split.size()));
  std::vector<Seen> seen(split.size());
  std::vector<std::unique_ptr<Strategy>> strategies(split.size());
  std::vector<std::thread> threads;
  for (size_t w = 0; w < split.size(); ++w) {
    threads.emplace_back([&, w] {
      StrategyOptions options{.num_replicas = static_cast<int>(split.back().end), .num_threads = 1};
      options.workers = {exchanges[w].get(), split};
      strategies[w] = Strategy::Create(options).value();
      const DistributedDatasetPtr dataset = make(*strategies[w]);
      for (auto batch = dataset->Next().value(); batch; batch = dataset->Next().value()) {
        seen[w].push_back(Features(*batch));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

TEST_CASE("A global batch is divided among the replicas") {
  CHECK(ReplicaBatchSizes(8, 8, 3, 3, 0) == Sizes{3, 3, 2});  // [ran]
  CHECK(ReplicaBatchSizes(7, 8, 3, 3, 1) == Sizes{3, 3, 1});  // [ran] a last batch
  CHECK(ReplicaBatchSizes(2, 8, 3, 3, 1) == Sizes{1, 1, 0});  // [ran]
  CHECK(ReplicaBatchSizes(10, 10, 4, 4, 5) == Sizes{3, 3, 2, 2});
  CHECK(ReplicaBatchSizes(2, 2, 4, 4, 0) == Sizes{1, 1, 0, 0});
  // [ran] G = 7, two workers with two replicas: [2,2,2,1] and [2,1,2,2], two of them in each step.
  CHECK(ReplicaBatchSizes(7, 7, 4, 2, 0) == Sizes{2, 2, 2, 1});
  CHECK(ReplicaBatchSizes(7, 7, 4, 2, 1) == Sizes{2, 1, 2, 2});
  // [ran] G = 5, three workers with one: [2,2,1], [2,1,2], [1,2,2], one of them in each step.
  CHECK(ReplicaBatchSizes(5, 5, 3, 1, 0) == Sizes{2, 2, 1});
  CHECK(ReplicaBatchSizes(5, 5, 3, 1, 1) == Sizes{2, 1, 2});
  CHECK(ReplicaBatchSizes(5, 5, 3, 1, 2) == Sizes{1, 2, 2});
}

TEST_CASE("A distributed data set has the batches of the replicas, some of them empty") {
  const auto strategy = Strategy::Create({.num_replicas = 3, .num_threads = 1}).value();
  const auto dataset = DistributeDataset(*strategy, Numbers(0, 10, 8), 8).value();
  CHECK(All(*dataset) == Seen{{{0, 1, 2}, {3, 4, 5}, {6, 7}}, {{8}, {9}, {}}});
  CHECK(DistributeDataset(*strategy, Numbers(0, 10, 8), 0).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Batches stay valid while later ones are read") {
  const auto strategy = Strategy::Create({.num_replicas = 2, .num_threads = 1}).value();
  const auto dataset = DistributeDataset(*strategy, Numbers(0, 8, 4), 4).value();
  const DistributedBatch first = *dataset->Next().value();
  while (dataset->Next().value()) continue;
  CHECK(first.features[0].values[1].flat<float>()[0] == 2);
}

TEST_CASE("Each worker has its part of every global batch") {
  // [ran] the elements 0, ..., 6, 100, 101, 102 with a global batch of 4, sharded by DATA; here the last are 7, 8, 9.
  const std::vector<Seen> seen = OnWorkers(
      {{0, 1}, {1, 2}}, [](Strategy& strategy) { return DistributeDataset(strategy, Numbers(0, 10, 4), 4).value(); });
  CHECK(seen[0] == Seen{{{0, 1}}, {{4, 5}}, {{8}}});
  CHECK(seen[1] == Seen{{{2, 3}}, {{6, 7}}, {{9}}});
}

TEST_CASE("Workers need as many replicas each to divide a data set") {
  const auto exchanges = MakeMemoryExchanges(2);
  StrategyOptions options{.num_replicas = 3, .num_threads = 1};
  options.workers = {exchanges[0].get(), {{0, 1}, {1, 3}}};
  const auto strategy = Strategy::Create(options).value();
  CHECK_THAT(
      std::string(DistributeDataset(*strategy, Numbers(0, 10, 4), 4).status().message()),
      Contains("the workers have different numbers of replicas, 1 and 2; to divide a data set among them, give all"));
}

TEST_CASE("A data set of a function gives its batches to the replicas in turn") {
  const auto strategy = Strategy::Create({.num_replicas = 2, .num_threads = 1}).value();
  const auto dataset =
      DistributeDatasetsFromFunction(*strategy, [](const InputContext& context) {
        CHECK(context.num_input_pipelines == 1);
        CHECK(context.input_pipeline_id == 0);
        return absl::StatusOr<data::BatchSourcePtr>(Numbers(0, 5, context.GetPerReplicaBatchSize(4).value()));
      }).value();
  CHECK(All(*dataset) == Seen{{{0, 1}, {2, 3}}, {{4}, {}}});
  const InputContext context = {.num_input_pipelines = 1, .input_pipeline_id = 0, .num_replicas_in_sync = 2};
  CHECK(context.GetPerReplicaBatchSize(5).status().message() ==
        "The `global_batch_size` 5 is not divisible by `num_replicas_in_sync` 2 ");
}

TEST_CASE("A worker whose data have ended goes on with empty batches until all have ended") {
  // [ran] two files with 7 and 3 records, one for each worker.
  const std::vector<Seen> seen = OnWorkers({{0, 1}, {1, 2}}, [](Strategy& strategy) {
    return DistributeDatasetsFromFunction(strategy,
                                          [](const InputContext& context) {
                                            return absl::StatusOr<data::BatchSourcePtr>(
                                                context.input_pipeline_id == 0 ? Numbers(0, 7, 2) : Numbers(100, 3, 2));
                                          })
        .value();
  });
  CHECK(seen[0] == Seen{{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6}}});
  CHECK(seen[1] == Seen{{{100, 101}}, {{102}}, {{}}, {{}}});
}

// Files with so many numbers, those of file f from 100 f on.
data::DatasetPtr Files(const std::vector<int>& counts) {
  std::vector<std::string> paths;
  for (size_t f = 0; f < counts.size(); ++f) {
    paths.push_back(absl::StrCat(std::getenv("TEST_TMPDIR"), "/numbers-", f));
    const auto writer = data::TFRecordWriter::Open(paths.back()).value();
    for (int i = 0; i < counts[f]; ++i) REQUIRE(writer->Write(absl::StrCat(100 * f + i)).ok());
    REQUIRE(writer->Close().ok());
  }
  return data::TFRecordDataset(paths, {.features = {{"", {compute::DType::kFloat32, {}}}}, .labels = {}},
                               [](absl::string_view record, const data::Example& out) {
                                 const bool read = absl::SimpleAtof(record, out.features[0].data<float>());
                                 return read ? absl::OkStatus() : absl::DataLossError("no number");
                               })
      .value();
}

data::DatasetPtr Range(int count) {
  Tensor numbers(compute::DType::kFloat32, {count});
  std::iota(numbers.data<float>(), numbers.data<float>() + count, 0.0f);
  return data::TensorSlices({{"", numbers}}, {});
}

// What each of two workers, or one, sees by a policy, [worker].
std::vector<Seen> Sharded(data::AutoShardPolicy policy, const data::DatasetPtr& dataset,
                          const data::BatchOptions& batches, const std::vector<compute::Share>& split) {
  return OnWorkers(split, [&](Strategy& strategy) {
    return DistributeDataset(strategy, dataset, batches, {.auto_shard_policy = policy}).value();
  });
}

TEST_CASE("Each policy divides two files of 7 and 3 records as TensorFlow does") {
  using enum data::AutoShardPolicy;
  const data::DatasetPtr files = Files({7, 3});
  const std::vector<compute::Share> two = {{0, 1}, {1, 2}};
  const data::BatchOptions batches = {.batch_size = 4};
  for (const auto policy : {kFile, kAuto}) {
    const std::vector<Seen> seen = Sharded(policy, files, batches, two);
    CHECK(seen[0] == Seen{{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6}}});  // [ran]
    CHECK(seen[1] == Seen{{{100, 101}}, {{102}}, {{}}, {{}}});    // [ran]
  }
  const std::vector<Seen> data = Sharded(kData, files, batches, two);
  CHECK(data[0] == Seen{{{0, 1}}, {{4, 5}}, {{101}}});    // [ran]
  CHECK(data[1] == Seen{{{2, 3}}, {{6, 100}}, {{102}}});  // [ran]
  const std::vector<Seen> off = Sharded(kOff, files, batches, two);
  CHECK(off[0] == Seen{{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6, 100}}, {{101, 102}}});  // [ran]
  CHECK(off[1] == off[0]);                                                        // [ran]
}

TEST_CASE("A worker goes through its files alone, across epochs, in batches of the sizes of its replicas") {
  using enum data::AutoShardPolicy;
  const data::DatasetPtr files = Files({7, 3});
  const data::BatchOptions batches = {.batch_size = 5, .end_epoch = 2};
  // [ran] the sizes of worker 0 are 3, 2, those of worker 1 are 2, 3.
  const std::vector<Seen> one_each = Sharded(kFile, files, batches, {{0, 1}, {1, 2}});
  CHECK(one_each[0] == Seen{{{0, 1, 2}}, {{3, 4}}, {{5, 6, 0}}, {{1, 2}}, {{3, 4, 5}}, {{6}}});
  CHECK(one_each[1] == Seen{{{100, 101}}, {{102, 100, 101}}, {{102}}, {{}}, {{}}, {{}}});
  // [ran] sizes 2, 1, 1, 1 and 1, 1, 2, 1, of two replicas in each step.
  const std::vector<Seen> two_each = Sharded(kFile, files, batches, {{0, 2}, {2, 4}});
  CHECK(two_each[0] == Seen{{{0, 1}, {2}}, {{3}, {4}}, {{5, 6}, {0}}, {{1}, {2}}, {{3, 4}, {5}}, {{6}, {}}});
  CHECK(two_each[1] == Seen{{{100}, {101}}, {{102, 100}, {101}}, {{102}, {}}, {{}, {}}, {{}, {}}, {{}, {}}});
  // [ran] one process.
  CHECK(Sharded(kOff, Range(10), {.batch_size = 8}, {{0, 3}})[0] ==
        Seen{{{0, 1, 2}, {3, 4, 5}, {6, 7}}, {{8, 9}, {}, {}}});
  CHECK(Sharded(kAuto, Range(10), {.batch_size = 8}, {{0, 3}})[0] ==
        Seen{{{0, 1, 2}, {3, 4, 5}, {6, 7}}, {{8}, {9}, {}}});
  CHECK(Sharded(kFile, Range(3), {.batch_size = 2}, {{0, 1}})[0] == Seen{{{0, 1}}, {{2}}});
}

TEST_CASE("A replica whose part of a batch is empty has not ended") {
  // Worker 0 has sizes 1, 0, and ends first: then worker 1 has sizes 1, 0, 1, ....
  const std::vector<Seen> seen =
      Sharded(data::AutoShardPolicy::kFile, Files({1, 3}), {.batch_size = 1}, {{0, 1}, {1, 2}});
  CHECK(seen[0] == Seen{{{0}}, {{}}, {{}}, {{}}, {{}}, {{}}});
  CHECK(seen[1] == Seen{{{}}, {{100}}, {{}}, {{101}}, {{}}, {{102}}});
}

// Expected: as a worker whose data have ended.
TEST_CASE("A worker whose part of the data is empty has empty batches until those of all have ended") {
  const data::DatasetPtr hinted = data::Shard(Range(1), data::kShardHint, data::kShardHint).value();
  const std::vector<Seen> seen =
      Sharded(data::AutoShardPolicy::kHint, hinted, {.batch_size = 2, .end_epoch = 2}, {{0, 1}, {1, 2}});
  CHECK(seen[0] == Seen{{{0}}, {{0}}});
  CHECK(seen[1] == Seen{{{}}, {{}}});
}

TEST_CASE("A source without files is divided as DATA by AUTO, with a warning, and not by FILE") {
  using enum data::AutoShardPolicy;
  const std::vector<compute::Share> two = {{0, 1}, {1, 2}};
  std::string log;
  {
    logs::CapturedLog captured(logs::LogFormat::kSimple);
    const std::vector<Seen> seen = Sharded(kAuto, Range(10), {.batch_size = 4}, two);
    log = captured.Text();
    CHECK(seen[0] == Seen{{{0, 1}}, {{4, 5}}, {{8}}});  // [ran]
    CHECK(seen[1] == Seen{{{2, 3}}, {{6, 7}}, {{9}}});  // [ran]
  }
  CHECK_THAT(log, Contains("AUTO sharding policy will apply DATA sharding policy as it failed to apply FILE sharding "
                           "policy because of the following reason: Found an unshardable source dataset"));
  const auto status_of = [&](const data::DatasetPtr& dataset, data::AutoShardPolicy policy) {
    const auto exchanges = MakeMemoryExchanges(2);
    StrategyOptions options{.num_replicas = 2, .num_threads = 1};
    options.workers = {exchanges[0].get(), two};
    const auto strategy = Strategy::Create(options).value();
    return DistributeDataset(*strategy, dataset, {.batch_size = 4}, {.auto_shard_policy = policy}).status();
  };
  CHECK(absl::IsNotFound(status_of(Range(10), kFile)));
  for (const auto policy : {kFile, kAuto}) {  // [ran]
    CHECK_THAT(std::string(status_of(Files({7}), policy).message()),
               Contains("the dataset only has 1 file(s), which is not enough for the required 2 shards/workers"));
  }
  const data::DatasetPtr hinted = data::Shard(Range(10), data::kShardHint, data::kShardHint).value();
  for (const auto policy : {kData, kOff, kFile, kAuto}) {
    CHECK(absl::IsFailedPrecondition(status_of(hinted, policy)));  // [ran]
  }
  CHECK(status_of(hinted, kHint).ok());
}

TEST_CASE("HINT divides the examples where the placeholder stands") {
  const std::vector<Seen> seen =
      Sharded(data::AutoShardPolicy::kHint, data::Shard(Range(10), data::kShardHint, data::kShardHint).value(),
              {.batch_size = 4}, {{0, 1}, {1, 2}});
  CHECK(seen[0] == Seen{{{0, 2}}, {{4, 6}}, {{8}}});  // [ran]
  CHECK(seen[1] == Seen{{{1, 3}}, {{5, 7}}, {{9}}});  // [ran]
}

}  // namespace
}  // namespace official::distribute
