#include "utils/distribute/worker_sum.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/ordered_sum.h"

namespace official::distribute {
namespace {

using compute::Share;
using Buffer = WorkerSum::Buffer;
constexpr Exchange::Channel kSums = Exchange::Channel::kSums;
// Of so few elements every worker adds up all: one message takes longer than what it spares.
constexpr int64_t kFewElements = 1 << 12;

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

void CopyIn(const float* in, const Share& elements, const std::vector<Buffer>& buffers) {
  ForPieces(buffers, elements, [&](float* data, int64_t at, int64_t n) { std::copy_n(in + at, n, data); });
}

int64_t ElementsOf(const std::vector<Buffer>& buffers) {
  int64_t elements = 0;
  for (const Buffer& b : buffers) elements += b.elements;
  return elements;
}

absl::string_view BytesOf(const float* numbers, int64_t n) {
  return {reinterpret_cast<const char*>(numbers), n * sizeof(float)};
}

// The pieces of elements of buffers as parts of a frame.
void AppendParts(const std::vector<Buffer>& buffers, const Share& elements, std::vector<absl::string_view>& parts) {
  ForPieces(buffers, elements, [&](const float* data, int64_t, int64_t n) { parts.push_back(BytesOf(data, n)); });
}

// The same to other buffers, of any sizes.
void CopyFromParts(absl::Span<const absl::string_view> parts, const Share& elements,
                   const std::vector<Buffer>& buffers) {
  int64_t first = elements.begin;
  for (const absl::string_view part : parts) {
    const auto n = static_cast<int64_t>(part.size() / sizeof(float));
    CopyIn(reinterpret_cast<const float*>(part.data()), {first, first + n}, buffers);
    first += n;
  }
}

// Adds elements of buffers to those of others of the same sizes.
void AddPieces(const std::vector<Buffer>& sums, const std::vector<Buffer>& x, const Share& elements) {
  std::vector<absl::string_view> parts;
  AppendParts(x, elements, parts);
  auto part = parts.begin();
  ForPieces(sums, elements,
            [&](float* data, int64_t, int64_t n) { AddTo(data, reinterpret_cast<const float*>((part++)->data()), n); });
}

// Makes the sum of some devices' buffers, in the order of a node of as many replicas, in the first of them.
void AddDevices(absl::Span<const std::vector<Buffer>> buffers) {
  const Share all = {0, ElementsOf(buffers[0])};
  JoinReplicas({0, static_cast<int64_t>(buffers.size())},
               [&](int a, int b) { AddPieces(buffers[a], buffers[b], all); });
}

// Sends and receives parts of packs.
class Connection {
 public:
  Connection(Exchange& exchange, std::chrono::seconds deadline) : exchange_(exchange), deadline_(deadline) {}

  int worker() const { return exchange_.worker(); }
  int num_workers() const { return exchange_.num_workers(); }
  int64_t bytes_sent() const { return bytes_sent_; }
  double seconds_waited() const { return seconds_waited_; }
  absl::Status Send(int worker, absl::Span<const absl::string_view> parts) {
    for (const absl::string_view part : parts) bytes_sent_ += static_cast<int64_t>(part.size());
    return exchange_.Send(worker, kSums, parts);
  }
  // Returns n numbers, as bytes at an address for floats.
  absl::StatusOr<std::string> Receive(int worker, int64_t n) {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(std::string bytes, exchange_.Receive(worker, kSums, deadline_));
    seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (bytes.size() == n * sizeof(float)) return bytes;
    return absl::InternalError(absl::StrCat(exchange_.NameOf(worker), " has sent ", bytes.size(),
                                            " bytes of a sum, not ", n * sizeof(float),
                                            "; do all workers run the same program and flags?"));
  }

