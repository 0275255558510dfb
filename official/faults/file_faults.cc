// Preloaded into a program (LD_PRELOAD), this counts the calls that change files below a directory, over all threads,
// and makes one of them fail.
//   FAULTS_DIR      the directory, absolute
//   FAULTS_CALL     count only calls of this name, and FAULTS_PATH only those whose path contains this. "read": count
//                   the calls that read files instead. "any": count these, and all that open, list and lock files, too
//   FAULTS_AT       the number of the call, from 1; 0: none
//   FAULTS_KIND     kill: the process is killed before the call. EIO, ...: that call fails. ENOSPC: from that call on,
//                   all calls fail that would make or lengthen files. EINTR: from that call on, every call fails once,
//                   and not when the thread makes it again. slow: that call takes FAULTS_SECONDS longer (default 4),
//                   or until there is a file FAULTS_UNTIL. stop: the process is stopped (SIGSTOP) before that call and
//                   each after it
//   FAULTS_JOURNAL  a file that gets a line per call before it happens: number, call, path, and a rename's new path
//   FAULTS_CLOCK    every second look at the time of day is wrong by so many seconds
//   FAULTS_SET      a file: in place of every second look, each is wrong that comes once there is such a file
//   FAULTS_KEEP     a directory that gets a link to each file when it is synced, named by the number of the call
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

const char* Setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Settings {
  std::string dir = Setting("FAULTS_DIR");
  std::string call = Setting("FAULTS_CALL");
  std::string path = Setting("FAULTS_PATH");
  int at = std::atoi(Setting("FAULTS_AT"));
  std::string kind = Setting("FAULTS_KIND");
  int seconds = *Setting("FAULTS_SECONDS") ? std::atoi(Setting("FAULTS_SECONDS")) : 4;
  std::string until = Setting("FAULTS_UNTIL");
  std::string journal = Setting("FAULTS_JOURNAL");
  std::string keep = Setting("FAULTS_KEEP");
  int clock_error = std::atoi(Setting("FAULTS_CLOCK"));
  std::string clock_set = Setting("FAULTS_SET");
  int error = kind == "ENOSPC" ? ENOSPC : kind == "EIO" ? EIO : kind == "EROFS" ? EROFS : kind == "EINTR" ? EINTR : 0;
  bool any = call == "any";
};

const Settings& settings() {
  static const Settings* const settings = new Settings;
  return *settings;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool Exists(const std::string& file) { return Real<int(const char*, int)>("access")(file.c_str(), F_OK) == 0; }

void Sleep(timespec rest) {
  while (nanosleep(&rest, &rest) != 0) {
  }
}

bool IsBelow(const std::string& path) {
  const std::string& dir = settings().dir;
  return !dir.empty() && path.compare(0, dir.size(), dir) == 0 &&
         (path.size() == dir.size() || path[dir.size()] == '/');
}

std::string PathOf(int fd) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), path, sizeof(path));
  return size < 0 ? "" : std::string(path, size);
}

bool IsDirectory(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
}

bool NeedsSpace(const char* call) {
  return std::strcmp(call, "write") == 0 || std::strcmp(call, "create") == 0 || std::strcmp(call, "mkdir") == 0;
}

// Counts a call. True if it is to fail, with errno set.
bool Fails(const char* call, const std::string& path, const std::string& to = "", int fd = -1) {
  static std::mutex* const mutex = new std::mutex;
  static int count = 0;
  if (!IsBelow(path) || path.find(settings().path) == path.npos) return false;
  if (!settings().call.empty() && !settings().any && settings().call != call) return false;
  std::unique_lock<std::mutex> lock(*mutex);
  ++count;
  if (!settings().journal.empty()) {
    static const int journal = Real<int(const char*, int, ...)>("open")(
        settings().journal.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const std::string line = std::to_string(count) + "\t" + call + "\t" + path + "\t" + to + "\n";
    if (Real<ssize_t(int, const void*, size_t)>("write")(journal, line.data(), line.size()) < 0) abort();
  }
  if (!settings().keep.empty() && std::strcmp(call, "fsync") == 0) {
    const std::string link = settings().keep + "/" + std::to_string(count);
    const std::string file = "/proc/self/fd/" + std::to_string(fd);
    if (linkat(AT_FDCWD, file.c_str(), AT_FDCWD, link.c_str(), AT_SYMLINK_FOLLOW) != 0 && !IsDirectory(fd)) abort();
  }
  if (settings().at == 0 || count < settings().at) return false;
  if (settings().kind == "stop") raise(SIGSTOP);
  const bool full = settings().error == ENOSPC && NeedsSpace(call);
  if (count > settings().at && !full && settings().error != EINTR) return false;
  if (settings().error == EINTR) {
    thread_local std::string interrupted;
    const std::string what = std::string(call) + " " + path;
    if (interrupted == what) {
      interrupted.clear();
      return false;
    }
    interrupted = what;
  }
  if (settings().kind == "kill") raise(SIGKILL);
  if (settings().kind == "slow") {
    lock.unlock();
    const std::string& until = settings().until;
    if (until.empty()) {
      Sleep({.tv_sec = settings().seconds, .tv_nsec = 0});
    } else {
      while (!Exists(until)) Sleep({.tv_sec = 0, .tv_nsec = 10'000'000});
    }
  }
  errno = settings().error;
  return settings().error != 0;
}

bool FailsToRead(int fd) { return (settings().call == "read" || settings().any) && Fails("read", PathOf(fd)); }

int Open(int directory, const char* path, int flags, mode_t mode) {
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  const char* const call = (flags & O_DIRECTORY) ? "open directory"
                           : (flags & O_CREAT)   ? "create"
                           : reads               ? "open to read"
                                                 : "open";
  if ((!reads || settings().any) && Fails(call, path)) return -1;
  return Real<int(int, const char*, int, mode_t)>("openat")(directory, path, flags, mode);
}

mode_t Mode(int flags, va_list& arguments) { return (flags & O_CREAT) ? va_arg(arguments, mode_t) : 0; }

}  // namespace

