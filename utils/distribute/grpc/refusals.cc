#include "utils/distribute/grpc/refusals.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace official::distribute {
namespace {

constexpr std::chrono::seconds kTellEvery(10);

// In the order of Reason.
constexpr const char* kTexts[] = {
    "no worker of this run",
    "another secret than that of this run",
    "another key than that of this job",
    "a stream that is not expected here",
    "a method that workers do not have",
    "too much before a proof",
    "no proof in time",
    "too many others after it, without a proof",
    "gone without a proof; so is one with another certificate, or without TLS",
};

}  // namespace

Refusals::~Refusals() {
  const int64_t all = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  if (all == 0 || !log_) return;
  std::vector<std::string> reasons;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) reasons.push_back(absl::StrCat(counts_[i], " (", kTexts[i], ")"));
  }
  log_(absl::StrCat("in all, refused ", all, " connections and calls of strangers: ", absl::StrJoin(reasons, ", ")));
}

void Refusals::Add(Reason reason, const std::string& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_[static_cast<size_t>(reason)];
  last_reason_ = reason;
  last_host_ = peer.substr(0, peer.rfind(':'));
  const Clock::time_point now = Clock::now();
  if (!log_ || now < next_line_) return;
  next_line_ = now + kTellEvery;
  log_(SummaryLocked());
}

std::string Refusals::Summary() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return SummaryLocked();
}

std::string Refusals::SummaryLocked() const {
  const int64_t all = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  if (all == 0) return "";
  return absl::StrCat("refused ", all, all == 1 ? " connection or call" : " connections and calls",
                      " of strangers, the last from ", last_host_, ": ", kTexts[static_cast<size_t>(last_reason_)]);
}

}  // namespace official::distribute
