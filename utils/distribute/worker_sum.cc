#include "utils/distribute/worker_sum.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/ordered_sum.h"

namespace official::distribute {
namespace {

using compute::Share;
using Buffer = WorkerSum::Buffer;
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

int64_t ElementsOf(const std::vector<Buffer>& buffers) {
  int64_t elements = 0;
  for (const Buffer& b : buffers) elements += b.elements;
  return elements;
}

absl::string_view BytesOf(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// Sends and receives parts of packs.
class Connection {
 public:
  Connection(Exchange& exchange, std::chrono::seconds deadline) : exchange_(exchange), deadline_(deadline) {}

  int worker() const { return exchange_.worker(); }
  int num_workers() const { return exchange_.num_workers(); }
  absl::Status Send(int worker, const std::vector<float>& numbers) {
    return exchange_.Send(worker, kSums, BytesOf(numbers));
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

 private:
  Exchange& exchange_;
  const std::chrono::seconds deadline_;
};

// Each worker adds up what its own devices hold, as far as the tree of all replicas has that in one subtree, and then
// one segment of the pack for all.
class OrderedWorkerSum : public WorkerSum {
 public:
  OrderedWorkerSum(std::vector<Share> replicas, Connection connection)
      : replicas_(std::move(replicas)), connection_(connection), worker_(connection.worker()) {
    for (const Share& held : replicas_) {
      nodes_.push_back(CoverNodes(num_replicas(), held));
      all_nodes_.insert(all_nodes_.end(), nodes_.back().begin(), nodes_.back().end());
    }
  }

  absl::Status Sum(absl::Span<const std::vector<Buffer>> buffers) override {
    const int64_t elements = ElementsOf(buffers[0]);
    AddOwnReplicas(buffers);
    RETURN_IF_ERROR(SendToOwners(buffers, elements));
    RETURN_IF_ERROR(SumOwnSegment(buffers, SegmentOf(elements, worker_, num_workers())));
    return TakeOtherSegments(buffers, elements);
  }

 private:
  int num_replicas() const { return static_cast<int>(replicas_.back().end); }
  int num_workers() const { return static_cast<int>(replicas_.size()); }

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
    for (const Share& node : nodes_[worker_]) JoinReplicas(node, add);
  }

  // Sends to each other worker, of the segment that it adds up, this worker's nodes one after the other.
  absl::Status SendToOwners(absl::Span<const std::vector<Buffer>> buffers, int64_t elements) {
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      const Share segment = SegmentOf(elements, w, num_workers());
      frame_.resize(segment.size() * nodes_[worker_].size());
      float* out = frame_.data();
      for (const Share& node : nodes_[worker_]) {
        CopyOut(SumOf(buffers, node.begin), segment, out);
        out += segment.size();
      }
      RETURN_IF_ERROR(connection_.Send(w, frame_));
    }
    return absl::OkStatus();
  }

  // Adds up all nodes of this worker's segment, stores the sum in all its buffers and sends it to the others.
  absl::Status SumOwnSegment(absl::Span<const std::vector<Buffer>> buffers, const Share& segment) {
    const int64_t n = segment.size();
    sums_.resize(n * all_nodes_.size());
    std::vector<float*> of_replica(num_replicas(), nullptr);  // the node that begins with it
    float* out = sums_.data();
    for (int w = 0; w < num_workers(); ++w) {
      if (w != worker_) RETURN_IF_ERROR(connection_.Receive(w, n * static_cast<int64_t>(nodes_[w].size()), out));
      for (const Share& node : nodes_[w]) {
        if (w == worker_) CopyOut(SumOf(buffers, node.begin), segment, out);
        of_replica[node.begin] = out;
        out += n;
      }
    }
    JoinNodes(num_replicas(), all_nodes_, [&](int a, int b) { AddTo(of_replica[a], of_replica[b], n); });
    sums_.resize(n);  // what is left is the sum
    for (const std::vector<Buffer>& own : buffers) CopyIn(sums_.data(), segment, own);
    for (int w = 0; w < num_workers(); ++w) {
      if (w != worker_) RETURN_IF_ERROR(connection_.Send(w, sums_));
    }
    return absl::OkStatus();
  }

  absl::Status TakeOtherSegments(absl::Span<const std::vector<Buffer>> buffers, int64_t elements) {
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      const Share segment = SegmentOf(elements, w, num_workers());
      frame_.resize(segment.size());
      RETURN_IF_ERROR(connection_.Receive(w, segment.size(), frame_.data()));
      for (const std::vector<Buffer>& own : buffers) CopyIn(frame_.data(), segment, own);
    }
    return absl::OkStatus();
  }

  const std::vector<Share> replicas_;      // by worker
  std::vector<std::vector<Share>> nodes_;  // by worker
  std::vector<Share> all_nodes_;
  Connection connection_;
  const int worker_;
  std::vector<float> frame_, sums_;
};

// The segments go around twice: first each worker adds its own to what comes, then it passes the sums on.
class RingSum : public WorkerSum {
 public:
  explicit RingSum(Connection connection) : connection_(connection) {}

  absl::Status Sum(absl::Span<const std::vector<Buffer>> buffers) override {
    const int n = connection_.num_workers(), worker = connection_.worker();
    const int64_t elements = ElementsOf(buffers[0]);
    AddOwnReplicas(buffers);
    const int next = (worker + 1) % n, before = (worker + n - 1) % n;
    // After round r < n - 1, a worker holds what r + 2 workers have of one segment; after the last of these all of it.
    for (int round = 0; round < 2 * (n - 1); ++round) {
      const Share sent = SegmentOf(elements, (worker + 2 * n - round) % n, n);
      const Share taken = SegmentOf(elements, (worker + 2 * n - round - 1) % n, n);
      frame_.resize(sent.size());
      CopyOut(buffers[0], sent, frame_.data());
      RETURN_IF_ERROR(connection_.Send(next, frame_));
      frame_.resize(taken.size());
      RETURN_IF_ERROR(connection_.Receive(before, taken.size(), frame_.data()));
      if (round < n - 1) {
        ForPieces(buffers[0], taken, [&](float* data, int64_t at, int64_t m) { AddTo(data, frame_.data() + at, m); });
      } else {
        CopyIn(frame_.data(), taken, buffers[0]);
      }
    }
    CopyToDevices(buffers);
    return absl::OkStatus();
  }

 private:
  // Makes the sum of the local replicas in the buffers of the first.
  static void AddOwnReplicas(absl::Span<const std::vector<Buffer>> buffers) {
    JoinReplicas({0, static_cast<int64_t>(buffers.size())}, [&](int a, int b) {
      for (size_t i = 0; i < buffers[0].size(); ++i) {
        AddTo(buffers[a][i].data, buffers[b][i].data, buffers[0][i].elements);
      }
    });
  }

  static void CopyToDevices(absl::Span<const std::vector<Buffer>> buffers) {
    for (size_t d = 1; d < buffers.size(); ++d) {
      for (size_t i = 0; i < buffers[0].size(); ++i) {
        std::copy_n(buffers[0][i].data, buffers[0][i].elements, buffers[d][i].data);
      }
    }
  }

  Connection connection_;
  std::vector<float> frame_;
};

}  // namespace

std::unique_ptr<WorkerSum> MakeWorkerSum(WorkerSumOrder order, std::vector<Share> replicas, Exchange& exchange,
                                         std::chrono::seconds deadline) {
  const Connection connection(exchange, deadline);
  if (order == WorkerSumOrder::kRing) return std::make_unique<RingSum>(connection);
  return std::make_unique<OrderedWorkerSum>(std::move(replicas), connection);
}

}  // namespace official::distribute
