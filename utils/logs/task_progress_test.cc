#include "utils/logs/task_progress.h"

#include <catch2/catch.hpp>
#include <limits>
#include <thread>
#include <vector>

#include "utils/logs/captured_log.h"
#include "utils/logs/terminal.h"

namespace official::logs {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::Matches;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A task with a clock of its own.
class Task {
 public:
  explicit Task(TaskProgressOptions options) : progress_(WithClock(std::move(options))) {}

  // What is shown when so much more time has passed.
  void After(milliseconds time) {
    now_ += time;
    progress_.Tick();
  }
  TaskProgress* operator->() { return &progress_; }

 private:
  TaskProgressOptions WithClock(TaskProgressOptions options) {
    options.now = [this] { return now_; };
    return options;
  }

  std::chrono::steady_clock::time_point now_;
  TaskProgress progress_;
};

// The live line as it was drawn last.
std::string LastDrawn(const std::string& text) { return text.substr(text.rfind("\x1b[K") + 3); }

TEST_CASE("bar: nothing before a second has passed, then a line at every change") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "evaluating step 600", .total = 10000, .unit = "examples"});
  task->Add(100);
  task.After(milliseconds(900));
  CHECK(log.Text().empty());
  task->Add(400);
  task.After(milliseconds(100));
  CHECK(LastDrawn(log.Text()) == "evaluating step 600   5% [>              ] 500/10000 examples, 0:01, 0:19 left");
  const size_t size = log.Text().size();
  task.After(milliseconds(0));
  CHECK(log.Text().size() == size);
  task->Add(1500);
  task.After(milliseconds(1000));
  CHECK(LastDrawn(log.Text()) == "evaluating step 600  20% [==>           ] 2000/10000 examples, 0:02, 0:08 left");
}

TEST_CASE("bar: the line goes with the task, and one that was never drawn leaves no trace") {
  CapturedLog log(LogFormat::kBar);
  {
    Task task({.title = "short"});
    task.After(milliseconds(500));
  }
  CHECK(log.Text().empty());
  {
    Task task({.title = "long"});
    task.After(seconds(1));
  }
  CHECK(log.Text() == "\r\x1b[Klong, 0:01\r\x1b[K");
}

TEST_CASE("bar: a test sees the beginning and the end of every task") {
  CapturedTasks log;
  {
    TaskProgress progress({.title = "short", .total = 4, .unit = "files"});
    progress.Add(4);
  }
  CHECK_THAT(log.Text(),
             Contains("short   0% [") && Contains("0/4 files") && Contains("short 100% [") && Contains("4/4 files"));
}

TEST_CASE("bar: without a total there is no percent; bytes are megabytes; the clock moves all the same") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "reading", .unit = "B"});
  task->Set(12'500'000);
  task.After(seconds(5));
  CHECK(LastDrawn(log.Text()) == "reading, 12.5 MB, 2.5 MB/s, 0:05");
  task.After(seconds(1));
  CHECK(LastDrawn(log.Text()) == "reading, 12.5 MB, 2.1 MB/s, 0:06");
}

TEST_CASE("bar: what was done before does not count for the speed") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "downloading", .total = 100'000'000, .unit = "B", .done = 50'000'000});
  task->Add(10'000'000);
  task.After(seconds(10));
  CHECK(LastDrawn(log.Text()) == "downloading  60% [==========>       ] 60.0/100.0 MB, 1.0 MB/s, 0:10, 0:40 left");
}

TEST_CASE("bar: more than the total is 100 %, and no time is left") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "reading", .total = 10, .unit = "lines"});
  task->Add(12);
  task.After(seconds(2));
  CHECK_THAT(LastDrawn(log.Text()), Contains("100%") && EndsWith("0:00 left"));
}

TEST_CASE("bar: a time left that no int64 holds is 2^62 s") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "reading", .total = std::numeric_limits<int64_t>::max(), .unit = "lines"});
  task->Add(1);
  task.After(seconds(2));
  CHECK_THAT(LastDrawn(log.Text()), EndsWith(", 1281023894007607:45:04 left"));
}

TEST_CASE("bar: a title moves no cursor") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "reading a\nb\x1b[2J"});
  task.After(seconds(1));
  CHECK(LastDrawn(log.Text()) == "reading a?b?[2J, 0:01");
}

TEST_CASE("simple: a line every 30 s") {
  CapturedLog log(LogFormat::kSimple);
  Task task({.title = "evaluating step 600", .total = 10000, .unit = "examples"});
  task->Add(1000);
  task.After(seconds(29));
  CHECK(log.Text().empty());
  task.After(seconds(1));
  CHECK_THAT(log.Text(),
             Matches("I [^ ]* evaluating step 600, 10%, 1000/10000 examples, 33\\.3 examples/s, 0:30, 4:30 left\n"));
  for (int second = 0; second < 60; ++second) task.After(seconds(1));
  const std::string text = log.Text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
}

TEST_CASE("json: an event with all numbers, null for what is not known") {
  CapturedLog log(LogFormat::kJson);
  Task task({.title = "reading a", .total = 4'000'000, .unit = "B"});
  task->Add(3'000'000);
  task.After(seconds(30));
  CHECK_THAT(log.Text(), EndsWith(R"("task": "reading a", "done": 3000000, "total": 4000000, "unit": "bytes", )"
                                  R"("per_sec": 100000.0, "elapsed_sec": 30.0, "eta_sec": 10.0})"
                                  "\n"));
  CHECK_THAT(log.Text(), Contains(R"("event": "progress", "message": "reading a, 75%, 3.0/4.0 MB, )"));
  Task other({.title = "making the vocabulary"});
  other.After(seconds(30));
  CHECK_THAT(log.Text(), EndsWith(R"("task": "making the vocabulary", "done": null, "total": null, "unit": null, )"
                                  R"("per_sec": null, "elapsed_sec": 30.0, "eta_sec": null})"
                                  "\n"));
}

TEST_CASE("Threads count together") {
  CapturedLog log(LogFormat::kBar);
  Task task({.title = "converting", .total = 4000, .unit = "images"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) task->Add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  task.After(seconds(1));
  CHECK_THAT(log.Text(), Contains("100%") && Contains("4000/4000 images"));
}

TEST_CASE("A task with a thread of its own is shown without being asked") {
  CapturedLog log(LogFormat::kBar);
  TaskProgress progress({.title = "waiting"});
  while (log.Text().empty()) std::this_thread::sleep_for(milliseconds(1));
  CHECK_THAT(log.Text(), Contains("waiting, 0:0"));
}

}  // namespace
}  // namespace official::logs
