// The evaluation data of NeuMF: for each user the held-out item among items that the user did not rate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "official/recommendation/data/ratings.h"

namespace official::recommendation {

// The number of unrated items that NCF's evaluation ranks the held-out item among.
inline constexpr int kUsualNegatives = 999;
// The fewest that are taken instead without being asked for: the number in the paper (He et al. 2017).
inline constexpr int kFewestUsualNegatives = 99;

// The fewest that can be asked for: among 9 or fewer every item is one of the first 10.
inline constexpr int kFewestNegatives = 10;

struct EvalOptions {
  // The number of negatives for each user. Unset: kUsualNegatives or, if a user has fewer unrated items, as many as the
  // user with the fewest has, but at least kFewestUsualNegatives; with replacement always kUsualNegatives.
  std::optional<int> num_negatives = std::nullopt;
  // MLPerf's rule (--ml_perf): negatives are drawn with replacement, and repeats are left out of the ranking.
  bool with_replacement = false;
  uint64_t seed = 0;
};

// The candidates of U users, C = 1 + num_negatives each.
struct EvalData {
  int num_candidates = 0;      // C
  std::string note;            // the reason for fewer different negatives than were asked for or are usual; one line
  std::vector<int32_t> items;  // [U, C]: the held-out item in column 0, then the negatives in the order drawn
  // The columns of each user whose item is in an earlier column too, ascending, the users one after another. Their
  // scores count as -infinity. Empty if drawn without replacement.
  std::vector<int32_t> repeats;
  std::vector<int64_t> repeat_offsets;  // [U + 1]: user u's begin at repeats[repeat_offsets[u]]

  absl::Span<const int32_t> Candidates(int32_t user) const {
    return absl::MakeSpan(items).subspan(int64_t{user} * num_candidates, num_candidates);
  }
  absl::Span<const int32_t> Repeats(int32_t user) const {
    return absl::MakeSpan(repeats).subspan(repeat_offsets[user], repeat_offsets[user + 1] - repeat_offsets[user]);
  }
};

// Draws the negatives uniformly from the items that the user rated neither for training nor as the held-out one. The
// result is the same for every call and number of threads. InvalidArgument if a user has too few such items: fewer than
// num_negatives or, with replacement, than kFewestNegatives; if it is unset, fewer than kFewestUsualNegatives. It names
// the user and, unless there are fewer than kFewestNegatives, a num_negatives that would do.
absl::StatusOr<EvalData> MakeEvalData(const Ratings& ratings, const EvalOptions& options);

}  // namespace official::recommendation