 private:
  Exchange& exchange_;
  const std::chrono::seconds deadline_;
  int64_t bytes_sent_ = 0;
  double seconds_waited_ = 0;
};

// Each worker adds up what its own devices hold, as far as the tree of all replicas has that in one subtree, and then
// one segment of the pack for all; or, where that takes no more bytes, all segments for itself.
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
    // Between two workers, half a pack each way and then the sum of the other half is as much as the whole one.
    const bool each_for_itself = num_workers() == 2 || elements <= kFewElements;
    const auto owned = [&](int worker) {
      return each_for_itself ? Share{0, elements} : SegmentOf(elements, worker, num_workers());
    };
    RETURN_IF_ERROR(SendToOwners(buffers, owned));
    RETURN_IF_ERROR(AddUp(buffers, owned(worker_)));
    if (!each_for_itself) RETURN_IF_ERROR(SendSums());
    CopyToDevices(buffers, owned(worker_));
    return each_for_itself ? absl::OkStatus() : TakeOtherSegments(buffers, owned);
  }
  int64_t bytes_sent() const override { return connection_.bytes_sent(); }
  double seconds_waited() const override { return connection_.seconds_waited(); }

 private:
  int num_replicas() const { return static_cast<int>(replicas_.back().end); }
  int num_workers() const { return static_cast<int>(replicas_.size()); }

  // The buffers of the replica that a node begins with.
  const std::vector<Buffer>& SumOf(absl::Span<const std::vector<Buffer>> buffers, int64_t replica) const {
    return buffers[replica - replicas_[worker_].begin];
  }

  // Makes each node's sum in the buffers of its first replica.
  void AddOwnReplicas(absl::Span<const std::vector<Buffer>> buffers) {
    for (const Share& node : nodes_[worker_]) {
      AddDevices(buffers.subspan(node.begin - replicas_[worker_].begin, node.size()));
    }
  }

  // Sends to each other worker, of the elements that it adds up, this worker's nodes one after the other.
  absl::Status SendToOwners(absl::Span<const std::vector<Buffer>> buffers, absl::FunctionRef<Share(int worker)> owned) {
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      parts_.clear();
      for (const Share& node : nodes_[worker_]) AppendParts(SumOf(buffers, node.begin), owned(w), parts_);
      RETURN_IF_ERROR(connection_.Send(w, parts_));
    }
    return absl::OkStatus();
  }

  // Adds up these elements of all nodes. The sum is in sum_ then, which is part of sum_buffers_ unless that is null.
  absl::Status AddUp(absl::Span<const std::vector<Buffer>> buffers, const Share& segment) {
    const int64_t n = segment.size();
    received_.resize(num_workers());                          // nodes, one after the other
    std::vector<float*> of_replica(num_replicas(), nullptr);  // the received node that begins with it; null: an own one
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      ASSIGN_OR_RETURN(received_[w], connection_.Receive(w, n * static_cast<int64_t>(nodes_[w].size())));
      auto* out = reinterpret_cast<float*>(received_[w].data());
      for (const Share& node : nodes_[w]) {
        of_replica[node.begin] = out;
        out += n;
      }
    }
    JoinNodes(num_replicas(), all_nodes_, [&](int a, int b) { Join(buffers, segment, of_replica, a, b); });
    sum_.clear();
    sum_buffers_ = of_replica[0] == nullptr ? &SumOf(buffers, 0) : nullptr;
    if (sum_buffers_ != nullptr) {
      AppendParts(*sum_buffers_, segment, sum_);
    } else {
      sum_.push_back(BytesOf(of_replica[0], n));
    }
    return absl::OkStatus();
  }

  absl::Status SendSums() {
    for (int w = 0; w < num_workers(); ++w) {
      if (w != worker_) RETURN_IF_ERROR(connection_.Send(w, sum_));
    }
    return absl::OkStatus();
  }

  // Stores the sum in the buffers that do not have it yet.
  void CopyToDevices(absl::Span<const std::vector<Buffer>> buffers, const Share& segment) {
    for (const std::vector<Buffer>& own : buffers) {
      if (&own != sum_buffers_) CopyFromParts(sum_, segment, own);
    }
  }

  // Adds the segment of the node of replica b to that of a, of which each is in a device's buffers or was received.
  void Join(absl::Span<const std::vector<Buffer>> buffers, const Share& segment, const std::vector<float*>& of_replica,
            int a, int b) {
    float *const sum = of_replica[a], *const x = of_replica[b];
    if (sum != nullptr && x != nullptr) {
      AddTo(sum, x, segment.size());
    } else if (sum != nullptr) {
      ForPieces(SumOf(buffers, b), segment, [&](float* data, int64_t at, int64_t n) { AddTo(sum + at, data, n); });
    } else if (x != nullptr) {
      ForPieces(SumOf(buffers, a), segment, [&](float* data, int64_t at, int64_t n) { AddTo(data, x + at, n); });
    } else {
      AddPieces(SumOf(buffers, a), SumOf(buffers, b), segment);
    }
  }

  absl::Status TakeOtherSegments(absl::Span<const std::vector<Buffer>> buffers,
                                 absl::FunctionRef<Share(int worker)> owned) {
    for (int w = 0; w < num_workers(); ++w) {
      if (w == worker_) continue;
      const Share segment = owned(w);
      ASSIGN_OR_RETURN(const std::string sums, connection_.Receive(w, segment.size()));
      for (const std::vector<Buffer>& own : buffers) CopyIn(reinterpret_cast<const float*>(sums.data()), segment, own);
    }
    return absl::OkStatus();
  }

  const std::vector<Share> replicas_;      // by worker
  std::vector<std::vector<Share>> nodes_;  // by worker
  std::vector<Share> all_nodes_;
  Connection connection_;
  const int worker_;
  std::vector<absl::string_view> parts_;  // of a frame that is sent
  // Of the pack that is summed.
  std::vector<std::string> received_;   // by worker
  std::vector<absl::string_view> sum_;  // of what this worker adds up, in parts
  const std::vector<Buffer>* sum_buffers_ = nullptr;
};

