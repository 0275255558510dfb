// What waits in a Sender when the other side takes frames more slowly than they are sent, over loopback.

#include "utils/distribute/grpc/peer.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {
namespace {

constexpr std::chrono::seconds kLong(60);
constexpr size_t kFrameBytes = 1 << 20;
constexpr int kFrames = 256;

// A worker that admits a stream, and takes the frames in it when it is told to.
class SlowPeer : public grpc::CallbackGenericService {
 public:
  SlowPeer() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~SlowPeer() override { End(); }
  const std::string& address() const { return address_; }
  void TakeFrames() { reactor_.Go(); }
  // Ends all connections.
  void End() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  int num_frames() const { return reactor_.num_frames(); }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    void Begin() { StartRead(&message_); }
    void Go() {
      if (!goes_on_.exchange(true)) StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      if (!admitted_) {
        admitted_ = true;
        return StartSendInitialMetadata();
      }
      std::vector<grpc::Slice> slices;
      message_.Dump(&slices).ok();  // a message without slices is none
      std::vector<absl::string_view> parts;
      for (const grpc::Slice& slice : slices) {
        parts.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
      }
      if (reader_.Take(parts)->frame) ++num_frames_;
      message_.Clear();
      StartRead(&message_);
    }
    void OnCancel() override {
      if (!goes_on_.exchange(true)) Finish(grpc::Status::CANCELLED);  // a read ends it else
    }
    void OnDone() override {}
    int num_frames() const { return num_frames_; }

   private:
    grpc::ByteBuffer message_;
    FrameReader reader_;
    bool admitted_ = false;
    std::atomic<bool> goes_on_ = false;
    std::atomic<int> num_frames_ = 0;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    reactor_.Begin();
    return &reactor_;
  }

  Reactor reactor_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

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
  int before = -1;
  while (before != sent) {
    before = sent;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
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
}

}  // namespace
}  // namespace official::distribute
