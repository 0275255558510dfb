#include "official/resnet/imagenet/class_names.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

namespace official::resnet {
namespace {

using Catch::Contains;

std::string Directory(const std::string& name) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  REQUIRE(files::MakeDirectories(path).ok());
  return path;
}

TEST_CASE("Names are read as they were written, however many there are") {
  const std::string directory = Directory("names");
  CHECK(FindClassNames(directory).value().empty());
  ClassNames names = {"background", "Great Dane", ""};
  for (int i = 3; i < 5000; ++i) names.push_back(absl::StrCat("class ", i));
  REQUIRE(WriteClassNames(directory, names).ok());
  CHECK(FindClassNames(directory).value() == names);
  CHECK(files::ReadFile(directory + "/labels.txt", 1 << 20).value() == ClassNamesText(names));
}

TEST_CASE("Files that others wrote are read, and empty ones refused") {
  const std::string path = Directory("files") + "/names.txt";
  REQUIRE(files::WriteFileAtomically(path, "background\r\n cat\t\r\ndog").ok());
  CHECK(ReadClassNames(path).value() == ClassNames{"background", "cat", "dog"});
  for (const char* blank : {"", "\n", " \n\r\n\n"}) {
    REQUIRE(files::WriteFileAtomically(path, blank).ok());
    CHECK(absl::IsDataLoss(ReadClassNames(path).status()));
  }
  CHECK(absl::IsNotFound(ReadClassNames(path + ".none").status()));
}

TEST_CASE("Blank lines at the end are no classes") {
  const std::string path = Directory("blank") + "/names.txt";
  const std::string lines = "background\n\ncat\n";  // one inside is the class 1, without a name
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const ClassNames names = {"background", "", "cat"};
  REQUIRE(files::WriteFileAtomically(path, lines).ok());
  CHECK(ReadClassNames(path).value() == names);
  CHECK_THAT(log.Text(), !Contains("blank"));
  const auto [end, number] = GENERATE(table<std::string, int>({{"\n", 1}, {" \t", 1}, {"\r\n \n", 2}}));
  REQUIRE(files::WriteFileAtomically(path, lines + end).ok());
  CHECK(ReadClassNames(path).value() == names);
  CHECK_THAT(log.Text(), Contains(absl::StrCat(path, ": blank lines at the end, which name no class: ", number)));
}

TEST_CASE("Of classes that differ the first is reported") {
  const ClassNames a = {"background", "cat", "dog"};
  CHECK(CheckSameClasses(a, "A", a, "B").ok());
  const auto error = [&](const ClassNames& b) {
    const absl::Status status = CheckSameClasses(a, "A", b, "B");
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK(error({"background", "dog", "cat"}) == "class 1 differs: A names it \"cat\", B names it \"dog\"");
  CHECK(error({"background", "cat"}) == "class 2 differs: A names it \"dog\", B does not have it");
  CHECK(error({"background", "cat", "dog", "emu"}) == "class 3 differs: A does not have it, B names it \"emu\"");
}

}  // namespace
}  // namespace official::resnet
