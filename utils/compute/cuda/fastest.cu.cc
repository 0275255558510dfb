#include "utils/compute/cuda/fastest.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_status.h"
#include "utils/compute/cuda/stream.h"

namespace official::compute {
namespace {

constexpr float kFarSlower = 1.5f;  // than the best: times the time of a run
constexpr int kMoreRuns = 2;        // of those that are not

}  // namespace

absl::StatusOr<float> TimeOnStream(cudaStream_t stream, absl::FunctionRef<absl::Status()> give) {
  ASSIGN_OR_RETURN(const CudaEvent start, MakeEvent(cudaEventDefault));
  ASSIGN_OR_RETURN(const CudaEvent end, MakeEvent(cudaEventDefault));
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(start.get(), stream), "cudaEventRecord"));
  const absl::Status given = give();
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end.get(), stream), "cudaEventRecord"));
  RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end.get()), "cudaEventSynchronize"));
  RETURN_IF_ERROR(given);
  float milliseconds = 0;
  RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "cudaEventElapsedTime"));
  return milliseconds;
}

absl::StatusOr<int> FastestOnStream(cudaStream_t stream, int count, absl::FunctionRef<absl::Status(int)> run) {
  std::optional<int> best;
  float best_time = std::numeric_limits<float>::infinity();  // of one run
  absl::Status first_failure;
  // The time of one run; nothing of an algorithm that is far slower than the best.
  const auto time_of = [&](int i) -> absl::StatusOr<std::optional<float>> {
    RETURN_IF_ERROR(run(i));
    ASSIGN_OR_RETURN(const float first, TimeOnStream(stream, [&] { return run(i); }));
    if (first > kFarSlower * best_time) return std::nullopt;
    ASSIGN_OR_RETURN(const float more, TimeOnStream(stream, [&] {
                       absl::Status status;
                       for (int r = 0; r < kMoreRuns && status.ok(); ++r) status.Update(run(i));
                       return status;
                     }));
    return (first + more) / (1 + kMoreRuns);
  };
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<std::optional<float>> time = time_of(i);
    if (!time.ok()) {
      first_failure.Update(time.status());
    } else if (*time && **time < best_time) {
      best = i;
      best_time = **time;
    }
  }
  if (best) return *best;
  return absl::Status(first_failure.code(),
                      absl::StrCat("none of ", count, " algorithms ran; the first says: ", first_failure.message()));
}

}  // namespace official::compute
