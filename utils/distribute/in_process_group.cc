#include "utils/distribute/in_process_group.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/check.h"
#include "utils/compute/cpu/parallel.h"

namespace official::distribute {
namespace {

// What one device sums at a time: small enough to share, large enough to be worth taking.
constexpr int64_t kShare = int64_t{1} << 17;
// What is added up in the first-level cache before it is stored to every device.
constexpr int64_t kBlock = 2048;

// sum[i] = x[i] or sum[i] + x[i]
void AddTo(float* __restrict__ sum, const float* __restrict__ x, int64_t n, bool first) {
  if (first) {
    std::copy_n(x, n, sum);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

// The sum of data(first), ..., data(last - 1) in the order of TreeSum.
template <typename F>
void AddHalves(int first, int last, const F& data, int64_t n, float* sum) {
  if (last - first == 1) return AddTo(sum, data(first), n, true);
  const int middle = first + (last - first + 1) / 2;
  AddHalves(first, middle, data, n, sum);
  if (last - middle == 1) return AddTo(sum, data(middle), n, false);
  float second[kBlock];
  AddHalves(middle, last, data, n, second);
  AddTo(sum, second, n, false);
}

}  // namespace

class InProcessGroup::Member : public compute::Communicator {
 public:
  Member(InProcessGroup& group, int rank) : group_(group), rank_(rank) {}

  absl::Status Start(absl::Span<const Buffer> pack) override {
    const absl::Status status = group_.Start(rank_, next_, static_cast<int>(next_ - step_begin_), pack);
    if (status.ok()) ++next_;
    return status;
  }
  absl::Status Finish() override {
    const absl::Status status = group_.Finish(rank_, step_begin_, next_);
    if (status.ok()) step_begin_ = next_;
    return status;
  }
  void Reset() { next_ = step_begin_ = 0; }

 private:
  InProcessGroup& group_;
  const int rank_;
  int64_t next_ = 0, step_begin_ = 0;  // numbers of packs
};

InProcessGroup::InProcessGroup(int size, SumOrder order, std::chrono::seconds deadline)
    : size_(size), order_(order), deadline_(deadline) {
  for (int rank = 0; rank < size; ++rank) members_.push_back(std::make_unique<Member>(*this, rank));
}

InProcessGroup::~InProcessGroup() = default;

compute::Communicator& InProcessGroup::communicator(int rank) { return *members_[rank]; }

void InProcessGroup::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

absl::Status InProcessGroup::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = false;
  packs_.clear();
  first_number_ = 0;
  for (const auto& member : members_) member->Reset();
  return absl::OkStatus();
}

InProcessGroup::Pack& InProcessGroup::PackNumber(int64_t number) {
  while (first_number_ + static_cast<int64_t>(packs_.size()) <= number) {
    if (unused_packs_.empty()) {
      unused_packs_.push_back(std::make_unique<Pack>());
      unused_packs_.back()->buffers.resize(size_);
    }
    packs_.push_back(std::move(unused_packs_.back()));
    unused_packs_.pop_back();
    Pack& pack = *packs_.back();
    pack.given = pack.left = 0;
    pack.claimed = pack.summed = 0;
    for (std::vector<Buffer>& buffers : pack.buffers) buffers.clear();
  }
  return *packs_[number - first_number_];
}

absl::Status InProcessGroup::Start(int rank, int64_t number, int order, absl::Span<const Buffer> buffers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_) return absl::CancelledError("another device has failed");
  Pack& pack = PackNumber(number);
  pack.order = order;
  pack.buffers[rank].assign(buffers.begin(), buffers.end());
  pack.elements = 0;
  for (const Buffer& b : buffers) pack.elements += b.elements;
  if (++pack.given == size_) changed_.notify_all();
  return absl::OkStatus();
}

std::string InProcessGroup::Missing(const Pack& pack) const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (pack.buffers[rank].empty()) missing.push_back(rank);
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status InProcessGroup::Finish(int rank, int64_t begin, int64_t end) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::chrono::seconds waited{0};  // in slices, so that a process that was stopped for a while does not give up
  for (;;) {
    if (aborted_) return absl::CancelledError("another device has failed");
    Pack* open = nullptr;        // has elements that nobody has taken yet
    Pack* unfinished = nullptr;  // is not summed yet
    for (int64_t number = begin; number < end && open == nullptr; ++number) {
      Pack& pack = PackNumber(number);
      if (pack.summed == pack.elements && pack.given == size_) continue;
      unfinished = &pack;
      if (pack.given == size_ && pack.claimed < pack.elements) open = &pack;
    }
    if (open != nullptr) {
      const int64_t from = open->claimed;
      const int64_t to = std::min(open->elements, from + kShare * compute::NumThreads());
      open->claimed = to;
      lock.unlock();
      compute::ParallelFor(to - from, kBlock,
                           [&](int64_t first, int64_t last) { Sum(*open, from + first, from + last); });
      lock.lock();
      open->summed += to - from;
      if (open->summed == open->elements) changed_.notify_all();
    } else if (unfinished == nullptr) {
      break;
    } else if (waited < deadline_) {
      if (changed_.wait_for(lock, std::chrono::seconds(1)) == std::cv_status::timeout) ++waited;
    } else {
      const std::string what = unfinished->given == size_
                                   ? "another replica to add gradients"
                                   : absl::StrCat("the gradients of replica ", Missing(*unfinished));
      return absl::DeadlineExceededError(
          absl::StrCat("replica ", rank, " has waited ", deadline_.count(), " s for ", what));
    }
  }
  for (int64_t number = begin; number < end; ++number) ++PackNumber(number).left;
  while (!packs_.empty() && packs_.front()->left == size_) {
    unused_packs_.push_back(std::move(packs_.front()));
    packs_.pop_front();
    ++first_number_;
  }
  return absl::OkStatus();
}

void InProcessGroup::Sum(const Pack& pack, int64_t begin, int64_t end) const {
  float block[kBlock], second[kBlock];
  const int half = size_ / 2;
  // Devices [first, last) of the half that comes first, the others come second.
  const bool low_first = order_ == SumOrder::kReductionToOneDevice || pack.order % size_ < half;
  for (size_t b = 0; b < pack.buffers[0].size() && begin < end; ++b) {
    const int64_t elements = pack.buffers[0][b].elements;
    for (int64_t i = begin; i < std::min(end, elements);) {
      const int64_t n = std::min({kBlock, end - i, elements - i});
      const auto data = [&](int rank) { return pack.buffers[rank][b].data + i; };
      const auto add = [&](float* sum, int first, int last) {
        for (int rank = first; rank < last; ++rank) AddTo(sum, data(rank), n, rank == first);
      };
      if (order_ == SumOrder::kReductionToOneDevice) {
        AddHalves(0, size_, data, n, block);
      } else {
        low_first ? add(block, 0, half) : add(block, half, size_);
        low_first ? add(second, half, size_) : add(second, 0, half);
        AddTo(block, second, n, false);
      }
      for (int rank = 0; rank < size_; ++rank) std::copy_n(block, n, pack.buffers[rank][b].data + i);
      i += n;
    }
    begin = std::max<int64_t>(0, begin - elements);
    end -= elements;
  }
}

}  // namespace official::distribute
