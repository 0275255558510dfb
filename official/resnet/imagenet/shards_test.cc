#include "official/resnet/imagenet/shards.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace official::resnet {
namespace {

using Catch::Contains;

// A new directory with empty files of these names.
std::string Directory(const std::vector<std::string>& names) {
  static int number = 0;
  const std::string directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/shards", ++number);
  std::filesystem::create_directories(directory);
  for (const std::string& name : names) std::ofstream(directory + "/" + name);
  return directory;
}

TEST_CASE("The files of a split are found in order, among others") {
  const std::string directory =
      Directory({"train-00001-of-00002", "train-00000-of-00002", "validation-00000-of-00001", "train-1-of-2",
                 "train-00000-of-00002.incomplete-01234567", "train-00002-of-00002", "labels.txt"});
  CHECK(FindShards(directory, "train").value() ==
        std::vector<std::string>{directory + "/train-00000-of-00002", directory + "/train-00001-of-00002"});
  CHECK(FindShards(directory, "validation").value().size() == 1);
  CHECK(ShardName("train", 3, 1024) == "train-00003-of-01024");
}

TEST_CASE("Where no file matches, the error says what to do") {
  const std::string directory = Directory({"validation-00000-of-00001"});
  for (const std::string& searched : {directory, directory + "/none"}) {
    const absl::Status status = FindShards(searched, "train").status();
    CHECK(absl::IsNotFound(status));
    CHECK_THAT(std::string(status.message()), Contains(searched + " has no files train-*-of-*") &&
                                                  Contains("imagenet_to_tfrecords_main") &&
                                                  Contains("--use_synthetic_data"));
  }
}

TEST_CASE("An incomplete set and two sets in one directory are refused") {
  const std::string incomplete = Directory({"train-00000-of-00003", "train-00002-of-00003"});
  const absl::Status missing = FindShards(incomplete, "train").status();
  CHECK(absl::IsDataLoss(missing));
  CHECK(missing.message() == incomplete + " is missing train-00001-of-00003: it has 2 of 3 files");
  const absl::Status two = FindShards(Directory({"train-00000-of-00001", "train-00000-of-00002"}), "train").status();
  CHECK(absl::IsDataLoss(two));
  CHECK_THAT(std::string(two.message()), Contains("two data sets, train-00000-of-00001 and train-00000-of-00002"));
}

}  // namespace
}  // namespace official::resnet
