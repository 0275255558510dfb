// A value over the steps of a run, in bounded memory however long the run is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace official::report {

// The values of consecutive steps, summed up. Values that are not finite are only counted.
struct Bucket {
  int64_t first_step = 0, last_step = 0;
  double first = 0, last = 0;  // finite values only, as all below
  int64_t step_of_first = 0, step_of_last = 0;
  double min = 0, max = 0, sum = 0;
  bool min_first = true;   // the smallest value came before the largest
  int64_t count = 0;       // of finite values; 0: the values above mean nothing
  int64_t not_finite = 0;  // NaN, infinite, or too large to draw (beyond 1e300)

  double mean() const { return sum / static_cast<double>(count); }
};

// Appends what `later` sums up to `bucket`.
void Append(const Bucket& later, Bucket& bucket);

class Series {
 public:
  static constexpr size_t kMaxBuckets = 2048;

  // Adds the value of a step. A step before the last one begins again where a run was resumed: what is known of that
  // step and later ones is forgotten first. Negative steps are ignored.
  void Add(int64_t step, double value);

  // Forgets values of this step and later. Of a series with more than kMaxBuckets values, up to one bucket of earlier
  // ones is forgotten with them.
  void ForgetFrom(int64_t step);

  // The values in the order of steps; at most kMaxBuckets, each of the same number of steps. The smallest and the
  // largest value are always among theirs.
  const std::vector<Bucket>& buckets() const { return buckets_; }

  bool empty() const { return buckets_.empty(); }

 private:
  std::vector<Bucket> buckets_;
  int64_t width_ = 1;  // steps of a bucket
};

// Sums up all of `buckets`, which are not empty.
Bucket Total(const std::vector<Bucket>& buckets);

// Divides the steps from `first_step` to `last_step` into `num_columns` columns of a picture, and returns what lies in
// each that has a value: smallest and largest values stay visible, however many there are in a column. `buckets` lie
// within these steps.
std::vector<Bucket> Downsample(const std::vector<Bucket>& buckets, int64_t first_step, int64_t last_step,
                               int num_columns);

}  // namespace official::report
