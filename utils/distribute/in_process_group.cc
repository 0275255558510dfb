#include "utils/distribute/in_process_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/distribute/ordered_sum.h"

namespace official::distribute {
namespace {

// What one device sums at a time: small enough to share, large enough to be worth taking.
constexpr int64_t kShare = int64_t{1} << 17;
// What is added up in the first-level cache before it is stored to every device.
constexpr int64_t kBlock = 2048;

class HostSummer : public PackSummer {
 public:
  HostSummer(int num_devices, SumOrder order) {
    for (int pack = 0; pack < num_devices; ++pack) plans_.push_back(PlanSum(order, num_devices, pack));
  }

  int64_t Share(int64_t left) const override { return std::min(left, kShare * compute::NumThreads()); }
  absl::Status Sum(int pack, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) override {
    const SumPlan& plan = plans_[pack % plans_.size()];
    compute::ParallelFor(end - begin, kBlock,
                         [&](int64_t first, int64_t last) { Follow(plan, buffers, begin + first, begin + last); });
    return absl::OkStatus();
  }

 private:
  // Elements [begin, end), block by block.
  static void Follow(const SumPlan& plan, absl::Span<const std::vector<Buffer>> buffers, int64_t begin, int64_t end) {
    static thread_local std::vector<float> scratch;
    scratch.resize(std::max(scratch.size(), plan.scratch.size() * kBlock));
    for (size_t b = 0; b < buffers[0].size() && begin < end; ++b) {
      const int64_t elements = buffers[0][b].elements;
      for (int64_t i = begin; i < std::min(end, elements);) {
        const int64_t n = std::min({kBlock, end - i, elements - i});
        const auto at = [&](int place) {
          const int of_scratch = place - plan.num_devices;
          return of_scratch < 0 ? buffers[place][b].data + i : scratch.data() + of_scratch * kBlock;
        };
        for (const SumPlan::Step& step : plan.steps) {
          if (step.adds) {
            AddTo(at(step.to), at(step.from), n);
          } else {
            std::copy_n(at(step.from), n, at(step.to));
          }
        }
        i += n;
      }
      begin = std::max<int64_t>(0, begin - elements);
      end -= elements;
    }
  }

  std::vector<SumPlan> plans_;  // by the pack's number, which repeats them
};

}  // namespace

std::unique_ptr<PackSummer> MakeHostSummer(int num_devices, SumOrder order) {
  return std::make_unique<HostSummer>(num_devices, order);
}

class InProcessGroup::Member : public compute::Communicator {
 public:
  Member(InProcessGroup& group, int rank) : group_(group), rank_(rank) {}

  absl::Status Start(absl::Span<const Buffer> pack) override {
    const absl::Status status = group_.Start(rank_, next_, static_cast<int>(next_ - step_begin_), pack);
    if (status.ok()) ++next_;
    return status;
  }
  absl::StatusOr<bool> AllTrue(bool value) override { return group_.AllTrue(rank_, value); }
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

InProcessGroup::InProcessGroup(int size, std::unique_ptr<PackSummer> summer, std::chrono::seconds deadline)
    : size_(size), summer_(std::move(summer)), deadline_(deadline) {
  for (int rank = 0; rank < size; ++rank) members_.push_back(std::make_unique<Member>(*this, rank));
  answered_.resize(size);
}

InProcessGroup::~InProcessGroup() = default;

compute::Communicator& InProcessGroup::communicator(int rank) { return *members_[rank]; }

void InProcessGroup::Abort(const absl::Status& cause) {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  summer_->Abort();
  changed_.notify_all();
}

absl::Status InProcessGroup::Reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status status = summer_->Reset();  // which may still be at work on a pack
  aborted_ = false;
  packs_.clear();
  first_number_ = 0;
  answered_.assign(size_, false);
  answer_ = true;
  for (const auto& member : members_) member->Reset();
  return status;
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

absl::Status InProcessGroup::Start(int rank, int64_t number, int in_step, absl::Span<const Buffer> buffers) {
  RETURN_IF_ERROR(summer_->Give(rank, in_step));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_) return absl::CancelledError("another device has failed");
  Pack& pack = PackNumber(number);
  pack.number = in_step;
  pack.buffers[rank].assign(buffers.begin(), buffers.end());
  pack.elements = 0;
  for (const Buffer& b : buffers) pack.elements += b.elements;
  if (++pack.given == size_) {
    // Without elements there is nothing to wait for, and the pack is used again at once.
    if (pack.elements > 0) summer_->Begin(in_step, pack.buffers);
    changed_.notify_all();
  }
  return absl::OkStatus();
}

std::string InProcessGroup::Missing(const Pack& pack) const {
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    if (pack.buffers[rank].empty()) missing.push_back(rank);
  }
  return absl::StrJoin(missing, ", ");
}

template <typename F>
absl::Status InProcessGroup::Wait(std::unique_lock<std::mutex>& lock, int rank, std::chrono::seconds& waited, F what) {
  if (waited >= deadline_) {
    return absl::DeadlineExceededError(absl::StrCat("replica ", rank, " has waited ", deadline_.count(), " s for ",
                                                    what(), "; --all_reduce_timeout_secs sets how long it may"));
  }
  // In slices, so that a process that was stopped for a while does not give up.
  if (changed_.wait_for(lock, std::chrono::seconds(1)) == std::cv_status::timeout) ++waited;
  return absl::OkStatus();
}

absl::StatusOr<bool> InProcessGroup::AllTrue(int rank, bool value) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t question = questions_;
  answered_[rank] = true;
  answer_ = answer_ && value;
  if (std::find(answered_.begin(), answered_.end(), false) == answered_.end()) {
    last_answer_ = std::exchange(answer_, true);
    answered_.assign(size_, false);
    ++questions_;
    changed_.notify_all();
  }
  // The next answer needs this device, so `last_answer_` stays until it has been read.
  for (std::chrono::seconds waited{0}; question == questions_;) {
    if (aborted_) return absl::CancelledError("another device has failed");
    RETURN_IF_ERROR(Wait(lock, rank, waited, [&] {
      std::vector<int> missing;
      for (int r = 0; r < size_; ++r) {
        if (!answered_[r]) missing.push_back(r);
      }
      return absl::StrCat("replica ", absl::StrJoin(missing, ", "), " to be ready for the update");
    }));
  }
  return last_answer_;
}

absl::Status InProcessGroup::Finish(int rank, int64_t begin, int64_t end) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::chrono::seconds waited{0};;) {
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
      const int64_t to = from + summer_->Share(open->elements - from);
      open->claimed = to;
      lock.unlock();
      RETURN_IF_ERROR(summer_->Sum(open->number, open->buffers, from, to));
      lock.lock();
      open->summed += to - from;
      if (open->summed == open->elements) changed_.notify_all();
    } else if (unfinished == nullptr) {
      break;
    } else {
      RETURN_IF_ERROR(Wait(lock, rank, waited, [&] {
        return unfinished->given == size_ ? "another replica to add gradients"
                                          : absl::StrCat("the gradients of replica ", Missing(*unfinished));
      }));
    }
  }
  for (int64_t number = begin; number < end; ++number) ++PackNumber(number).left;
  while (!packs_.empty() && packs_.front()->left == size_) {
    unused_packs_.push_back(std::move(packs_.front()));
    packs_.pop_front();
    ++first_number_;
  }
  lock.unlock();
  return summer_->Take(rank);
}

}  // namespace official::distribute
