#include "official/transformer/prepare/wmt.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "utils/data/download.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

namespace official::transformer {
namespace {

using Catch::Contains;

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/wmt", ++number);
    REQUIRE(files::MakeDirectories(directory_ + "/raw").ok());
  }

 protected:
  void Write(const std::string& name, absl::string_view contents) const {
    std::filesystem::create_directories(std::filesystem::path(Raw(name)).parent_path());
    REQUIRE(files::WriteFileAtomically(Raw(name), contents).ok());
  }
  std::string Raw(const std::string& name) const { return directory_ + "/raw/" + name; }
  std::string Read(const std::string& name) const { return files::ReadFile(Raw(name), 1 << 20).value(); }
  // Makes raw/<name>, by tar itself, of a directory with two texts and another one; nobody answers at its address.
  WmtArchive Archive(const std::string& name, std::vector<std::string> wanted) const {
    const std::string command = absl::StrCat(
        "cd ", directory_, " && mkdir -p t/deep && echo hello > t/deep/a.en && echo hallo > t/deep/a.de && ",
        "seq 300000 > t/other && tar czf raw/", name, " t/other t/deep");
    REQUIRE(std::system(command.c_str()) == 0);
    return {.url = "http://127.0.0.1:1/" + name,
            .num_bytes = 1,
            .sha256 = data::Sha256OfFile(Raw(name)).value(),
            .files = std::move(wanted)};
  }
  absl::Status Download(const WmtArchive& archive) const { return DownloadText(directory_ + "/raw", {archive}); }

  std::string directory_;
};

TEST_CASE_METHOD(Fixture, "Texts are unpacked from an archive at hand, which then goes") {
  const WmtArchive archive = Archive("x.tgz", {"a.en", "a.de"});
  logs::CapturedTasks log;
  const absl::Status status = Download(archive);
  INFO(status);
  REQUIRE(status.ok());
  CHECK_THAT(log.Text(), Contains("verifying x.tgz 100% [") && Contains("unpacking x.tgz, "));
  CHECK(Read("a.en") == "hello\n");
  CHECK(Read("a.de") == "hallo\n");
  CHECK(files::ListDirectory(directory_ + "/raw").value() == std::vector<std::string>{"a.de", "a.en"});
}

TEST_CASE_METHOD(Fixture, "Texts that are there are found, and need no archive") {
  Write("one/two/three/four/five/a.en", "x");
  Write("a.de", "y");
  Write("one/a.de", "z");
  CHECK(Download({.url = "http://127.0.0.1:1/x.tgz", .num_bytes = 1, .sha256 = "", .files = {"a.en", "a.de"}}).ok());
  CHECK(LocateText(directory_ + "/raw", {"a.en", "a.de", "none"}) ==
        std::vector<std::string>{Raw("one/two/three/four/five/a.en"), Raw("a.de"), Raw("none")});
}

TEST_CASE_METHOD(Fixture, "Archives of another directory are used and stay") {
  const WmtArchive archive = Archive("x.tgz", {"a.en", "a.de"});
  const std::string from_dir = directory_ + "/usb", raw_dir = directory_ + "/new/raw";
  const absl::Status missing = DownloadText(raw_dir, {archive}, from_dir);
  CHECK(absl::IsNotFound(missing));
  CHECK_THAT(std::string(missing.message()),
             Contains("there is no " + from_dir + "/x.tgz; it should be a copy of http://127.0.0.1:1/x.tgz"));
  CHECK_FALSE(files::Exists(raw_dir));
  REQUIRE(files::MakeDirectories(from_dir).ok());
  std::filesystem::rename(Raw("x.tgz"), from_dir + "/x.tgz");
  REQUIRE(DownloadText(raw_dir, {archive}, from_dir).ok());
  CHECK(files::ReadFile(raw_dir + "/a.de", 100).value() == "hallo\n");
  CHECK(files::Exists(from_dir + "/x.tgz"));
}

TEST_CASE_METHOD(Fixture, "What is missing or another archive is refused") {
  CHECK(absl::IsUnavailable(Download(
      {.url = "http://127.0.0.1:1/x.tgz", .num_bytes = 1, .sha256 = std::string(64, '0'), .files = {"a.en"}})));
  const absl::Status lacks = Download(Archive("x.tgz", {"a.en", "b.en"}));
  CHECK(absl::IsDataLoss(lacks));
  CHECK(lacks.message() == Raw("x.tgz") + " is missing b.en");
  WmtArchive other = Archive("y.tgz", {"b.en"});
  other.sha256 = std::string(64, '0');
  const absl::Status status = Download(other);
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains("y.tgz is not what is published at http://127.0.0.1:1/y.tgz"));
}

}  // namespace
}  // namespace official::transformer