// The segments go around twice: first each worker adds its own to what comes, then it passes the sums on.
class RingSum : public WorkerSum {
 public:
  explicit RingSum(Connection connection) : connection_(connection) {}

  absl::Status Sum(absl::Span<const std::vector<Buffer>> buffers) override {
    const int n = connection_.num_workers(), worker = connection_.worker();
    const int64_t elements = ElementsOf(buffers[0]);
    AddDevices(buffers);
    const int next = (worker + 1) % n, before = (worker + n - 1) % n;
    // After round r < n - 1, a worker holds what r + 2 workers have of one segment; after the last of these all of it.
    for (int round = 0; round < 2 * (n - 1); ++round) {
      const Share sent = SegmentOf(elements, (worker + 2 * n - round) % n, n);
      const Share taken = SegmentOf(elements, (worker + 2 * n - round - 1) % n, n);
      parts_.clear();
      AppendParts(buffers[0], sent, parts_);
      RETURN_IF_ERROR(connection_.Send(next, parts_));
      ASSIGN_OR_RETURN(const std::string bytes, connection_.Receive(before, taken.size()));
      const auto* const numbers = reinterpret_cast<const float*>(bytes.data());
      if (round < n - 1) {
        ForPieces(buffers[0], taken, [&](float* data, int64_t at, int64_t m) { AddTo(data, numbers + at, m); });
      } else {
        CopyIn(numbers, taken, buffers[0]);
      }
    }
    const Share all = {0, elements};
    parts_.clear();
    AppendParts(buffers[0], all, parts_);
    for (size_t d = 1; d < buffers.size(); ++d) CopyFromParts(parts_, all, buffers[d]);
    return absl::OkStatus();
  }
  int64_t bytes_sent() const override { return connection_.bytes_sent(); }
  double seconds_waited() const override { return connection_.seconds_waited(); }

 private:
  Connection connection_;
  std::vector<absl::string_view> parts_;
};

}  // namespace

std::unique_ptr<WorkerSum> MakeWorkerSum(WorkerSumOrder order, std::vector<Share> replicas, Exchange& exchange,
                                         std::chrono::seconds deadline) {
  const Connection connection(exchange, deadline);
  if (order == WorkerSumOrder::kRing) return std::make_unique<RingSum>(connection);
  return std::make_unique<OrderedWorkerSum>(std::move(replicas), connection);
}

}  // namespace official::distribute
