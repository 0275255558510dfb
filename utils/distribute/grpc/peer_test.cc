// What waits in a Sender when the other side takes frames more slowly than they are sent, over loopback.

#include "utils/distribute/grpc/peer.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>

#include "absl/strings/string_view.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/slow_peer.h"

namespace official::distribute {
namespace {

constexpr std::chrono::seconds kLong(60);
constexpr size_t kFrameBytes = 1 << 20;
constexpr int kFrames = 256;

TEST_CASE("A sender waits while much that was sent before has not left") {
  SlowPeer peer;
  Sender sender(MakeChannel(peer.address(), ConnectOptions()), "hello", [](absl::string_view) {});
  const std::string frame(kFrameBytes, 'x');
  const auto send = [&] { sender.SendFrame({frame}); };
  // With the first frame the peer has admitted the stream.
  send();
  sender.Flush(std::chrono::steady_clock::now() + kLong);
  std::atomic<int> sent = 0;
  std::future<void> all_sent = std::async(std::launch::async, [&] {
    for (; sent < kFrames; ++sent) send();
  });
  const int before = WaitUntilStill(sent);
  // Some are under way in gRPC and in the system.
  constexpr int kMostUnderWay = 64;
  CHECK(before < Sender::kMostQueuedBytes / kFrameBytes + kMostUnderWay);

  SECTION("all arrive when the other side takes them") {
    peer.TakeFrames();
    REQUIRE(all_sent.wait_for(kLong) == std::future_status::ready);
    sender.SendEnd();
    CHECK(sender.WaitUntilTaken(kLong));
    CHECK(peer.num_frames() == 1 + kFrames);
  }
  SECTION("the wait ends with the connection") {
    peer.End();
    CHECK(all_sent.wait_for(kLong) == std::future_status::ready);
  }
  SECTION("the wait ends with the last message") {
    sender.SendFailure({"a disk is full"});
    CHECK(all_sent.wait_for(kLong) == std::future_status::ready);
    CHECK(peer.num_frames() == 0);
  }
  SECTION("the wait ends when it is told to, and all that did not wait arrives") {
    sender.EndWaits();
    CHECK(all_sent.wait_for(kLong) == std::future_status::ready);
    peer.TakeFrames();
    sender.SendEnd();
    CHECK(sender.WaitUntilTaken(kLong));
    CHECK(peer.num_frames() >= 1 + before);
    CHECK(peer.num_frames() < 1 + kFrames);
  }
}

}  // namespace
}  // namespace official::distribute
