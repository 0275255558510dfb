#include "utils/distribute/grpc/mailbox.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
constexpr auto kSums = Exchange::Channel::kSums;
constexpr auto kValues = Exchange::Channel::kValues;
constexpr std::chrono::seconds kLong(60), kShort(1);
// Longer than the reason of an end is waited for.
constexpr std::chrono::milliseconds kLater(500);

ConnectOptions TwoWorkers() {
  ConnectOptions options;
  options.addresses = {"10.0.0.1:2222", "10.0.0.2:2222"};
  return options;
}

TEST_CASE("A frame that comes after the end of the other channel, as packets are sent again, is received") {
  Mailbox mailbox(TwoWorkers());
  mailbox.SetEnded(1, kSums);
  std::thread late([&] {
    std::this_thread::sleep_for(kLater);
    mailbox.Put(1, kValues, "accuracy");
    mailbox.SetEnded(1, kValues);
  });
  CHECK(mailbox.Receive(1, kValues, kLong).value() == "accuracy");
  late.join();
  CHECK_THAT(std::string(mailbox.Receive(1, kValues, kLong).status().message()),
             Contains("worker 1 at 10.0.0.2:2222 has ended its run"));
}

TEST_CASE("A worker that has ended on one channel wants nothing more, and is lost if the other one breaks") {
  Mailbox mailbox(TwoWorkers());
  mailbox.SetEnded(1, kSums);
  CHECK(mailbox.IsGone(1));
  CHECK(absl::IsCancelled(mailbox.StateOf(1)));
  mailbox.SetLost(1, "its connection is closed");
  const absl::Status lost = mailbox.Receive(1, kValues, kLong).status();
  CHECK(absl::IsCancelled(lost));
  CHECK_THAT(std::string(lost.message()), Contains("was lost (its connection is closed)"));
}

TEST_CASE("A worker that has ended on both channels is not lost when its connections go") {
  Mailbox mailbox(TwoWorkers());
  mailbox.SetEnded(1, kSums);
  mailbox.SetEnded(1, kValues);
  mailbox.SetLost(1, "its connection is closed");
  CHECK(mailbox.Lost().empty());
  CHECK(!mailbox.FirstLost());
}

TEST_CASE("Nothing more comes from a worker that has failed, on any channel") {
  Mailbox mailbox(TwoWorkers());
  mailbox.SetFailed(1, {"no space left"});
  for (const auto channel : {kSums, kValues}) {
    const absl::Status failed = mailbox.Receive(1, channel, kShort).status();
    CHECK(absl::IsCancelled(failed));
    CHECK_THAT(std::string(failed.message()), Contains("worker 1 has failed: no space left"));
  }
  mailbox.SetLost(1, "its connection is closed");
  CHECK(mailbox.Lost().empty());
}

// Worker 0, workers 1 and 2, and two servers.
ConnectOptions WithServers(int worker) {
  ConnectOptions options;
  options.worker = worker;
  options.addresses = {"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"};
  options.num_servers = 2;
  return options;
}

TEST_CASE("With parameter servers, a worker that is lost or fails ends only the waits for itself") {
  const bool fails = GENERATE(false, true);
  Mailbox mailbox(WithServers(3));
  if (fails) {
    mailbox.SetFailed(1, {"no space left"});
  } else {
    mailbox.SetLost(1, "its connection is closed");
  }
  const absl::Status lost = mailbox.Receive(1, kSums, kLong).status();
  CHECK(absl::IsUnavailable(lost));
  CHECK_THAT(std::string(lost.message()), Contains(fails ? "worker 1 at 10.0.0.2:1 has ended its run: no space left"
                                                         : "worker 1 at 10.0.0.2:1 was lost"));
  for (const int other : {0, 1, 2, 4}) CHECK(mailbox.StateOf(other).ok());
  CHECK(absl::IsDeadlineExceeded(mailbox.Receive(2, kSums, kShort).status()));
  mailbox.Put(2, kSums, "gradients");
  CHECK(mailbox.Receive(2, kSums, kLong).value() == "gradients");
  CHECK(!mailbox.FirstLost());
}

TEST_CASE("Without the chief or a parameter server all waits end, and the error names it") {
  for (const auto& [lost, name] : {std::pair{0, "worker 0 at 10.0.0.1:1"}, {4, "ps 1 at 10.0.0.5:1"}}) {
    Mailbox mailbox(WithServers(3));
    mailbox.SetLost(lost, "its connection is closed");
    for (const int from : {1, lost}) {
      const absl::Status status = mailbox.Receive(from, kSums, kLong).status();
      CHECK(absl::IsCancelled(status));
      CHECK_THAT(std::string(status.message()), Contains(std::string(name) + " was lost (its connection is closed)"));
    }
    CHECK(absl::IsCancelled(mailbox.StateOf(lost)));
  }
}

}  // namespace
}  // namespace official::distribute
