#include "utils/train/sync_replicas.h"

#include <algorithm>
#include <utility>

namespace official::train {

SyncReplicas::SyncReplicas(const Options& options, int64_t step)
    : options_(options), step_(step), has_left_(options.num_workers), tokens_(options.num_tokens, step) {}

int SyncReplicas::needed() const {
  const auto there = static_cast<int>(std::count(has_left_.begin(), has_left_.end(), false));
  // replicas_to_aggregate for all workers, rounded up for some of them.
  const int64_t share =
      (int64_t{options_.replicas_to_aggregate} * there + options_.num_workers - 1) / options_.num_workers;
  return std::max(1, options_.replicas_to_aggregate <= options_.num_workers
                         ? std::min(options_.replicas_to_aggregate, there)
                         : static_cast<int>(share));
}

void SyncReplicas::Wait(int worker) {
  if (std::find(waiting_.begin(), waiting_.end(), worker) == waiting_.end()) waiting_.push_back(worker);
}

bool SyncReplicas::Apply(int worker, int64_t local_step, std::string gradient) {
  Wait(worker);
  if (local_step < step_) return false;
  const auto after = std::upper_bound(gradients_.begin(), gradients_.end(), worker,
                                      [](int w, const Gradient& other) { return w < other.worker; });
  gradients_.insert(after, Gradient{worker, std::move(gradient)});
  return true;
}

std::vector<std::string> SyncReplicas::Take() {
  std::vector<std::string> taken;
  for (Gradient& gradient : gradients_) taken.push_back(std::move(gradient.bytes));
  gradients_.clear();
  ++step_;
  const int num_tokens = std::max(options_.num_workers, options_.replicas_to_aggregate);
  if (options_.has_tokens) tokens_.insert(tokens_.end(), num_tokens, step_);
  return taken;
}

std::optional<int64_t> SyncReplicas::TakeToken(int worker) {
  Wait(worker);
  const auto place = std::find(waiting_.begin(), waiting_.end(), worker);
  if (static_cast<std::ptrdiff_t>(tokens_.size()) <= place - waiting_.begin()) return std::nullopt;
  waiting_.erase(place);
  const int64_t token = tokens_.front();
  tokens_.pop_front();
  return token;
}

std::optional<int> SyncReplicas::FirstMissing() const {
  for (int w = 0; w < options_.num_workers; ++w) {
    const auto is_of_worker = [w](const Gradient& gradient) { return gradient.worker == w; };
    if (!has_left_[w] && std::none_of(gradients_.begin(), gradients_.end(), is_of_worker)) return w;
  }
  return std::nullopt;
}

void SyncReplicas::Leave(int worker) {
  has_left_[worker] = true;
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), worker), waiting_.end());
}

void SyncReplicas::Return(int worker) { has_left_[worker] = false; }

}  // namespace official::train
