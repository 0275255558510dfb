#include "utils/compute/pjrt/call_watch.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace official::compute {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a CallWatch has said.
struct Said {
  std::mutex mutex;
  std::vector<std::string> messages;
  std::vector<absl::Status> ends;

  // Waits for what the watch says, a minute at most.
  void WaitUntil(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (std::unique_lock<std::mutex> lock(mutex); !holds() && std::chrono::steady_clock::now() < end; lock.lock()) {
      lock.unlock();
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  PjrtWaits Waits() {
    return {.deadline = seconds(2),
            .compile_deadline = seconds(3),
            .set_by = "--all_reduce_timeout_secs",
            .compile_set_by = "--compile_timeout_secs",
            .tell_every = seconds(1),
            .tell =
                [this](const std::string& message) {
                  const std::lock_guard<std::mutex> lock(mutex);
                  messages.push_back(message);
                },
            .end =
                [this](const absl::Status& status) {
                  const std::lock_guard<std::mutex> lock(mutex);
                  ends.push_back(status);
                }};
  }
};

TEST_CASE("A call that does not return is told of every so often and ends the process at its deadline") {
  Said said;
  CallWatch watch("plugin.so", said.Waits());
  {
    const CallWatch::Call call(watch, "compiling a program", CallWatch::Kind::kCompile);
    said.WaitUntil([&] { return !said.ends.empty(); });
  }
  const std::lock_guard<std::mutex> lock(said.mutex);
  REQUIRE(said.messages.size() >= 2);
  CHECK(said.messages[0] ==
        "compiling a program: the PJRT plugin plugin.so has not done this for 1 s; the run ends after 3 s "
        "(--compile_timeout_secs)");
  CHECK_THAT(said.messages[1], Catch::Contains("has not done this for 2 s"));
  REQUIRE(said.ends.size() == 1);
  CHECK(said.ends[0] == absl::DeadlineExceededError("compiling a program: the PJRT plugin plugin.so has not done this "
                                                    "within 3 s; --compile_timeout_secs sets how long it may take"));
}

TEST_CASE("Calls that return in time end nothing, however long they take together") {
  Said said;
  CallWatch watch("plugin.so", said.Waits());
  for (int i = 0; i < 7; ++i) {
    const CallWatch::Call call(watch, "running a program");
    std::this_thread::sleep_for(milliseconds(500));
  }
  const std::lock_guard<std::mutex> lock(said.mutex);
  CHECK(said.ends.empty());
}

TEST_CASE("A wait that has an end of its own is told of and does not end the process") {
  Said said;
  CallWatch watch("plugin.so", said.Waits());
  {
    const CallWatch::Call wait = watch.Wait("running a program");
    said.WaitUntil([&] { return said.messages.size() >= 3; });
  }
  const std::lock_guard<std::mutex> lock(said.mutex);
  REQUIRE(!said.messages.empty());
  CHECK(said.messages[0] ==
        "running a program: the PJRT plugin plugin.so has not done this for 1 s; the run ends after 2 s "
        "(--all_reduce_timeout_secs)");
  CHECK(said.ends.empty());
}

}  // namespace
}  // namespace official::compute
