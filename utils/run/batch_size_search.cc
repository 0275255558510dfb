#include "utils/run/batch_size_search.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"

namespace official::run {
namespace {

struct TimedSize {
  int64_t batch_size;
  double examples_per_sec;
};

bool SlowerThan(const TimedSize& a, const TimedSize& b) { return a.examples_per_sec < b.examples_per_sec; }

// The sizes that fit, in increasing order, and why no larger one was tried.
struct TimedSizes {
  std::vector<TimedSize> sizes;
  std::string why_no_more;
};

class Search {
 public:
  Search(const SizeRange& range, const std::function<absl::StatusOr<SizeTrial>(int64_t)>& attempt,
         const std::function<double()>& seconds)
      : range_(range), attempt_(attempt), seconds_(seconds) {}

  absl::StatusOr<TimedSizes> Run() {
    int64_t size = range_.first;
    while (size > range_.largest && size > range_.unit) size /= 2;
    ASSIGN_OR_RETURN(size, LargestThatFits(size));
    while (result_.why_no_more.empty()) {
      size *= 2;
      if (size > range_.largest) {
        result_.why_no_more = range_.why_largest;
      } else if (seconds_() + 2 * last_seconds_ > kSearchSeconds) {
        result_.why_no_more = absl::StrFormat("larger ones were not tried after %.0f s", seconds_());
      } else {
        RETURN_IF_ERROR(Try(size));
      }
    }
    return std::move(result_);
  }

 private:
  // Times `size`, or the first of its halves that fits, which is returned.
  absl::StatusOr<int64_t> LargestThatFits(int64_t size) {
    for (;; size /= 2) {
      RETURN_IF_ERROR(Try(size));
      if (!result_.sizes.empty()) return size;
      if (size > range_.unit) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat("no batch fits the memory: not even --batch_size=", size, ", for ", result_.why_no_more));
    }
  }

  // Appends the size, or says why there will be no larger one.
  absl::Status Try(int64_t size) {
    const double begin = seconds_();
    ASSIGN_OR_RETURN(const SizeTrial trial, attempt_(size));
    last_seconds_ = seconds_() - begin;
    if (trial.why_too_large) {
      result_.why_no_more = absl::StrCat(size, " does not fit: ", *trial.why_too_large);
      return absl::OkStatus();
    }
    std::vector<TimedSize>& sizes = result_.sizes;
    const double best = sizes.empty() ? 0 : std::max_element(sizes.begin(), sizes.end(), SlowerThan)->examples_per_sec;
    sizes.push_back({size, trial.examples_per_sec});
    slow_sizes_ = trial.examples_per_sec > best * (1 + kFasterShare) ? 0 : slow_sizes_ + 1;
    if (slow_sizes_ == kSlowSizes) result_.why_no_more = "larger ones are not faster";
    return absl::OkStatus();
  }

  const SizeRange& range_;
  const std::function<absl::StatusOr<SizeTrial>(int64_t)>& attempt_;
  const std::function<double()>& seconds_;
  TimedSizes result_;
  int slow_sizes_ = 0;       // the last ones
  double last_seconds_ = 0;  // of the last attempt
};

}  // namespace

absl::StatusOr<ChosenSize> SearchBatchSize(const SizeRange& range,
                                           const std::function<absl::StatusOr<SizeTrial>(int64_t batch_size)>& attempt,
                                           const std::function<double()>& seconds) {
  ASSIGN_OR_RETURN(const TimedSizes timed, Search(range, attempt, seconds).Run());
  const std::vector<TimedSize>& sizes = timed.sizes;
  const double best = std::max_element(sizes.begin(), sizes.end(), SlowerThan)->examples_per_sec;
  const TimedSize chosen = *std::find_if(sizes.begin(), sizes.end(), [&](const TimedSize& size) {
    return best <= size.examples_per_sec * (1 + kFasterShare);
  });
  const std::string others =
      sizes.size() == 1 ? ""
                        : absl::StrFormat(", and no size from %d to %d has over %.0f%% more", sizes.front().batch_size,
                                          sizes.back().batch_size, 100 * kFasterShare);
  return ChosenSize{
      .batch_size = chosen.batch_size,
      .examples_per_sec = chosen.examples_per_sec,
      .why = absl::StrFormat("%.4g %s/s%s; %s", chosen.examples_per_sec, range.counted, others, timed.why_no_more)};
}

}  // namespace official::run
