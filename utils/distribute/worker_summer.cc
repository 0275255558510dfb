#include "utils/distribute/worker_summer.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/ordered_sum.h"

namespace official::distribute {
namespace {

using compute::Share;
using Buffer = PackSummer::Buffer;
constexpr Exchange::Channel kSums = Exchange::Channel::kSums;

// Calls f(buffer, at, n) for the pieces of elements [begin, end) of buffers that are taken one after the other; a piece
// begins at element `at` of those.
template <typename F>
void ForPieces(const std::vector<Buffer>& buffers, const Share& elements, const F& f) {
  int64_t first = 0;  // element of the buffer
  for (const Buffer& buffer : buffers) {
    const int64_t begin = std::max(elements.begin, first), end = std::min(elements.end, first + buffer.elements);
    if (begin < end) f(buffer.data + (begin - first), begin - elements.begin, end - begin);
    first += buffer.elements;
  }
}

void CopyOut(const std::vector<Buffer>& buffers, const Share& elements, float* out) {
  ForPieces(buffers, elements, [&](const float* data, int64_t at, int64_t n) { std::copy_n(data, n, out + at); });
}

void CopyIn(const float* in, const Share& elements, const std::vector<Buffer>& buffers) {
  ForPieces(buffers, elements, [&](float* data, int64_t at, int64_t n) { std::copy_n(in + at, n, data); });
}

absl::string_view BytesOf(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

class WorkerSummer : public PackSummer {
 public:
  WorkerSummer(std::vector<compute::Share> replicas, Exchange& exchange, std::chrono::seconds deadline)
      : replicas_(std::move(replicas)), exchange_(exchange), deadline_(deadline), worker_(exchange.worker()) {
    for (const compute::Share& held : replicas_) {
      nodes_.push_back(CoverNodes(num_replicas(), held));
      all_nodes_.insert(all_nodes_.end(), nodes_.back().begin(), nodes_.back().end());
    }
    thread_ = std::thread([this] { Loop(); });
  }
  ~WorkerSummer() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void Begin(int pack, absl::Span<const std::vector<Buffer>> buffers) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (pack >= static_cast<int>(is_summed_.size())) is_summed_.resize(pack + 1);
    is_summed_[pack] = false;
    given_.push_back({pack, buffers});
    changed_.notify_all();
  }
  // One thread waits for the whole pack.
  int64_t Share(int64_t left) const override { return left; }
  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return is_summed_[pack] || !status_.ok(); });
    return status_;
  }
  void Abort() override { exchange_.Fail(); }
  // Nothing is left to be summed after that; the buffers may go.
  absl::Status Reset() override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !summing_; });
    given_.clear();
    return absl::FailedPreconditionError("a worker has failed, and with it the job");
  }

 private:
  struct Given {
    int pack;
    absl::Span<const std::vector<Buffer>> buffers;  // [local device]
  };

  int num_replicas() const { return static_cast<int>(replicas_.back().end); }
  int num_workers() const { return static_cast<int>(replicas_.size()); }

  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !given_.empty(); });
      if (ending_ || !status_.ok()) return;
      const Given given = given_.front();
      given_.pop_front();
      summing_ = true;
      lock.unlock();
      const absl::Status status = SumPack(given.buffers);
      lock.lock();
      summing_ = false;
      status_ = status;
      is_summed_[given.pack] = status.ok();
      changed_.notify_all();
    }
  }

  absl::Status SumPack(absl::Span<const std::vector<Buffer>> buffers) {
    int64_t elements = 0;
    for (const Buffer& b : buffers[0]) elements += b.elements;
    AddOwnReplicas(buffers);
    RETURN_IF_ERROR(SendToOwners(buffers, elements));
    RETURN_IF_ERROR(SumOwnSegment(buffers, SegmentOf(elements, worker_, num_workers())));
    return TakeOtherSegments(buffers, elements);
  }

  // The buffers of the replica that a node begins with.
  const std::vector<Buffer>& SumOf(absl::Span<const std::vector<Buffer>> buffers, int64_t replica) const {
    return buffers[replica - replicas_[worker_].begin];
  }

  // Makes each node's sum in the buffers of its first replica.
  void AddOwnReplicas(absl::Span<const std::vector<Buffer>> buffers) {
    const auto add = [&](int a, int b) {
      for (size_t i = 0; i < buffers[0].size(); ++i) {
        AddTo(SumOf(buffers, a)[i].data, SumOf(buffers, b)[i].data, buffers[0][i].elements);
      }
    };
    for (const compute::Share& node : nodes_[worker_]) JoinReplicas(node, add);
  }

  // Sends to each other worker, of the segment that it adds up, this worker's nodes one after the other.
  absl::Status SendToOwners(absl::Span<const std::vector<Buffer>> buffers, int64_t elements) {
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      const compute::Share segment = SegmentOf(elements, w, num_workers());
      frame_.resize(segment.size() * nodes_[worker_].size());
      float* out = frame_.data();
      for (const compute::Share& node : nodes_[worker_]) {
        CopyOut(SumOf(buffers, node.begin), segment, out);
        out += segment.size();
      }
      RETURN_IF_ERROR(exchange_.Send(w, kSums, BytesOf(frame_)));
    }
    return absl::OkStatus();
  }

  // Adds up all nodes of this worker's segment, stores the sum in all its buffers and sends it to the others.
  absl::Status SumOwnSegment(absl::Span<const std::vector<Buffer>> buffers, const compute::Share& segment) {
    const int64_t n = segment.size();
    sums_.resize(n * all_nodes_.size());
    std::vector<float*> of_replica(num_replicas(), nullptr);  // the node that begins with it
    float* out = sums_.data();
    for (int w = 0; w < num_workers(); ++w) {
      if (w != worker_) RETURN_IF_ERROR(Receive(w, n * static_cast<int64_t>(nodes_[w].size()), out));
      for (const compute::Share& node : nodes_[w]) {
        if (w == worker_) CopyOut(SumOf(buffers, node.begin), segment, out);
        of_replica[node.begin] = out;
        out += n;
      }
    }
    JoinNodes(num_replicas(), all_nodes_, [&](int a, int b) { AddTo(of_replica[a], of_replica[b], n); });
    sums_.resize(n);  // what is left is the sum
    for (const std::vector<Buffer>& own : buffers) CopyIn(sums_.data(), segment, own);
    for (int w = 0; w < num_workers(); ++w) {
      if (w != worker_) RETURN_IF_ERROR(exchange_.Send(w, kSums, BytesOf(sums_)));
    }
    return absl::OkStatus();
  }

  absl::Status TakeOtherSegments(absl::Span<const std::vector<Buffer>> buffers, int64_t elements) {
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      const compute::Share segment = SegmentOf(elements, w, num_workers());
      frame_.resize(segment.size());
      RETURN_IF_ERROR(Receive(w, segment.size(), frame_.data()));
      for (const std::vector<Buffer>& own : buffers) CopyIn(frame_.data(), segment, own);
    }
    return absl::OkStatus();
  }

  absl::Status Receive(int worker, int64_t n, float* out) {
    ASSIGN_OR_RETURN(const std::string bytes, exchange_.Receive(worker, kSums, deadline_));
    if (bytes.size() != n * sizeof(float)) {
      return absl::InternalError(absl::StrCat("worker ", worker, " has sent ", bytes.size(), " bytes of a sum, not ",
                                              n * sizeof(float), "; do all workers run the same program and flags?"));
    }
    if (n > 0) std::memcpy(out, bytes.data(), bytes.size());  // an empty segment has no address
    return absl::OkStatus();
  }

  const std::vector<compute::Share> replicas_;      // by worker
  std::vector<std::vector<compute::Share>> nodes_;  // by worker
  std::vector<compute::Share> all_nodes_;
  Exchange& exchange_;
  const std::chrono::seconds deadline_;
  const int worker_;
  std::vector<float> frame_, sums_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Given> given_;      // not yet taken by the thread
  std::vector<char> is_summed_;  // by pack, in this step
  absl::Status status_;          // an error, after which there are no sums any more
  bool summing_ = false;         // the thread works on a pack
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<PackSummer> MakeWorkerSummer(std::vector<compute::Share> replicas, Exchange& exchange,
                                             std::chrono::seconds deadline) {
  return std::make_unique<WorkerSummer>(std::move(replicas), exchange, deadline);
}

}  // namespace official::distribute
