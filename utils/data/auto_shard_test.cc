// What the workers read of a pipeline. Expected values and texts are what TensorFlow 2.21 printed, unless marked as
// ours.

#include "utils/data/auto_shard.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

namespace official::data {
namespace {

using Catch::Matchers::StartsWith;
using compute::DType;
using compute::Tensor;
using Numbers = std::vector<int64_t>;

DatasetPtr Range(int64_t first, int64_t count) {
  Tensor numbers(DType::kInt64, {count});
  std::iota(numbers.data<int64_t>(), numbers.data<int64_t>() + count, first);
  return TensorSlices({{"", numbers}}, {});
}

// A source with files of so many numbers: those of file f begin with 100 f.
class Files : public FileDataset {
 public:
  explicit Files(std::vector<std::pair<int64_t, int64_t>> files) : files_(std::move(files)) {
    for (const auto& [first, count] : files_) {
      for (int64_t i = 0; i < count; ++i) numbers_.push_back(first + i);
    }
  }
  const ElementSpec& spec() const override { return spec_; }
  int64_t num_examples() const override { return static_cast<int64_t>(numbers_.size()); }
  absl::Status Read(int64_t, int64_t index, const Example& out) const override {
    *out.features[0].data<int64_t>() = numbers_[index];
    return absl::OkStatus();
  }
  int num_files() const override { return static_cast<int>(files_.size()); }
  absl::StatusOr<DatasetPtr> ShardFiles(int num_shards, int index) const override {
    std::vector<std::pair<int64_t, int64_t>> own;
    for (int f = index; f < num_files(); f += num_shards) own.push_back(files_[f]);
    return std::make_shared<Files>(std::move(own));
  }

 private:
  const ElementSpec spec_ = {.features = {{"", {DType::kInt64, {}}}}, .labels = {}};
  const std::vector<std::pair<int64_t, int64_t>> files_;  // the first number and the count of each
  Numbers numbers_;
};

DatasetPtr ThreeFiles() {
  return std::make_shared<Files>(std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {100, 1}, {200, 2}});
}

DatasetPtr Negated(const DatasetPtr& input) {
  return Map(input, input->spec(), /*seed=*/1, [](const Example& in, Random&, const Example& out) {
    *out.features[0].data<int64_t>() = -*in.features[0].data<int64_t>();
    return absl::OkStatus();
  });
}

Numbers All(const Dataset& dataset, int64_t epoch = 0) {
  Numbers numbers;
  const Example example = MakeExample(dataset.spec());
  for (int64_t i = 0; i < dataset.num_examples(); ++i) {
    REQUIRE(dataset.Read(epoch, i, example).ok());
    numbers.push_back(*example.features[0].data<int64_t>());
  }
  return numbers;
}

TEST_CASE("A shard has every n-th example") {
  CHECK(All(*Shard(Range(0, 10), 3, 0).value()) == Numbers{0, 3, 6, 9});
  CHECK(All(*Shard(Range(0, 10), 3, 1).value()) == Numbers{1, 4, 7});
  CHECK(All(*Shard(Range(0, 10), 3, 2).value()) == Numbers{2, 5, 8});
  CHECK(All(*Shard(Range(0, 1), 3, 2).value()).empty());
  for (const int index : {2, -1}) {
    CHECK(
        Shard(Range(0, 4), 2, index).status() ==
        absl::InvalidArgumentError("Index must be between 0 and 1 (currently index = " + std::to_string(index) + ")."));
  }
  CHECK(Shard(Range(0, 4), 0, 0).status() ==
        absl::InvalidArgumentError("Number of shards must be greater than zero (currently num_shards = 0)."));
}

TEST_CASE("A worker reads every n-th file, below maps and shuffles") {
  CHECK(All(*ShardByFile(ThreeFiles(), 2, 0).value()) == Numbers{0, 1, 2, 200, 201});
  CHECK(All(*ShardByFile(ThreeFiles(), 2, 1).value()) == Numbers{100});
  CHECK(All(*ShardByFile(ThreeFiles(), 3, 2).value()) == Numbers{200, 201});
  CHECK(All(*ShardByFile(Negated(ThreeFiles()), 2, 1).value()) == Numbers{-100});
  // Ours: the order of a shuffled shard is that of shuffling its files alone.
  const DatasetPtr own = ShardByFile(ThreeFiles(), 2, 0).value();
  const DatasetPtr shuffled = ShardByFile(Shuffle(Negated(ThreeFiles()), 7), 2, 0).value();
  CHECK(All(*shuffled, 1) == All(*Shuffle(Negated(own), 7), 1));
  CHECK(All(*shuffled, 1) != All(*shuffled, 2));
}

TEST_CASE("What cannot be divided by files") {
  CHECK(absl::IsNotFound(ShardByFile(Shuffle(Range(0, 4), 1), 2, 0).status()));
  CHECK_THAT(std::string(ShardByFile(Range(0, 4), 2, 0).status().message()),
             StartsWith("Found an unshardable source dataset"));
  const absl::Status few = ShardByFile(Negated(ThreeFiles()), 4, 0).status();
  CHECK(absl::IsInvalidArgument(few));
  CHECK_THAT(std::string(few.message()),
             StartsWith("Could not apply FILE based sharding: the dataset only has 3 file(s), which is not enough for "
                        "the required 4 shards/workers. If you are using datasets with distribution strategy, "
                        "consider setting the auto sharding policy to either DATA or OFF"));
}

TEST_CASE("A hint becomes the shard of the worker, wherever it stands") {
  const DatasetPtr hinted = Negated(Shard(Range(0, 10), kShardHint, kShardHint).value());
  CHECK(All(*hinted).size() == 10);
  CHECK(All(*ShardByHint(hinted, 2, 0).value()) == Numbers{0, -2, -4, -6, -8});
  CHECK(All(*ShardByHint(hinted, 2, 1).value()) == Numbers{-1, -3, -5, -7, -9});
  const DatasetPtr other = Shard(Range(0, 10), 2, 1).value();
  CHECK(All(*ShardByHint(other, 2, 0).value()) == Numbers{1, 3, 5, 7, 9});
  CHECK(All(*ShardByHint(Range(0, 3), 2, 1).value()) == Numbers{0, 1, 2});
  CHECK(CheckNoShardHint(Negated(other)).ok());
  const absl::Status left = CheckNoShardHint(hinted);
  CHECK(absl::IsFailedPrecondition(left));
  CHECK_THAT(std::string(left.message()), StartsWith("`tf.data.Dataset.shard(SHARD_HINT, ...)` can only be used in"));
}

}  // namespace
}  // namespace official::data
