// The search behind --batch_size=auto: a batch size, from the speed of a few sizes. It trains nothing itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace official::run {

// The sizes that may be chosen: first * 2^k and, if that does not fit, first / 2^k.
struct SizeRange {
  int64_t unit = 1;              // every size is a multiple of it, and `first` the product of it and a power of two
  int64_t first = 8;             // the size that is tried first
  int64_t largest = 0;           // no larger one is tried
  std::string why_largest = "";  // "the training data have 100 examples"
  std::string counted = "examples";
};

// The result of trying a size.
struct SizeTrial {
  double examples_per_sec = 0;
  std::optional<std::string> why_too_large = std::nullopt;  // "it needs 3 GB": it does not fit
};

struct ChosenSize {
  int64_t batch_size = 0;
  double examples_per_sec = 0;
  std::string why;  // "200 examples/s, and no size from 8 to 64 has over 5% more; ..."
};

// A size counts as faster than another if it has more examples/s by more than this share.
inline constexpr double kFasterShare = 0.05;
// After this many sizes in a row of which none is faster than all before, no larger one is tried.
inline constexpr int kSlowSizes = 2;
// No size is tried that would take the search longer than this, in seconds, if it takes twice the time of the last one.
inline constexpr double kSearchSeconds = 60;

// Returns the smallest size that no tried one is faster than. `seconds` returns the time since the search began.
// ResourceExhausted if not even the smallest size fits; an error of `attempt` ends the search.
absl::StatusOr<ChosenSize> SearchBatchSize(const SizeRange& range,
                                           const std::function<absl::StatusOr<SizeTrial>(int64_t batch_size)>& attempt,
                                           const std::function<double()>& seconds);

}  // namespace official::run
