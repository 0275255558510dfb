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

TEST_CASE("One that has ended in order is no reason to stop, one that is lost is") {
  Mailbox mailbox(TwoWorkers());
  CHECK(mailbox.CheckOf(1).ok());
  mailbox.SetEnded(1, kValues);
  CHECK(mailbox.CheckOf(1).ok());
  mailbox.SetLost(1, "its connection is closed");
  CHECK(absl::IsCancelled(mailbox.CheckOf(1)));
}

TEST_CASE("Nothing more comes from a worker that has failed, on any channel") {
  Mailbox mailbox(TwoWorkers());
  mailbox.SetFailed(1, {"no space left"});
  for (const auto channel : {kSums, kValues}) {
    const absl::Status failed = mailbox.Receive(1, channel, kShort).status();
    CHECK(absl::IsCancelled(failed));
    CHECK_THAT(std::string(failed.message()), Contains("worker 1 at 10.0.0.2:2222 has failed: no space left"));
  }
  mailbox.SetLost(1, "its connection is closed");
  CHECK(mailbox.Lost().empty());
}

TEST_CASE("The first failure, of this worker or another, also ends the waits elsewhere") {
  const int failing = GENERATE(0, 1);
  Mailbox mailbox(TwoWorkers());
  int calls = 0;
  mailbox.SetOnFailed([&] {
    ++calls;
    CHECK(absl::IsCancelled(mailbox.StateOf(1)));
  });
  CHECK(mailbox.SetFailed(failing, {"no space left"}));
  CHECK(calls == 1);
  CHECK(!mailbox.SetFailed(1 - failing, {"late"}));
  CHECK(calls == 1);
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
  mailbox.SetOnFailed([] { FAIL("the job goes on"); });
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

TEST_CASE("What comes from an earlier process of a worker that is back is dropped") {
  Mailbox mailbox(WithServers(3));
  REQUIRE(mailbox.Admit({1, 0}, "10.0.0.2:1"));
  CHECK(mailbox.Put({1, 0}, kSums, "early"));
  CHECK(mailbox.Put({1, 0}, kValues, "early"));
  // The new process says so before the loss of the old one is noticed.
  CHECK(mailbox.Admit({1, 1}, "10.0.0.9:2"));
  CHECK(!mailbox.Admit({1, 0}, "10.0.0.2:1"));
  CHECK(!mailbox.Put({1, 0}, kSums, "late"));
  mailbox.SetEnded({1, 0}, kSums);
  mailbox.SetFailed({1, 0}, {"late"});
  mailbox.SetLost({1, 0}, "late");
  CHECK(mailbox.Put({1, 1}, kSums, "new"));
  // Nobody takes frames of the new one for those of the old one.
  for (const auto channel : {kSums, kValues}) {
    const absl::Status lost = mailbox.Receive(1, channel, kLong).status();
    CHECK(absl::IsUnavailable(lost));
    CHECK_THAT(std::string(lost.message()), Contains("was lost (it was started again)"));
  }
  CHECK(!mailbox.IsGone(1));
  CHECK(mailbox.Lost().empty());
  const Mailbox::Returned returned = mailbox.WaitForReturn(1, kLong).value();
  CHECK(returned.process.incarnation == 1);
  CHECK(returned.address == "10.0.0.9:2");
  CHECK(mailbox.NameOf(1) == "worker 1 at 10.0.0.9:2");
  CHECK(mailbox.Receive(1, kSums, kLong).value() == "new");
  CHECK(absl::IsDeadlineExceeded(mailbox.Receive(1, kValues, kShort).status()));
}

TEST_CASE("A worker is taken back when the process before is gone, and again and again") {
  Mailbox mailbox(WithServers(0));
  for (int incarnation = 1; incarnation <= 3; ++incarnation) {
    CHECK(!mailbox.TakeBack(1, "10.0.0.2:1"));
    mailbox.SetLost({1, incarnation - 1}, "its connection is closed");
    CHECK(mailbox.Lost() == std::vector<int>{1});
    CHECK(absl::IsDeadlineExceeded(mailbox.WaitForReturn(1, std::chrono::milliseconds(0)).status()));
    CHECK(mailbox.TakeBack(1, "10.0.0.2:1") == incarnation);
    CHECK(mailbox.Admit({1, incarnation}, "10.0.0.2:1"));
    CHECK(mailbox.WaitForReturn(1, kLong).value().process.incarnation == incarnation);
    CHECK(mailbox.Lost().empty());
  }
  // Two that nobody has waited for.
  for (const int incarnation : {4, 5}) {
    mailbox.SetLost({1, incarnation - 1}, "its connection is closed");
    CHECK(mailbox.TakeBack(1, "10.0.0.2:1") == incarnation);
    mailbox.Put({1, incarnation}, kSums, incarnation == 4 ? "fourth" : "fifth");
  }
  CHECK(mailbox.WaitForReturn(1, kLong).value().process.incarnation == 5);
  CHECK(mailbox.Receive(1, kSums, kLong).value() == "fifth");
}

TEST_CASE("A worker that is taken back and does not connect is lost, and may come again") {
  ConnectOptions options = WithServers(0);
  options.peer_timeout = kLong;
  Mailbox patient(options);
  patient.SetFailed({1, 0}, {"no space left"});
  REQUIRE(patient.TakeBack(1, "10.0.0.2:1") == 1);
  CHECK(!patient.TakeBack(1, "10.0.0.2:1"));

  options.peer_timeout = kShort;
  Mailbox mailbox(options);
  mailbox.SetFailed({1, 0}, {"no space left"});
  REQUIRE(mailbox.TakeBack(1, "10.0.0.2:1") == 1);
  REQUIRE(mailbox.WaitForReturn(1, kLong).ok());
  const absl::Status lost = mailbox.Receive(1, kSums, kLong).status();
  CHECK(absl::IsUnavailable(lost));
  CHECK_THAT(std::string(lost.message()), Contains("was lost (it has not connected)"));
  CHECK(!mailbox.Admit({1, 1}, "10.0.0.2:1"));
  CHECK(mailbox.TakeBack(1, "10.0.0.2:1") == 2);
}

TEST_CASE("Who waits for a worker to come back learns that the job has failed, or that the chief is lost") {
  Mailbox mailbox(WithServers(3));
  mailbox.SetLost({1, 0}, "its connection is closed");
  const bool fails = GENERATE(false, true);
  if (fails) {
    mailbox.SetFailed(4, {"no space left"});
  } else {
    mailbox.SetLost(0, "its connection is closed");
  }
  const absl::Status over = mailbox.WaitForReturn(1, kLong).status();
  CHECK(absl::IsCancelled(over));
  CHECK_THAT(std::string(over.message()),
             Contains(fails ? "ps 1 at 10.0.0.5:1 has failed: no space left" : "worker 0 at 10.0.0.1:1"));
}

TEST_CASE("The chief and the parameter servers do not come back") {
  Mailbox mailbox(WithServers(1));
  for (const int other : {0, 3, 4}) CHECK(!mailbox.Admit({other, 1}, "10.0.0.9:1"));
}

TEST_CASE("A worker that has lost the others is told that it may come back alone") {
  Mailbox mailbox(WithServers(1));
  mailbox.SetLost(0, "its connection is closed");
  CHECK_THAT(std::string(mailbox.StateOf(0).message()), Contains("start this worker again: it takes part again"));
}

}  // namespace
}  // namespace official::distribute
