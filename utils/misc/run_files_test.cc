#include "utils/misc/run_files.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::misc {
namespace {

std::string NewDirectory(const std::string& name) {
  const char* const parent = std::getenv("TEST_TMPDIR");
  const std::string path = files::JoinPath(parent == nullptr ? "/tmp" : parent, absl::StrCat("run_files_", name));
  std::filesystem::remove_all(path);
  REQUIRE(files::MakeDirectories(path).ok());
  return path;
}

void Write(const std::string& path, const std::string& text) { REQUIRE(files::WriteFileAtomically(path, text).ok()); }

std::string Read(const std::string& path) { return files::ReadFile(path, 1000).value(); }

// A file that is written again has another inode.
ino_t InodeOf(const std::string& path) {
  struct stat info = {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_ino;
}

TEST_CASE("The files of a run are copied as far as they are there, and again only if they differ") {
  const std::string from = NewDirectory("from"), to = NewDirectory("to");
  REQUIRE(CopyRunFiles(from, to).ok());
  CHECK(files::ListDirectory(to).value().empty());

  Write(from + "/flags.txt", "--seed=1\n");
  Write(from + "/metric.log", "{}\n");
  REQUIRE(CopyRunFiles(from, to).ok());
  CHECK(files::ListDirectory(to).value() == std::vector<std::string>{"flags.txt"});

  Write(from + "/labels.txt", "");  // also one without contents
  const ino_t flags = InodeOf(to + "/flags.txt");
  REQUIRE(CopyRunFiles(from, to).ok());
  CHECK(InodeOf(to + "/flags.txt") == flags);
  CHECK(Read(to + "/labels.txt").empty());

  Write(from + "/flags.txt", "--seed=2\n");
  REQUIRE(CopyRunFiles(from, to).ok());
  CHECK(Read(to + "/flags.txt") == "--seed=2\n");
}

TEST_CASE("A file of a run that cannot be read is not left out of the copy silently") {
  const std::string from = NewDirectory("large"), to = NewDirectory("empty");
  Write(from + "/flags.txt", "");
  std::filesystem::resize_file(from + "/flags.txt", (16 << 20) + 1);
  CHECK(absl::IsDataLoss(CopyRunFiles(from, to)));
  CHECK(files::ListDirectory(to).value().empty());
}

}  // namespace
}  // namespace official::misc
