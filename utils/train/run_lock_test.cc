#include "utils/train/run_lock.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"

// Stands in for the C library's flock, so that a file system can be one without locks.
int flock_error = 0;
extern "C" int flock(int fd, int operation) noexcept {
  if (flock_error == 0) return static_cast<int>(syscall(SYS_flock, fd, operation));
  errno = flock_error;
  return -1;
}

namespace official::train {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

std::string NewDirectory() {
  static int counter = 0;
  const char* root = std::getenv("TEST_TMPDIR");
  return absl::StrCat(root ? root : "/tmp", "/lock-", getpid(), "-", ++counter, "/deeper");
}

TEST_CASE("A second run is refused, and is informed who has the lock; a third may begin when the first has ended") {
  const std::string directory = NewDirectory();
  auto first = RunLock::Acquire(directory);
  REQUIRE(first.ok());
  const absl::Status second = RunLock::Acquire(directory).status();
  CHECK(absl::IsAlreadyExists(second));
  CHECK_THAT(std::string(second.message()),
             Contains(directory) && Contains(absl::StrCat("process ", getpid(), " on ")));
  CHECK(absl::IsAlreadyExists(RunLock::Acquire(directory).status()));  // the failed attempt has changed nothing
  first->reset();
  CHECK_FALSE(files::Exists(files::JoinPath(directory, kRunLockFile)));
  CHECK(RunLock::Acquire(directory).ok());
}

TEST_CASE("It can be asked who has the lock, which changes nothing") {
  const std::string directory = NewDirectory();
  CHECK_FALSE(RunLock::HolderOf(directory));
  CHECK_FALSE(files::Exists(directory));
  {
    const auto lock = RunLock::Acquire(directory);
    REQUIRE(lock.ok());
    CHECK_THAT(RunLock::HolderOf(directory).value_or(""), StartsWith(absl::StrCat("process ", getpid(), " on ")));
    CHECK(absl::IsAlreadyExists(RunLock::Acquire(directory).status()));
    REQUIRE(files::WriteFileAtomically(files::JoinPath(directory, "result"), "1").ok());
  }
  // The file of a process that was killed.
  REQUIRE(files::WriteFileAtomically(files::JoinPath(directory, kRunLockFile), "process 1 on host").ok());
  CHECK_FALSE(RunLock::HolderOf(directory));
}

TEST_CASE("A directory that was made for the lock goes with it if nothing was written") {
  const std::string directory = NewDirectory();
  REQUIRE(RunLock::Acquire(directory).ok());
  CHECK_FALSE(files::Exists(directory));
  {
    const auto lock = RunLock::Acquire(directory);
    REQUIRE(lock.ok());
    REQUIRE(files::WriteFileAtomically(files::JoinPath(directory, "result"), "1").ok());
  }
  CHECK(files::Exists(files::JoinPath(directory, "result")));
  REQUIRE(files::RemoveFile(files::JoinPath(directory, "result")).ok());
  REQUIRE(RunLock::Acquire(directory).ok());
  CHECK(files::Exists(directory));  // it was there before
}

TEST_CASE("One at a time has the lock, however many come and go") {
  const std::string directory = NewDirectory();
  std::atomic<int> inside = 0, together = 0, taken = 0, failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 300; ++j) {
        const auto lock = RunLock::Acquire(directory);
        if (!lock.ok()) {
          if (!absl::StrContains(lock.status().message(), " is in use by ")) ++failed;
          continue;
        }
        ++taken;
        if (++inside > 1) ++together;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(taken > 4);
  CHECK(together == 0);
  CHECK(failed == 0);
}

TEST_CASE("A lock whose directory was emptied leaves that of the next run alone") {
  const std::string directory = NewDirectory();
  auto first = RunLock::Acquire(directory);
  REQUIRE(first.ok());
  REQUIRE(files::RemoveFile(files::JoinPath(directory, kRunLockFile)).ok());
  const auto second = RunLock::Acquire(directory);
  REQUIRE(second.ok());
  first->reset();
  CHECK(absl::IsAlreadyExists(RunLock::Acquire(directory).status()));
}

TEST_CASE("The lock of a process that was killed is free") {
  const std::string directory = NewDirectory();
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = RunLock::Acquire(directory);
    if (lock.ok()) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK_THAT(*files::ReadFile(files::JoinPath(directory, kRunLockFile), 1000), Contains(absl::StrCat(child)));
  CHECK(RunLock::Acquire(directory).ok());
}

TEST_CASE("A link or a pipe of the lock's name is refused and changes nothing") {
  const std::string directory = NewDirectory(), lock = files::JoinPath(directory, kRunLockFile);
  const std::string precious = files::JoinPath(directory, "precious");
  REQUIRE(files::MakeDirectories(directory).ok());
  REQUIRE(files::WriteFileAtomically(precious, "precious").ok());
  REQUIRE(symlink(precious.c_str(), lock.c_str()) == 0);
  CHECK(absl::IsFailedPrecondition(RunLock::Acquire(directory).status()));
  CHECK(*files::ReadFile(precious, 100) == "precious");
  REQUIRE(files::RemoveFile(lock).ok());
  REQUIRE(mkfifo(lock.c_str(), 0666) == 0);
  CHECK(absl::IsFailedPrecondition(RunLock::Acquire(directory).status()));
  REQUIRE(files::RemoveFile(lock).ok());
  CHECK(RunLock::Acquire(directory).ok());
}

TEST_CASE("On a file system without locks a run begins, with a warning; other errors of a lock end it") {
  const std::string directory = NewDirectory();
  logs::CapturedLog log(logs::LogFormat::kSimple);
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    flock_error = error;
    CHECK(RunLock::Acquire(directory).ok());
  }
  flock_error = EIO;
  CHECK_FALSE(RunLock::Acquire(directory).ok());
  flock_error = 0;
  CHECK_THAT(log.Text(), Contains("the file system of --model_dir=" + directory +
                                  " has no locks, so nothing keeps a second run out of the directory"));
}

TEST_CASE("A directory that cannot be made") {
  const std::string file = NewDirectory();
  REQUIRE(files::MakeDirectories(files::DirectoryOf(file)).ok());
  std::ofstream(file) << "x";
  CHECK_FALSE(RunLock::Acquire(file).ok());
}

}  // namespace
}  // namespace official::train
