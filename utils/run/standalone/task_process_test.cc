// A process that runs a task: this test itself, started again, does what its first argument says.

#include "utils/run/standalone/task_process.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>

namespace official::run {
namespace {

constexpr std::chrono::milliseconds kALittle(20);
// What started the process that starts the task as one of several.
constexpr const char* kOfLauncher[] = {"SLURM_STEP_ID", "PET_NNODES", "PMIX_RANK", "JOB_COMPLETION_INDEX", "RANK"};
constexpr std::chrono::seconds kDeadline(60);

struct Ended {
  TaskProcess::End end;
  std::string out, err;
};

Ended RunToItsEnd(TaskProcess& process) {
  Ended ended;
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto end = process.Ended()) {
      ended.end = *end;
      return ended;
    }
    TaskProcess::Output output = process.Read(kALittle);
    ended.out += output.out;
    ended.err += output.err;
  }
  FAIL("the process does not end");
  return ended;
}

Ended Run(const std::vector<std::string>& arguments) {
  const auto process = TaskProcess::Start("task", arguments, "{\"cluster\": {}}").value();
  return RunToItsEnd(*process);
}

TEST_CASE("A task has its arguments, its TF_CONFIG and the rest of the environment") {
  setenv("TF_CONFIG", "of the server", 1);
  setenv("OTHER", "variable", 1);
  for (const char* const variable : kOfLauncher) setenv(variable, "1", 1);
  const Ended ended = Run({"print", "--a=b c", ""});
  CHECK(ended.out == "task print --a=b c  \n{\"cluster\": {}} variable");
  CHECK(ended.err == "a line without an end");
  CHECK(ended.end.status == 3);
  CHECK(ended.end.signal == 0);
}

TEST_CASE("All that a task writes is read, however much it is") {
  const Ended ended = Run({"write"});
  CHECK(ended.out.size() == 1000000);
  CHECK(ended.out.find_first_not_of('x') == std::string::npos);
  CHECK(ended.end.status == 0);
}

TEST_CASE("A line comes in one piece") {
  const auto process = TaskProcess::Start("task", {"halves"}, "").value();
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  std::string first;
  while (first.empty() && std::chrono::steady_clock::now() < deadline) first = process->Read(kALittle).out;
  CHECK(first == "first second\n");
  CHECK(RunToItsEnd(*process).out == "");
}

TEST_CASE("A task that a signal ends says so") {
  const auto process = TaskProcess::Start("task", {"wait"}, "").value();
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (process->Read(kALittle).out != "waits\n" && std::chrono::steady_clock::now() < deadline) {
  }
  CHECK_FALSE(process->Ended());
  process->Signal(SIGTERM);
  CHECK(RunToItsEnd(*process).end.signal == SIGTERM);
}

TEST_CASE("A signal that came ignored ends a task all the same") {
  signal(SIGINT, SIG_IGN);
  const auto process = TaskProcess::Start("task", {"wait"}, "").value();
  signal(SIGINT, SIG_DFL);
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (process->Read(kALittle).out != "waits\n" && std::chrono::steady_clock::now() < deadline) {
  }
  process->Signal(SIGINT);
  CHECK(RunToItsEnd(*process).end.signal == SIGINT);
}

TEST_CASE("A task does not outlive who runs it") {
  pid_t pid = 0;
  {
    const auto process = TaskProcess::Start("task", {"pid"}, "").value();
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    std::string text;
    while (text.empty() && std::chrono::steady_clock::now() < deadline) text = process->Read(kALittle).out;
    pid = std::atoi(text.c_str());
    REQUIRE(pid > 0);
    CHECK(kill(pid, 0) == 0);
  }
  CHECK(kill(pid, 0) != 0);
}

int RunTask(const std::vector<std::string>& arguments) {
  const std::string& task = arguments[1];
  if (task == "print") {
    for (const char* const variable : kOfLauncher) {
      if (std::getenv(variable) != nullptr) std::cout << variable << " is there: ";
    }
    for (const std::string& argument : arguments) std::cout << argument << " ";
    std::cout << "\n" << std::getenv("TF_CONFIG") << " " << std::getenv("OTHER") << std::flush;
    std::cerr << "a line without an end";
    return 3;
  }
  if (task == "write") std::cout << std::string(1000000, 'x');
  if (task == "halves") {
    std::cout << "first " << std::flush;
    usleep(100000);
    std::cout << "second\n";
  }
  if (task == "wait") {
    std::cout << "waits" << std::endl;
    pause();
  }
  if (task == "pid") {
    std::cout << getpid() << std::endl;
    pause();
  }
  std::cout << std::flush;
  return 0;
}

// In a process that is a task, ends it before Catch's main function reads its arguments.
bool EndIfTask() {
  std::vector<std::string> arguments;
  std::ifstream command_line("/proc/self/cmdline");
  for (std::string argument; std::getline(command_line, argument, '\0');) arguments.push_back(argument);
  if (arguments.at(0) == "task") _exit(RunTask(arguments));
  return false;
}
[[maybe_unused]] const bool is_task = EndIfTask();

}  // namespace
}  // namespace official::run
