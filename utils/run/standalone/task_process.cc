#include "utils/run/standalone/task_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/launcher_env.h"

namespace official::run {
namespace {

constexpr size_t kMostBytes = 64 << 10;  // of output that is read at once, and of a line
constexpr int kCannotExecute = 127;

// The environment of this process without what started it as one of several, and with another TF_CONFIG.
std::vector<std::string> EnvironmentWith(const std::string& tf_config) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    if (!distribute::IsOfLauncher(text.substr(0, text.find('=')))) variables.emplace_back(text);
  }
  variables.push_back(absl::StrCat("TF_CONFIG=", tf_config));
  return variables;
}

std::vector<char*> PointersTo(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct Ends {
  int read = -1, write = -1;
};

absl::StatusOr<Ends> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", strerror(errno)));
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return Ends{fds[0], fds[1]};
}

// The new process, between fork and exec: other threads may hold locks, so it calls nothing but the system. Signals,
// which are blocked, have their default effects from here on, also those that came ignored to the server.
[[noreturn]] void Become(pid_t parent, const Ends& out, const Ends& err, const sigset_t& mask, char* const* argv,
                         char* const* envp) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) std::signal(signal, SIG_DFL);
  setpgid(0, 0);  // signals of the terminal are for the server, which passes them on
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExecute);
  const int none = open("/dev/null", O_RDONLY);
  if (none < 0 || dup2(none, STDIN_FILENO) < 0 || dup2(out.write, STDOUT_FILENO) < 0 ||
      dup2(err.write, STDERR_FILENO) < 0) {
    _exit(kCannotExecute);
  }
  close(none);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execve("/proc/self/exe", argv, envp);
  constexpr char kFailed[] = "cannot start the program of the server again\n";
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, kFailed, sizeof kFailed - 1);
  _exit(kCannotExecute);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TaskProcess>> TaskProcess::Start(const std::string& name,
                                                                const std::vector<std::string>& arguments,
                                                                const std::string& tf_config) {
  std::vector<std::string> words = {name}, environment = EnvironmentWith(tf_config);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> argv = PointersTo(words), envp = PointersTo(environment);
  const absl::StatusOr<Ends> out = MakePipe();
  if (!out.ok()) return out.status();
  const absl::StatusOr<Ends> err = MakePipe();
  if (!err.ok()) {
    close(out->read);
    close(out->write);
    return err.status();
  }
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) Become(parent, *out, *err, mask, argv.data(), envp.data());
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  close(out->write);
  close(err->write);
  if (pid > 0) return std::unique_ptr<TaskProcess>(new TaskProcess(pid, out->read, err->read));
  close(out->read);
  close(err->read);
  return absl::UnavailableError(absl::StrCat("cannot start a process: ", strerror(error)));
}

TaskProcess::~TaskProcess() {
  if (!end_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_.fd);
  close(err_.fd);
}

void TaskProcess::ReadPipe(Pipe& pipe, std::string& lines) {
  std::string bytes(kMostBytes, '\0');
  const ssize_t count = read(pipe.fd, bytes.data(), bytes.size());
  if (count < 0) return;
  if (count == 0) {  // the last line may have no end
    lines += std::exchange(pipe.begun, "");
    return;
  }
  bytes.resize(count);
  pipe.begun += bytes;
  const size_t end = pipe.begun.rfind('\n');
  const size_t complete = end != std::string::npos ? end + 1 : pipe.begun.size() > kMostBytes ? pipe.begun.size() : 0;
  lines += pipe.begun.substr(0, complete);
  pipe.begun.erase(0, complete);
}

TaskProcess::Output TaskProcess::Read(std::chrono::milliseconds timeout) {
  pollfd fds[] = {{.fd = out_.fd, .events = POLLIN, .revents = 0}, {.fd = err_.fd, .events = POLLIN, .revents = 0}};
  Output output;
  if (poll(fds, 2, static_cast<int>(timeout.count())) <= 0) return output;
  ReadPipe(out_, output.out);
  ReadPipe(err_, output.err);
  return output;
}

std::optional<TaskProcess::End> TaskProcess::Ended() {
  int status = 0;
  if (!end_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    end_ = WIFSIGNALED(status) ? End{.status = 0, .signal = WTERMSIG(status)} : End{.status = WEXITSTATUS(status)};
  }
  if (!end_) return std::nullopt;
  for (const Pipe* const pipe : {&out_, &err_}) {
    pollfd state = {.fd = pipe->fd, .events = POLLIN, .revents = 0};
    poll(&state, 1, 0);
    if ((state.revents & POLLIN) != 0 || ((state.revents & POLLHUP) != 0 && !pipe->begun.empty())) return std::nullopt;
  }
  return end_;
}

void TaskProcess::Signal(int signal) {
  if (!end_) kill(pid_, signal);
}

}  // namespace official::run
