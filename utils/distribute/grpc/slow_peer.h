// For tests of waits to send: a worker that takes frames late, or never, over loopback.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {

// A worker that admits each stream, and takes the frames in them when it is told to.
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
  void TakeFrames() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Reactor& reactor : reactors_) reactor.Go();
  }
  // Ends all connections.
  void End() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  // Returns how many whole frames have come.
  int num_frames() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    int num_frames = 0;
    for (const Reactor& reactor : reactors_) num_frames += reactor.num_frames();
    return num_frames;
  }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&message_); }
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
    const std::lock_guard<std::mutex> lock(mutex_);
    return &reactors_.emplace_back();
  }

  mutable std::mutex mutex_;
  std::list<Reactor> reactors_;  // of all streams that were there
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// Waits until a count has stood still for a second, and returns it. While it is less than `least`, as it is at first on
// a busy machine, it is given a minute.
inline int WaitUntilStill(const std::atomic<int>& count, int least = 0) {
  int before = -1;
  for (int seconds = 0; before != count || (before < least && seconds < 60); ++seconds) {
    before = count;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return before;
}

}  // namespace official::distribute
