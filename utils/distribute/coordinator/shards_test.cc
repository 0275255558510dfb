// The partitioners of tf.distribute.experimental.partitioners. Expected values are by their definitions.

#include "utils/distribute/coordinator/shards.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace official::coordinator {
namespace {

using compute::DType;
using compute::TensorType;

TensorType Floats(std::vector<int64_t> dims) { return {DType::kFloat32, compute::Shape(dims)}; }

TEST_CASE("Partitioners divide by number and by bytes") {
  const Partitioner fixed = FixedShardsPartitioner(3).value();
  CHECK(fixed(Floats({10, 2})) == 3);
  CHECK(fixed(Floats({2, 10})) == 2);
  CHECK(fixed(Floats({0, 10})) == 1);

  const Partitioner at_least = MinSizePartitioner(/*min_shard_bytes=*/100, /*max_shards=*/4).value();
  CHECK(at_least(Floats({10, 2})) == 1);   // 80 bytes
  CHECK(at_least(Floats({10, 5})) == 2);   // 200
  CHECK(at_least(Floats({10, 6})) == 3);   // 240
  CHECK(at_least(Floats({100, 6})) == 4);  // max_shards
  CHECK(at_least(Floats({2, 600})) == 2);  // rows
  CHECK(MinSizePartitioner().value()(Floats({1000, 1000})) == 1);

  CHECK(MaxSizePartitioner(100).value()(Floats({10, 5})) == 2);   // 5 rows of 20 bytes
  CHECK(MaxSizePartitioner(99).value()(Floats({10, 5})) == 3);    // 4 rows
  CHECK(MaxSizePartitioner(1).value()(Floats({10, 5})) == 10);    // a row
  CHECK(MaxSizePartitioner(1, 4).value()(Floats({10, 5})) == 4);  // max_shards
  CHECK(MaxSizePartitioner(1).value()(Floats({0, 5})) == 1);

  const auto refused = [](absl::string_view argument, int value) {
    return absl::InvalidArgumentError(absl::StrCat("Argument `", argument, "` must be positive. Received: ", value));
  };
  CHECK(FixedShardsPartitioner(0).status() == refused("num_shards", 0));
  CHECK(MinSizePartitioner(0).status() == refused("min_shard_bytes", 0));
  CHECK(MinSizePartitioner(1, 0).status() == refused("max_shards", 0));
  CHECK(MaxSizePartitioner(-1).status() == refused("max_shard_bytes", -1));
}

TEST_CASE("The first shards have one row more") {
  std::vector<int64_t> sizes;
  int64_t end = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const compute::Share rows = RowsOfShard(10, 4, i);
    CHECK(rows.begin == end);
    sizes.push_back(rows.size());
    end = rows.end;
  }
  CHECK(sizes == std::vector<int64_t>{3, 3, 2, 2});
}

TEST_CASE("The names of shards, and of what an optimizer adds to them") {
  const auto parse = [](const char* name, std::vector<int64_t> dims = {2}) {
    const ShardName shard = ParseShardName({name, Floats(std::move(dims)), {}});
    return std::pair(shard.variable, shard.number);
  };
  CHECK(NameOfShard("dense/kernel", 12) == "dense/kernel/part_12");
  CHECK(parse("dense/kernel/part_12") == std::pair<std::string, int>("dense/kernel", 12));
  CHECK(parse("dense/kernel/part_1/Adam") == std::pair<std::string, int>("dense/kernel/Adam", 1));
  CHECK(parse("dense/kernel") == std::pair<std::string, int>("dense/kernel", 0));
  CHECK(parse("dense/part_of") == std::pair<std::string, int>("dense/part_of", 0));
  CHECK(parse("count/part_1", {}) == std::pair<std::string, int>("count/part_1", 0));
}

}  // namespace
}  // namespace official::coordinator
