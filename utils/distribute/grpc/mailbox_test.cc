#include "utils/distribute/grpc/mailbox.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

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

}  // namespace
}  // namespace official::distribute
