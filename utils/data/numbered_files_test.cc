#include "utils/data/numbered_files.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace official::data {
namespace {

using Names = std::vector<std::string>;

// A new directory with empty files of these names.
std::string Directory(const Names& names) {
  static int number = 0;
  const std::string directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/numbered_files", ++number);
  std::filesystem::create_directories(directory);
  for (const std::string& name : names) std::ofstream(directory + "/" + name);
  return directory;
}

// The names of the files of sets "train", or why they are refused, both without the directory.
struct Found {
  Names names;
  std::string refused;
};
Found Find(const Names& names, int max_begin) {
  const std::string directory = Directory(names);
  const absl::StatusOr<Names> paths =
      FindNumberedFiles(directory, max_begin, [](absl::string_view set) { return absl::StrContains(set, "train"); });
  Found found;
  if (paths.ok()) {
    for (const std::string& path : *paths) found.names.push_back(path.substr(directory.size() + 1));
  } else {
    CHECK(absl::IsDataLoss(paths.status()));
    found.refused = std::string(paths.status().message()).substr(directory.size() + 1);
  }
  return found;
}

TEST_CASE("The files of a set are found in order, among others") {
  const Names set = {"train-00000-of-00002", "train-00001-of-00002"};
  for (const int max_begin : {0, 1}) {
    CHECK(Find({"train-00001-of-00002", "train-00000-of-00002", "validation-00000-of-00001", "train-1-of-2",
                "train-00000-of-00002.incomplete-01234567", "train-00002-of-00002x", "train-00002-to-00002",
                "train--0001-of-00002", "train.en", "labels.txt"},
               max_begin)
              .names == set);
  }
  CHECK(NumberedName("train", 3, 1024) == "train-00003-of-01024");
  CHECK(Find({"en-fr-train-00000-of-00001"}, 0).names == Names{"en-fr-train-00000-of-00001"});
}

TEST_CASE("Without such files, or their directory, none are found") {
  CHECK(Find({"validation-00000-of-00001"}, 0).names.empty());
  CHECK(FindNumberedFiles(Directory({}) + "/none", 0, [](auto) { return true; }).value().empty());
}

TEST_CASE("Files are counted from 0 or, where that is allowed, from 1") {
  const Names set = {"a-train-00001-of-00002", "a-train-00002-of-00002"};
  CHECK(Find(set, 1).names == set);
  CHECK(Find(set, 0).refused == "is missing a-train-00000-of-00002: it has 1 of 2 files");
}

TEST_CASE("An incomplete set, files in addition and two sets are refused") {
  CHECK(Find({"train-00000-of-00003", "train-00002-of-00003"}, 0).refused ==
        "is missing train-00001-of-00003: it has 2 of 3 files");
  CHECK(Find({"train-00001-of-00003", "train-00003-of-00003"}, 1).refused ==
        "is missing train-00002-of-00003: it has 2 of 3 files");
  CHECK(Find({"train-00002-of-00002"}, 1).refused == "is missing train-00001-of-00002: it has 1 of 2 files");
  for (const int max_begin : {0, 1}) {
    CHECK(Find({"train-00000-of-00002", "train-00001-of-00002", "train-00002-of-00002"}, max_begin).refused ==
          "holds train-00002-of-00002 in addition to the 2 files that its name counts");
    CHECK(Find({"train-00000-of-00000"}, max_begin).refused ==
          "holds train-00000-of-00000 in addition to the 0 files that its name counts");
    CHECK(Find({"train-00000-of-00001", "train-00000-of-00002"}, max_begin).refused ==
          "holds two data sets, train-00000-of-00001 and train-00000-of-00002; move one of them away");
    CHECK(Find({"a-train-00000-of-00001", "b-train-00000-of-00001"}, max_begin).refused ==
          "holds two data sets, a-train-00000-of-00001 and b-train-00000-of-00001; move one of them away");
  }
}

}  // namespace
}  // namespace official::data
