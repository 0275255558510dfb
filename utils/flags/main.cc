#include "utils/flags/main.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/max_isa.h"
#include "utils/flags/completion.h"
#include "utils/flags/default_dirs.h"
#include "utils/flags/dump_config.h"
#include "utils/flags/help.h"
#include "utils/logs/log.h"
#include "utils/misc/build_commit.h"
#include "utils/misc/exit_code.h"
#include "utils/misc/restart.h"
#include "utils/misc/stop_signals.h"

namespace official::flags {
namespace {

absl::Status RunBody(const Body& body, const CommandLine& command_line) {
  RETURN_IF_ERROR(compute::CheckMaxIsa());
  RETURN_IF_ERROR(CheckDefaultDirs(command_line));
  try {
    return body(command_line);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return absl::InternalError(absl::StrCat("internal error: ", error.what()));
    }
    rlimit processes = {};
    getrlimit(RLIMIT_NPROC, &processes);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread: ", error.what(), "; the user may have ",
                                                     processes.rlim_cur,
                                                     " (ulimit -u), the stack of each takes memory"
                                                     " (ulimit -s, ulimit -v)"));
  } catch (const std::exception& exception) {
    return absl::InternalError(absl::StrCat("internal error: ", exception.what()));
  }
}

// Opens what the caller has closed of the three standard streams, so that reading and writing them fails. Otherwise the
// first files of the program would take their numbers, and results and messages would go into these.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number, which is this one, since those below are open.
    [[maybe_unused]] const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

struct sigaction print_stack;  // Abseil's action for the signals of a crash

// A second crash, as when there is no memory left to print the stack in, ends the process as the first would have.
// Abseil's handler would begin anew with it, for ever.
void HandleCrash(int signal, siginfo_t* info, void* context) {
  static std::atomic<int> first{0};
  int none = 0;
  if (!first.compare_exchange_strong(none, signal)) misc::DieOfSignal(none);
  print_stack.sa_sigaction(signal, info, context);
}

// One line; in a log of JSON lines an object, too.
void TellEnd(const Program& program, const absl::Status& status, std::ostream& err) {
  const std::string message = absl::StrCat(program.name, ": ", status.message());
  if (logs::CurrentLogFormat() != logs::LogFormat::kJson) {
    err << message << "\n";
    return;
  }
  const int signal = absl::IsCancelled(status) ? misc::StopSignalReceived() : 0;
  const int exit_code = signal != 0 ? 128 + signal : misc::ExitCode(status);  // as a shell has it
  logs::WriteLog(exit_code == 0 ? logs::Severity::INFO : logs::Severity::ERROR, message,
                 {{"event", signal != 0      ? "stop"
                            : exit_code == 0 ? "end"
                                             : "error"},
                  {"exit_code", exit_code},
                  {"signal", signal != 0 ? logs::Json(signal) : logs::Json()}});
}

// Returns the text that a request asks for.
absl::StatusOr<std::string> AnswerOf(const Program& program, const CommandLine& command_line) {
  switch (command_line.request()) {
    case CommandLine::Request::kHelp:
      return HelpText(program, command_line, /*full=*/false);
    case CommandLine::Request::kHelpFull:
      return HelpText(program, command_line, /*full=*/true);
    case CommandLine::Request::kHelpMatch:
      return MatchingHelpText(program, command_line);
    case CommandLine::Request::kVersion:
      return VersionText(program);
    case CommandLine::Request::kCompletion:
      return CompletionScript(program, command_line);
    case CommandLine::Request::kDumpConfig:
      return ConfigDump(program, command_line);
    case CommandLine::Request::kEnvironment:
      return program.environment(program, command_line.has("output") && command_line.ValueOf("output") == "json");
    case CommandLine::Request::kRun:
    case CommandLine::Request::kPrintSchedule:
    case CommandLine::Request::kDryRun:
    case CommandLine::Request::kFindLr:
      break;  // the body does these
  }
  return "";
}

// A crash says where.
void InstallCrashHandler(const char* program) {
  absl::InitializeSymbolizer(program);
  // SIGTERM is no crash, and waits while Abseil's handler would take it for one.
  struct sigaction terminate;
  sigaction(SIGTERM, nullptr, &terminate);
  sigset_t only_terminate, before;
  sigemptyset(&only_terminate);
  sigaddset(&only_terminate, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &only_terminate, &before);
  absl::InstallFailureSignalHandler({});
  sigaction(SIGTERM, &terminate, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const int signal : {SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGBUS}) {
    sigaction(signal, nullptr, &print_stack);
    struct sigaction action = print_stack;
    action.sa_sigaction = HandleCrash;
    sigaction(signal, &action, nullptr);
  }
}

// The C library loads what exceptions in its callbacks need when the first one comes, and ends the process if there is
// no memory for it then: so a first use of it is now.
void LoadUnwinder() {
  void* caller;
  backtrace(&caller, 1);
}

// The kernel keeps the signals that would end another process from process 1, as which a container has this program,
// unless it handles them.
void EndBySignalsAsProcess1() {
  if (getpid() != 1) return;
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1}) {
    if (std::signal(signal, misc::DieOfSignal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

}  // namespace

int Run(const std::vector<std::string>& arguments, const Program& program, const Body& body, std::ostream& out,
        std::ostream& err) {
  const absl::StatusOr<CommandLine> command_line = CommandLine::Parse(program, arguments);
  if (!command_line.ok()) {
    err << "FATAL Flags parsing error: " << command_line.status().message() << "\n"
        << "Try " << program.name << " --help for the common flags, --helpfull for all.\n";
    return misc::ExitCode(command_line.status());
  }
  absl::Status status;
  if (command_line->runs_body()) {
    status = RunBody(body, *command_line);
  } else if (const absl::StatusOr<std::string> answer = AnswerOf(program, *command_line); answer.ok()) {
    out << *answer;
  } else {
    status = answer.status();
  }
  if (!out.flush() && status.ok()) status = absl::AbortedError("cannot write to standard output");
  if (!status.ok()) TellEnd(program, status, err);
  return misc::ExitCode(status);
}

int RunMain(int argc, char** argv, const Program& program, const Body& body) {
  OccupyStandardStreams();
  InstallCrashHandler(argv[0]);
  LoadUnwinder();
  EndBySignalsAsProcess1();
  // A reader that has gone is an error of the write, not the end of a training; so is a file at the limit (ulimit -f).
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  int exit_code = 0;
  try {
    const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
    Program built = program;
    built.commit = misc::kBuildCommit;
    exit_code = Run(arguments, built, body, std::cout, std::cerr);
  } catch (const std::bad_alloc&) {  // there is not even room for the flags
    std::cerr << program.name << ": out of memory\n";
    exit_code = misc::ExitCode(absl::ResourceExhaustedError(""));
  }
  const int stop_signal = misc::StopSignalReceived();
  if (exit_code == misc::kExitResumeMe) {
    if (stop_signal != 0) misc::DieOfSignal(stop_signal);
    misc::RestartIfRequested();
  }
  // What a body wrote with printf.
  if (exit_code == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    std::cerr << program.name << ": cannot write to standard output\n";
    return misc::kExitIoError;
  }
  return exit_code;
}

}  // namespace official::flags