#define DEFINE_OPEN(name)                       \
  int name(const char* path, int flags, ...) {  \
    va_list arguments;                          \
    va_start(arguments, flags);                 \
    const mode_t mode = Mode(flags, arguments); \
    va_end(arguments);                          \
    return Open(AT_FDCWD, path, flags, mode);   \
  }

extern "C" {

DEFINE_OPEN(open)
DEFINE_OPEN(open64)

int openat(int directory, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = Mode(flags, arguments);
  va_end(arguments);
  return Open(directory, path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  if (fd > STDERR_FILENO && Fails("write", PathOf(fd))) return -1;
  return Real<ssize_t(int, const void*, size_t)>("write")(fd, bytes, size);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  if (Fails("write", PathOf(fd))) return -1;
  return Real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, size, offset);
}

ssize_t read(int fd, void* bytes, size_t size) {
  if (FailsToRead(fd)) return -1;
  return Real<ssize_t(int, void*, size_t)>("read")(fd, bytes, size);
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  if (FailsToRead(fd)) return -1;
  return Real<ssize_t(int, void*, size_t, off_t)>("pread")(fd, bytes, size, offset);
}

int ftruncate(int fd, off_t size) noexcept {
  if (Fails("ftruncate", PathOf(fd))) return -1;
  return Real<int(int, off_t)>("ftruncate")(fd, size);
}

int fsync(int fd) {
  if (Fails("fsync", PathOf(fd), "", fd)) return -1;
  return Real<int(int)>("fsync")(fd);
}

// Only of files that were opened for writing. It closes in any case, as Linux does.
int close(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  const bool writable = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  const bool fails = writable && Fails("close", PathOf(fd));
  const int error = errno;
  const int result = Real<int(int)>("close")(fd);
  if (!fails) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  if (Fails("rename", from, to)) return -1;
  return Real<int(const char*, const char*)>("rename")(from, to);
}

// Of the new name.
int link(const char* from, const char* to) noexcept {
  if (Fails("link", to)) return -1;
  return Real<int(const char*, const char*)>("link")(from, to);
}

DIR* opendir(const char* path) {
  if (settings().any && Fails("open directory", path)) return nullptr;
  return Real<DIR*(const char*)>("opendir")(path);
}

int flock(int fd, int operation) noexcept {
  if (settings().any && Fails("flock", PathOf(fd))) return -1;
  return Real<int(int, int)>("flock")(fd, operation);
}

int access(const char* path, int mode) noexcept {
  if (settings().any && Fails("access", path)) return -1;
  return Real<int(const char*, int)>("access")(path, mode);
}

int unlink(const char* path) noexcept {
  if (Fails("unlink", path)) return -1;
  return Real<int(const char*)>("unlink")(path);
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<int> count = 0;
  const int result = Real<int(clockid_t, timespec*)>("clock_gettime")(clock, time);
  const std::string& file = settings().clock_set;
  bool is_wrong = file.empty() && ++count % 2 == 0;
  if (clock != CLOCK_REALTIME) return result;
  if (!file.empty()) {
    const int error = errno;
    is_wrong = Exists(file);
    errno = error;
  }
  if (is_wrong) time->tv_sec += settings().clock_error;
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (Fails("mkdir", path)) return -1;
  return Real<int(const char*, mode_t)>("mkdir")(path, mode);
}

}  // extern "C"
