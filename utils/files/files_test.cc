#include "utils/files/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace official::files {
namespace {

using Catch::Matchers::Contains;

std::string TestPath(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return JoinPath(directory ? directory : "/tmp", name);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("A file written atomically appears only when published, and leaves nothing behind when it is not") {
  const std::string path = TestPath("atomic");
  REQUIRE(WriteFileAtomically(path, "old").ok());
  {
    auto file = AtomicFile::Create(path).value();
    REQUIRE(file->Append("half of the n").ok());
    REQUIRE(file->Finish().ok());
    CHECK(Exists(path + ".incomplete"));
    CHECK(ReadFile(path, 100).value() == "old");
  }
  CHECK_FALSE(Exists(path + ".incomplete"));
  REQUIRE(WriteFileAtomically(path, "new").ok());
  CHECK(ReadFile(path, 100).value() == "new");
}

TEST_CASE("Appended pieces of any size arrive in order") {
  const std::string path = TestPath("pieces");
  std::string expected;
  auto writer = FileWriter::Open(path).value();
  for (int size : {1, 65535, 65536, 0, 200000, 7}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    REQUIRE(writer->Append(piece).ok());
    expected += piece;
  }
  CHECK(writer->size() == static_cast<int64_t>(expected.size()));
  REQUIRE(writer->Close().ok());
  CHECK(ReadFile(path, 1 << 20).value() == expected);
  CHECK(absl::IsAlreadyExists(FileWriter::Open(path, FileWriter::Mode::kCreateNew).status()));

  writer = FileWriter::Open(path, FileWriter::Mode::kAppend).value();
  REQUIRE(writer->Append("the end").ok());
  REQUIRE(writer->Close().ok());
  CHECK(ReadFile(path, 1 << 20).value() == expected + "the end");
}

TEST_CASE("What cannot be read says why") {
  CHECK(absl::IsNotFound(ReadFile(TestPath("missing"), 1).status()));
  CHECK_THAT(Message(ReadFile(TestPath(""), 1).status()), Contains("it is a directory"));

  const std::string pipe = TestPath("pipe");
  REQUIRE((mkfifo(pipe.c_str(), 0600) == 0 || errno == EEXIST));
  CHECK_THAT(Message(ReadFile(pipe, 1).status()), Contains("it is not a regular file"));

  const std::string path = TestPath("five");
  REQUIRE(WriteFileAtomically(path, "12345").ok());
  CHECK(absl::IsDataLoss(ReadFile(path, 4).status()));
  char bytes[4];
  const absl::Status status = RandomAccessFile::Open(path).value()->Read(3, 4, bytes);
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(Message(status), Contains("ends at byte 5") && Contains("4 bytes were expected at offset 3"));
}

TEST_CASE("What cannot be created says why") {
  const std::string file = TestPath("a_file");
  REQUIRE(WriteFileAtomically(file, "").ok());
  CHECK(absl::IsFailedPrecondition(FileWriter::Open(TestPath("no/such/parent")).status()));
  CHECK(absl::IsFailedPrecondition(FileWriter::Open(file + "/below").status()));
  CHECK(absl::IsFailedPrecondition(MakeDirectories(file)));
  CHECK(absl::IsFailedPrecondition(MakeDirectories(file + "/below")));
  CHECK(absl::IsFailedPrecondition(FileWriter::Open(TestPath(std::string(300, 'x'))).status()));
  CHECK_THAT(Message(FileWriter::Open("/proc/self/nothing").status()), Contains("/proc/self/nothing"));
}

TEST_CASE("A full disk is told with its path and the bytes left") {
  auto writer = FileWriter::Open("/dev/full").value();
  REQUIRE(writer->Append("twelve bytes").ok());
  const absl::Status status = writer->Flush();
  CHECK(absl::IsAborted(status));
  CHECK_THAT(Message(status), Contains("write 12 bytes to /dev/full: No space left on device") && Contains("are free"));
}

TEST_CASE("Missing memory is no error of the disk") {
  CHECK(absl::IsResourceExhausted(ErrnoStatus(ENOMEM, "open", "a file")));
  for (const int error_number : {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, EIO}) {
    CHECK(absl::IsAborted(ErrnoStatus(error_number, "open", "a file")));
  }
}

TEST_CASE("A write past the limit of the file size is an error, not half a file") {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string path = TestPath("limited");
  const absl::Status status = WriteFileAtomically(path, std::string(5000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(absl::IsAborted(status));
  CHECK_THAT(Message(status), Contains("File too large"));
  CHECK_FALSE(Exists(path));
  CHECK_FALSE(Exists(path + ".incomplete"));
}

TEST_CASE("Paths are split and joined") {
  CHECK(DirectoryOf("a/b/c") == "a/b");
  CHECK(DirectoryOf("c") == ".");
  CHECK(DirectoryOf("/c") == "/");
  CHECK(JoinPath("a", "b") == "a/b");
  CHECK(JoinPath("a/", "b") == "a/b");
  CHECK(JoinPath("a", "/b") == "/b");
}

TEST_CASE("Directories are made with their parents and listed in order") {
  const std::string directory = TestPath("parent/child with space");
  REQUIRE(MakeDirectories(directory).ok());
  REQUIRE(MakeDirectories(directory).ok());
  REQUIRE(WriteFileAtomically(directory + "/b", "").ok());
  REQUIRE(WriteFileAtomically(directory + "/a", "").ok());
  CHECK(ListDirectory(directory).value() == std::vector<std::string>{"a", "b"});
  REQUIRE(RemoveFile(directory + "/a").ok());
  REQUIRE(RemoveFile(directory + "/a").ok());
  CHECK(ListDirectory(directory).value() == std::vector<std::string>{"b"});
  CHECK(absl::IsNotFound(ListDirectory(directory + "/none").status()));
}

TEST_CASE("It is known before whether files can be made in a directory, and nothing is made") {
  const std::string directory = TestPath("output");
  REQUIRE(MakeDirectories(directory).ok());
  REQUIRE(WriteFileAtomically(directory + "/file", "").ok());
  REQUIRE(symlink("nowhere", (directory + "/link").c_str()) == 0);
  CHECK(CheckCanWriteIn(directory).ok());
  CHECK(CheckCanWriteIn(directory + "/new/newer").ok());
  CHECK(CheckCanWriteIn(directory + "/new/").ok());
  CHECK(CheckCanWriteIn("new").ok());
  CHECK(ListDirectory(directory).value() == std::vector<std::string>{"file", "link"});
  for (const char* bad : {"/file", "/file/new", "/link", "/link/new"}) {
    CAPTURE(bad);
    const absl::Status status = CheckCanWriteIn(directory + bad);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(Message(status), Contains("cannot write in " + directory + std::string(bad).substr(0, 5)));
  }
  REQUIRE(chmod(directory.c_str(), 0555) == 0);
  if (geteuid() != 0) CHECK(absl::IsPermissionDenied(CheckCanWriteIn(directory + "/new")));
  REQUIRE(chmod(directory.c_str(), 0755) == 0);
}

}  // namespace
}  // namespace official::files
