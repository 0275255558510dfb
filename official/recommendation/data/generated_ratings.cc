#include "official/recommendation/data/generated_ratings.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/data/permutation.h"
#include "utils/data/random.h"
#include "utils/files/files.h"

namespace official::recommendation {
namespace {

constexpr int32_t kTastes = 32;
constexpr int64_t kMinRatings = 20;
constexpr int32_t kMinUnrated = 1000;      // so that an evaluation with 999 negatives is possible
constexpr int64_t kFirstTime = 956703932;  // that of MovieLens 1M
constexpr int64_t kAllTime = 3 * 365 * 86400, kOneStay = 30 * 86400;

// A number in {0, ..., n - 1} whose density falls as (x + offset)^-3/4. Square roots are exact on every machine, other
// powers are not.
int64_t Skewed(data::Random& random, int64_t n, double offset) {
  const double low = std::sqrt(std::sqrt(offset)), high = std::sqrt(std::sqrt(n + offset));
  const double x = low + (high - low) * random.Uniform();
  return std::clamp<int64_t>(static_cast<int64_t>(x * x * x * x - offset), 0, n - 1);
}

// How many ratings each user has.
std::vector<int64_t> NumRatings(const GeneratorOptions& options) {
  const int64_t most = options.num_items - kMinUnrated;
  std::vector<double> sums;  // of the weights of the users up to each
  double sum = 0;
  for (int32_t user = 0; user < options.num_users; ++user) {
    data::Random random(options.seed ^ compute::StreamOf("activity", 8), 0, user);
    sums.push_back(sum += 1 / (random.Uniform() + 0.015));
  }
  std::vector<int64_t> counts(options.num_users, kMinRatings);
  const int64_t total = options.num_ratings - kMinRatings * options.num_users;
  int64_t given = 0;
  for (int32_t user = 0; user < options.num_users; ++user) {
    // What a user has no room for goes to the next ones.
    const int64_t due = user + 1 < options.num_users ? static_cast<int64_t>(total * (sums[user] / sum)) : total;
    const int64_t extra = std::min(due - given, most - kMinRatings);
    counts[user] += extra;
    given += extra;
  }
  for (int32_t user = 0; given < total; ++user) {
    const int64_t extra = std::min(total - given, most - counts[user]);
    counts[user] += extra;
    given += extra;
  }
  return counts;
}

class UserRatings {
 public:
  explicit UserRatings(const GeneratorOptions& options)
      : options_(options), item_ids_(options.num_items, options.seed, /*epoch=*/0), rated_(options.num_items) {}

  // Writes the ratings of user `user`.
  void Draw(int32_t user, absl::Span<Rating> out) {
    std::fill(rated_.begin(), rated_.end(), false);
    size_t n = 0;
    const auto rate = [&](int64_t item) {
      rated_[item] = true;
      out[n++].item = static_cast<int32_t>(1 + item_ids_(item));
    };
    // Every item is rated by somebody.
    for (int64_t item = user; item < options_.num_items; item += options_.num_users) rate(item);

    data::Random random(options_.seed ^ compute::StreamOf("tastes", 6), 0, user);
    // Enough tastes for four times as many items as the user rates.
    const int64_t size = static_cast<int64_t>(out.size());
    const int64_t num_tastes = std::clamp<int64_t>(size * 4 * kTastes / options_.num_items, 3, kTastes);
    std::vector<int64_t> tastes(num_tastes);
    for (int64_t& taste : tastes) taste = Skewed(random, kTastes, 1);
    while (n < out.size()) {
      // One choice in 16 is of any taste.
      const bool any = random.UniformInt(16) == 0;
      const int64_t taste = any ? Skewed(random, kTastes, 1) : tastes[Skewed(random, num_tastes, 0.5)];
      int64_t item = taste + kTastes * Skewed(random, (options_.num_items - taste + kTastes - 1) / kTastes, 1);
      // Whoever has seen the popular ones takes the next.
      while (rated_[item]) {
        item += kTastes;
        if (item >= options_.num_items) item = (item % kTastes + 1) % kTastes;
      }
      rate(item);
    }
    const int64_t arrival = kFirstTime + random.UniformInt(kAllTime);
    for (Rating& rating : out) {
      rating.user = user + 1;
      rating.timestamp = arrival + random.UniformInt(kOneStay);
    }
  }

 private:
  const GeneratorOptions& options_;
  const data::Permutation item_ids_;  // so that an id tells neither taste nor popularity
  std::vector<bool> rated_;           // item = taste + kTastes * (popularity within the taste)
};

}  // namespace

absl::StatusOr<std::vector<Rating>> GenerateRatings(const GeneratorOptions& options) {
  const int64_t room = int64_t{options.num_users} * (options.num_items - kMinUnrated);
  if (options.num_items < kMinUnrated + 100 || options.num_users < 1 ||
      options.num_items > kMinRatings * options.num_users || options.num_ratings < kMinRatings * options.num_users ||
      options.num_ratings > room) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cannot generate %d ratings of %d users and %d items: expected at least %d items, at most %d times as many "
        "as users, at least %d ratings for each user, and %d items that the user does not rate",
        options.num_ratings, options.num_users, options.num_items, kMinUnrated + 100, kMinRatings, kMinRatings,
        kMinUnrated));
  }
  const std::vector<int64_t> counts = NumRatings(options);
  std::vector<int64_t> offsets(1, 0);
  for (const int64_t count : counts) offsets.push_back(offsets.back() + count);
  std::vector<Rating> ratings(options.num_ratings);
  compute::ParallelFor(options.num_users, 16, [&](int64_t begin, int64_t end) {
    UserRatings user_ratings(options);
    for (int64_t user = begin; user < end; ++user) {
      user_ratings.Draw(static_cast<int32_t>(user), absl::MakeSpan(ratings).subspan(offsets[user], counts[user]));
    }
  });
  return ratings;
}

absl::Status WriteRatings(const std::string& path, absl::Span<const Rating> ratings) {
  ASSIGN_OR_RETURN(const auto file, files::AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append("user_id,item_id,rating,timestamp\n"));
  for (const Rating& rating : ratings) {
    RETURN_IF_ERROR(file->Append(absl::StrCat(rating.user, ",", rating.item, ",4,", rating.timestamp, "\n")));
  }
  RETURN_IF_ERROR(file->Finish());
  return file->Publish();
}

}  // namespace official::recommendation
