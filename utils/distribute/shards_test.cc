// The partitioners of tf.distribute.experimental.partitioners. Expected values are by their definitions.

#include "utils/distribute/shards.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace official::distribute {
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

TEST_CASE("A partitioner has a text") {
  const auto shards = [](absl::string_view text, std::vector<int64_t> dims) {
    return ParsePartitioner(text, /*num_servers=*/3).value()(Floats(std::move(dims)));
  };
  CHECK(shards("fixed_size:4", {10, 2}) == 4);
  CHECK(shards("min_size:20", {10, 10}) == 3);  // 400 bytes, on 3 servers
  CHECK(shards("min_size:20:7", {10, 10}) == 7);
  CHECK(shards("min_size:201", {10, 10}) == 2);
  CHECK(shards("max_size:80", {10, 10}) == 5);  // 2 rows of 40 bytes
  CHECK(shards("max_size:80:4", {10, 10}) == 4);
  for (const char* const text :
       {"", "4", "fixed_size", "fixed_size:", "fixed_size:0", "fixed_size:-2", "fixed_size:2:3", "min_size:x",
        "min_size:1:0", "max_size:1:2:3", "fixed_size:99999999999999999999"}) {
    CAPTURE(text);
    const absl::Status refused = ParsePartitioner(text, 2).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(refused.message() ==
          "needs fixed_size:SHARDS, min_size:BYTES[:MAX_SHARDS] or max_size:BYTES[:MAX_SHARDS], "
          "with numbers of at least 1, such as fixed_size:2");
  }
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

TEST_CASE("Shards are what was added as one, and what an optimizer adds to it") {
  CHECK(NameOfShard("dense/kernel", 12) == "dense/kernel/part_12");
  ShardNames names;
  names.Add("dense/kernel/part_12", {"dense/kernel", 12});
  names.Add("a/part_7/b", {"a/part_7/b", 0});  // which is called so, and whole
  const auto find = [&](const char* name, std::vector<int64_t> dims = {2}) {
    return names.Find({name, Floats(std::move(dims)), {}});
  };
  CHECK(find("dense/kernel/part_12") == ShardName{"dense/kernel", 12});
  CHECK(find("dense/kernel/part_12/Adam") == ShardName{"dense/kernel/Adam", 12});
  CHECK(find("dense/kernel/part_12/Adam/x") == ShardName{"dense/kernel/Adam/x", 12});
  CHECK(find("dense/kernel/part_12/count", {}) == ShardName{"dense/kernel/part_12/count", 0});
  CHECK(find("dense/kernel") == ShardName{"dense/kernel", 0});
  CHECK(find("dense/kernel/part_1") == ShardName{"dense/kernel/part_1", 0});
  CHECK(find("a/part_7/b") == ShardName{"a/part_7/b", 0});
  CHECK(find("a/part_7/b/Adam") == ShardName{"a/part_7/b/Adam", 0});
  CHECK(find("train/dense/kernel/part_12/Adam") == ShardName{"train/dense/kernel/Adam", 12});
  CHECK(find("dense/kernel/part_12x/Adam") == ShardName{"dense/kernel/part_12x/Adam", 0});
  CHECK(find("train/a/part_7/b/Adam") == ShardName{"train/a/part_7/b/Adam", 0});
}

}  // namespace
}  // namespace official::distribute
