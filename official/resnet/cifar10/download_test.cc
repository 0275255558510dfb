#include "official/resnet/cifar10/download.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/resnet/cifar10/dataset.h"
#include "utils/data/download.h"
#include "utils/logs/captured_log.h"
#include "utils/logs/log.h"

namespace official::resnet {
namespace {

using Catch::Contains;

// A member of a tar archive, from the specification.
std::string Member(const std::string& name, char type, const std::string& content) {
  std::string header = name;
  header.resize(124, '\0');
  header += absl::StrFormat("%011o", content.size());
  header.resize(156, '\0');
  header += type;
  header.resize(512, '\0');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(bytes.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class Fixture {
 public:
  Fixture() {
    static int number = 0;
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/download", ++number);
    std::filesystem::create_directories(directory_);
    logs::InitLogging({.format = logs::LogFormat::kNone});
  }

 protected:
  // The published archive's members, with `tests` as the test batch.
  static std::string Members(const std::string& tests) {
    std::string tar =
        Member("cifar-10-batches-bin/", '5', "") + Member("cifar-10-batches-bin/readme.html", '0', "<html>");
    for (int i = 1; i <= 5; ++i) {
      tar += Member(absl::StrCat("cifar-10-batches-bin/data_batch_", i, ".bin"), '0', std::string(3073, '\1'));
    }
    return tar + Member("cifar-10-batches-bin/test_batch.bin", '0', tests);
  }
  // An archive of these members, as one at hand.
  Cifar10Source Archive(const std::string& members) const {
    Cifar10Source source{.archive = directory_ + "/archive.tar.gz"};
    std::ofstream(source.archive, std::ios::binary) << Gzip(members);
    source.sha256 = data::Sha256OfFile(source.archive).value();
    return source;
  }
  std::string DataDir() const { return directory_ + "/data"; }
  std::string Path(const std::string& name) const { return absl::StrCat(DataDir(), "/cifar-10-batches-bin/", name); }

  std::string directory_;
};

const std::string kEnd(1024, '\0');

TEST_CASE_METHOD(Fixture, "The data files of an archive at hand are unpacked, and stay") {
  const std::string tests = "\7" + std::string(3072, 'x') + "\3" + std::string(3072, 'y');
  const Cifar10Source source = Archive(Members(tests) + kEnd);
  {
    logs::CapturedTasks log;
    REQUIRE(DownloadCifar10(DataDir(), source).ok());
    CHECK_THAT(log.Text(),
               Contains("verifying archive.tar.gz 100% [") && Contains("unpacking cifar-10-binary.tar.gz, "));
  }
  const Cifar10Split split = LoadCifar10(DataDir(), Cifar10Part::kTest).value();
  CHECK(split.labels.data<int32_t>()[0] == 7);
  CHECK(split.labels.data<int32_t>()[1] == 3);
  CHECK(split.images.data<uint8_t>()[3072] == 'y');
  CHECK(LoadCifar10(DataDir(), Cifar10Part::kTrain).value().labels.num_elements() == 5);
  CHECK_FALSE(std::filesystem::exists(Path("readme.html")));
  // Once all are there no archive is needed.
  CHECK(DownloadCifar10(DataDir(), {.archive = "/not/there"}).ok());
}

TEST_CASE_METHOD(Fixture, "A data file that is cut is replaced") {
  const Cifar10Source source = Archive(Members(std::string(2 * 3073, '\1')) + kEnd);
  REQUIRE(DownloadCifar10(DataDir(), source).ok());
  std::ofstream(Path("data_batch_1.bin"), std::ios::app) << std::string(3073, '\2');  // the user's, and whole
  const int bytes = GENERATE(0, 3072, 3074);
  std::filesystem::resize_file(Path("test_batch.bin"), bytes);
  CHECK(absl::IsDataLoss(LoadCifar10(DataDir(), Cifar10Part::kTest).status()));
  logs::CapturedLog log(logs::LogFormat::kSimple);
  REQUIRE(DownloadCifar10(DataDir(), source).ok());
  CHECK_THAT(log.Text(), Contains(Path("test_batch.bin") + " is cut or not CIFAR-10's: it is replaced"));
  CHECK(std::filesystem::file_size(Path("data_batch_1.bin")) == 2 * 3073);
  CHECK(LoadCifar10(DataDir(), Cifar10Part::kTest).value().labels.num_elements() == 2);
}

TEST_CASE_METHOD(Fixture, "Another archive than the published one is refused, with both checksums") {
  Cifar10Source source = Archive(Members(std::string(3073, '\1')) + kEnd);
  const std::string found = source.sha256;
  source.sha256 = std::string(64, 'a');
  const absl::Status status = DownloadCifar10(DataDir(), source);
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains(source.archive) && Contains(found) && Contains(source.sha256));
  CHECK_FALSE(std::filesystem::exists(DataDir()));
}

TEST_CASE_METHOD(Fixture, "Archives that are cut, without one of the files or not tar leave no half file") {
  const std::string members = Members(std::string(3073, '\1'));
  const auto [tar, message] = GENERATE_COPY(table<std::string, std::string>({
      {members.substr(0, members.size() - 700), "test_batch.bin is cut"},
      {members, "it is cut"},
      {Member("cifar-10-batches-bin/data_batch_1.bin", '0', std::string(3073, '\1')) + kEnd,
       "has no complete data_batch_2.bin"},
      {Member("cifar-10-batches-bin/data_batch_1.bin", '0', "x") + kEnd, "has no complete data_batch_1.bin"},
      {std::string(512, 'x'), "is not a number"},
  }));
  const absl::Status status = DownloadCifar10(DataDir(), Archive(tar));
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Contains(directory_ + "/archive.tar.gz") && Contains(message));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(DataDir())) {
    CHECK(entry.path().string().find(".incomplete") == std::string::npos);
  }
}

TEST_CASE_METHOD(Fixture, "Without a network the error names the file, the server and what does without") {
  const absl::Status status = DownloadCifar10(DataDir(), {.urls = {"http://127.0.0.1:1/cifar-10-binary.tar.gz"}});
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(std::string(status.message()), Contains("cifar-10-binary.tar.gz: 127.0.0.1:1: ") &&
                                                Contains("`download_cifar10_main " + DataDir() + " COPY`"));
  CHECK_FALSE(std::filesystem::exists(DataDir()));
}

TEST_CASE_METHOD(Fixture, "A missing archive is NotFound") {
  const absl::Status none = DownloadCifar10(DataDir(), {.archive = directory_ + "/none"});
  CHECK(absl::IsNotFound(none));
  CHECK_THAT(std::string(none.message()), Contains("it should be a copy of https://"));
}

}  // namespace
}  // namespace official::resnet
