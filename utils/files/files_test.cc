#include "utils/files/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "utils/files/link_or_copy.h"

namespace official::files {
namespace {

using Catch::Matchers::Contains;

std::string TestPath(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return JoinPath(directory ? directory : "/tmp", name);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// The temporary files of AtomicFile that there are for a path.
std::vector<std::string> Temporaries(const std::string& path) {
  std::vector<std::string> found;
  const std::vector<std::string> names = ListDirectory(DirectoryOf(path)).value();
  for (const std::string& name : names) {
    const std::string temporary = JoinPath(DirectoryOf(path), name);
    if (FinalNameOf(temporary) == path) found.push_back(temporary);
  }
  return found;
}

std::string NewPipe(const std::string& name) {
  const std::string pipe = TestPath(name);
  REQUIRE((mkfifo(pipe.c_str(), 0600) == 0 || errno == EEXIST));
  return pipe;
}

TEST_CASE("A file written atomically appears only when published, and leaves nothing behind when it is not") {
  const std::string path = TestPath("atomic");
  REQUIRE(WriteFileAtomically(path, "old").ok());
  {
    auto file = AtomicFile::Create(path).value();
    REQUIRE(file->Append("half of the n").ok());
    REQUIRE(file->Finish().ok());
    CHECK(Temporaries(path) == std::vector<std::string>{file->temporary_path()});
    CHECK(ReadFile(path, 100).value() == "old");
  }
  CHECK(Temporaries(path).empty());
  REQUIRE(WriteFileAtomically(path, "new").ok());
  CHECK(ReadFile(path, 100).value() == "new");
  CHECK(Temporaries(path).empty());
}

TEST_CASE("Temporary names: the final name, .incomplete- and eight hexadecimal digits") {
  CHECK(FinalNameOf("a.index.incomplete-0123abcd") == "a.index");
  for (const char* name :
       {"a", "a.incomplete", "a.incomplete-0123abc", "a.incomplete-0123abcg", "a.incomplete-0123ABCD",
        "a.incomplete_0123abcd", ".incomplete-0123abcd", "a.incomplete-0123abcd.txt"}) {
    CHECK_FALSE(FinalNameOf(name).has_value());
  }
}

TEST_CASE("What a killed writer has left is removed by the next, what others are writing is not") {
  const std::string path = TestPath("left");
  const std::string left = path + ".incomplete-00000000", other = TestPath("left2.incomplete-00000000");
  for (const std::string& name : {left, other}) REQUIRE(FileWriter::Open(name).value()->Close().ok());
  const auto first = AtomicFile::Create(path).value();
  CHECK_FALSE(Exists(left));
  CHECK(Exists(other));
  REQUIRE(first->Append("first").ok());
  const auto second = AtomicFile::Create(path).value();
  CHECK(Temporaries(path).size() == 2);
  REQUIRE(first->Finish().ok());
  REQUIRE(WriteFileAtomically(path, "third").ok());
  REQUIRE(first->Publish().ok());
  CHECK(ReadFile(path, 100).value() == "first");
  CHECK(Temporaries(path) == std::vector<std::string>{second->temporary_path()});
}

TEST_CASE("Many may write the same file at once: one of them is read, complete") {
  const std::string path = TestPath("contended");
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string contents(1000, static_cast<char>('a' + i));
      for (int j = 0; j < 50; ++j) failures += WriteFileAtomically(path, contents).ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  const std::string contents = ReadFile(path, 10000).value();
  CHECK(contents == std::string(1000, contents[0]));
  CHECK(Temporaries(path).empty());
}

TEST_CASE("Files are readable and writable as the umask permits") {
  const mode_t before = umask(027);
  const std::string path = TestPath("mode");
  REQUIRE(WriteFileAtomically(path, "").ok());
  umask(before);
  struct stat info;
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0640);
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

  CHECK_THAT(Message(ReadFile(NewPipe("pipe"), 1).status()), Contains("it is a pipe, not a regular file"));

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

TEST_CASE("Nothing is written through a symbolic link") {
  const std::string target = TestPath("precious"), link = TestPath("link");
  REQUIRE(WriteFileAtomically(target, "precious").ok());
  REQUIRE(symlink(target.c_str(), link.c_str()) == 0);
  using Mode = FileWriter::Mode;
  for (const Mode mode : {Mode::kReplace, Mode::kAppend}) {
    const absl::Status status = FileWriter::Open(link, mode).status();
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(Message(status), Contains("cannot write " + link + ": it is a symbolic link"));
  }
  CHECK(absl::IsAlreadyExists(FileWriter::Open(link, Mode::kCreateNew).status()));
  CHECK(absl::IsFailedPrecondition(OpenRegularFile(link, O_RDWR | O_CREAT).status()));
  CHECK(absl::IsFailedPrecondition(CheckRegularOrMissing(link)));
  CHECK(absl::IsFailedPrecondition(CheckDirectoryOrMissing(link)));
  CHECK_THAT(Message(CheckDirectoryOrMissing(target)),
             Contains("cannot write in " + target + ": it is a file, not a directory"));
  CHECK(CheckDirectoryOrMissing(DirectoryOf(link)).ok());
  CHECK(CheckDirectoryOrMissing(link + ".missing").ok());
  CHECK(absl::IsFailedPrecondition(WriteOutput(link, "new")));
  CHECK(absl::IsFailedPrecondition(CheckOutput(link)));
  CHECK(ReadFile(link, 100).value() == "precious");  // reading follows it
  // A file that appears whole takes the place of the link.
  REQUIRE(WriteFileAtomically(link, "new").ok());
  CHECK(ReadFile(link, 100).value() == "new");
  CHECK(ReadFile(target, 100).value() == "precious");

  const std::string dangling = TestPath("dangling");
  REQUIRE(symlink(TestPath("nowhere").c_str(), dangling.c_str()) == 0);
  CHECK_THAT(Message(FileWriter::Open(dangling).status()), Contains("it is a symbolic link"));
  CHECK_FALSE(Exists(TestPath("nowhere")));
}

TEST_CASE("Pipes and devices are refused at once, whether or not somebody reads them") {
  const std::string pipe = NewPipe("to_nobody");
  const auto refused = [&](const std::string& path, const std::string& what) {
    for (const absl::Status& status :
         {FileWriter::Open(path, FileWriter::Mode::kAppend).status(), OpenRegularFile(path, O_RDWR).status()}) {
      CHECK(absl::IsFailedPrecondition(status));
      CHECK_THAT(Message(status), Contains("cannot write " + path + ": it is " + what + ", not a regular file"));
    }
  };
  refused(pipe, "a pipe");
  refused("/dev/null", "a device");
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  refused(pipe, "a pipe");
  close(reader);
}

TEST_CASE("The user may have results written to a pipe or a device") {
  CHECK(CheckOutput("/dev/null").ok());
  CHECK(CheckOutput(TestPath("not_there_yet")).ok());
  const absl::Status no_directory = CheckOutput(TestPath("not_there_yet/file"));
  CHECK(absl::IsFailedPrecondition(no_directory));
  CHECK_THAT(Message(no_directory), Contains("there is no directory " + TestPath("not_there_yet") + "; make it first"));
  CHECK(WriteOutput("/dev/null", "x").ok());
  CHECK(std::filesystem::is_character_file("/dev/null"));
  const std::string pipe = NewPipe("to_somebody");
  CHECK_THAT(Message(WriteOutput(pipe, "x")), Contains("cannot write " + pipe + ": no process reads from this pipe"));
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(WriteOutput(pipe, "hello").ok());
  char bytes[8];
  CHECK(read(reader, bytes, sizeof(bytes)) == 5);

  // As a shell's redirection to a file makes /dev/stdout.
  const std::string path = TestPath("redirected");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  REQUIRE(write(fd, "a", 1) == 1);
  REQUIRE(WriteOutput("/proc/self/fd/" + std::to_string(fd), "b").ok());
  CHECK(ReadFile(path, 100).value() == "ab");
  close(fd);

  const std::string file = TestPath("translation");
  REQUIRE(WriteOutput(file, "a long text").ok());
  REQUIRE(WriteOutput(file, "short").ok());
  CHECK(ReadFile(file, 100).value() == "short");
}

TEST_CASE("A directory of another user is recognized by its owner, through a link too") {
  const std::string directory = TestPath("mine"), link = TestPath("link_to_mine");
  REQUIRE(MakeDirectories(directory).ok());
  REQUIRE(symlink(directory.c_str(), link.c_str()) == 0);
  CHECK(CheckOwner(directory).ok());
  CHECK(CheckOwner(link).ok());
  CHECK(CheckOwner(TestPath("missing")).ok());
  if (geteuid() != 0) {
    CHECK(absl::IsPermissionDenied(CheckOwner("/")));
    return;
  }
  if (lchown(link.c_str(), 12345, 12345) != 0) return;  // where root is no root, in a sandbox
  CHECK(absl::IsPermissionDenied(CheckOwner(link)));
  REQUIRE(lchown(link.c_str(), 0, 0) == 0);
  REQUIRE(chown(directory.c_str(), 12345, 12345) == 0);
  for (const std::string& path : {directory, link}) {
    CHECK(absl::IsPermissionDenied(CheckOwner(path)));
    CHECK_THAT(Message(CheckOwner(path)), Contains(path + " belongs to another user (uid 12345; yours is 0)"));
  }
}

TEST_CASE("A full disk is reported with its path and the bytes left") {
  const absl::Status status = WriteOutput("/dev/full", "twelve bytes");
  CHECK(absl::IsAborted(status));
  CHECK_THAT(Message(status), Contains("write 12 bytes to /dev/full: No space left on device") && Contains("are free"));
}

TEST_CASE("Missing memory is not an error of the disk") {
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
  CHECK(Temporaries(path).empty());
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
  CHECK(absl::IsAlreadyExists(MakeNewDirectory(directory)));
  CHECK(MakeNewDirectory(directory + "/new").ok());
}

TEST_CASE("It is known before whether files can be made in a directory, and nothing is made") {
  const std::string directory = TestPath("checked");
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

TEST_CASE("A second name is a link, and on another file system a copy") {
  namespace fs = std::filesystem;
  const std::string path = TestPath("linked"), contents(3 << 20, 'x');
  REQUIRE(WriteFileAtomically(path, contents).ok());
  REQUIRE(LinkOrCopy(path, path + "-2").ok());
  CHECK(fs::equivalent(path, path + "-2"));
  CHECK(absl::IsNotFound(LinkOrCopy(path, TestPath("no/such/directory"))));
  CHECK(absl::IsAlreadyExists(LinkOrCopy(path, path + "-2")));
  CHECK(absl::IsNotFound(LinkOrCopy(path + "-3", path + "-4")));

  struct stat here, there;
  REQUIRE(stat(path.c_str(), &here) == 0);
  if (stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev) return;
  const std::string copy = "/dev/shm/official-linked-" + std::to_string(getpid());
  REQUIRE(LinkOrCopy(path, copy).ok());
  CHECK(ReadFile(copy, 4 << 20).value() == contents);
  REQUIRE(RemoveFile(copy).ok());
}

}  // namespace
}  // namespace official::files
