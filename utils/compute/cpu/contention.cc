#include "utils/compute/cpu/contention.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace official::compute {
namespace {

constexpr Contention::Clock::duration kWindow = std::chrono::milliseconds(20);
// With one endless loop beside it a thread waits half of the time; on a machine with nothing else to do, some percent.
constexpr int kMostWaitingIn = 8;
// How far Waiting() looks back.
constexpr std::chrono::duration<double> kMemory = std::chrono::milliseconds(200);
// Where only preemptions are counted: one in a window may be the kernel's own work.
constexpr int64_t kFewPreemptions = 1;
constexpr Contention::Clock::duration kShortestStay = std::chrono::milliseconds(100);
constexpr Contention::Clock::duration kLongestStay = std::chrono::milliseconds(1600);

// How long the calling thread has waited for a core, of which the kernel keeps account: "RUN_NS WAITED_NS SLICES".
std::optional<int64_t> WaitedNs() {
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[96];
  const ssize_t size = read(fd, text, sizeof text);
  close(fd);
  if (size <= 0) return std::nullopt;
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(text, size), ' ');
  int64_t waited = 0;
  return fields.size() > 1 && absl::SimpleAtoi(fields[1], &waited) ? std::optional(waited) : std::nullopt;
}

int64_t TimesPreempted() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

Contention::Contention() : last_look_(Clock::now()), stay_(kShortestStay) { Look({}); }

bool Contention::Now(Clock::time_point now) {
  if (now - last_look_ >= kWindow) {
    const Clock::duration since = now - last_look_;
    last_look_ = now;
    if (Look(since)) {
      stay_ = now < until_ + stay_ ? std::min(2 * stay_, kLongestStay) : kShortestStay;
      until_ = now + stay_;
    }
  }
  return now < until_;
}

bool Contention::Look(Clock::duration since) {
  if (const std::optional<int64_t> waited = WaitedNs()) {
    const std::chrono::nanoseconds more(*waited - waited_ns_);
    waited_ns_ = *waited;
    if (since > Clock::duration::zero()) {
      const double share = std::chrono::duration<double>(more) / std::chrono::duration<double>(since);
      waiting_ += (std::min(1.0, share) - waiting_) * std::min(1.0, std::chrono::duration<double>(since) / kMemory);
    }
    return more > since / kMostWaitingIn;
  }
  const int64_t times = TimesPreempted(), more = times - times_preempted_;
  times_preempted_ = times;
  return more > kFewPreemptions;
}

}  // namespace official::compute
