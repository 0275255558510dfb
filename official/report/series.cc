#include "official/report/series.h"

#include <algorithm>
#include <cmath>

namespace official::report {
namespace {

constexpr double kLargest = 1e300;  // differences of smaller numbers are finite

Bucket BucketOf(int64_t step, double value) {
  Bucket bucket = {.first_step = step, .last_step = step};
  if (!(std::abs(value) <= kLargest)) {
    bucket.not_finite = 1;
    return bucket;
  }
  bucket.first = bucket.last = bucket.min = bucket.max = bucket.sum = value;
  bucket.step_of_first = bucket.step_of_last = step;
  bucket.count = 1;
  return bucket;
}

}  // namespace

void Append(const Bucket& later, Bucket& bucket) {
  const int64_t first_step = bucket.first_step, not_finite = bucket.not_finite + later.not_finite;
  if (bucket.count == 0) {
    bucket = later;
  } else if (later.count > 0) {
    const bool lower = later.min<bucket.min, higher = later.max> bucket.max;
    if (lower || higher) bucket.min_first = lower && higher ? later.min_first : higher;
    bucket.min = std::min(bucket.min, later.min);
    bucket.max = std::max(bucket.max, later.max);
    bucket.sum += later.sum;
    bucket.last = later.last;
    bucket.step_of_last = later.step_of_last;
    bucket.count += later.count;
  }
  bucket.first_step = first_step;
  bucket.last_step = later.last_step;
  bucket.not_finite = not_finite;
}

void Series::Add(int64_t step, double value) {
  if (step < 0) return;
  if (!buckets_.empty() && step < buckets_.back().last_step) ForgetFrom(step);
  const Bucket added = BucketOf(step, value);
  if (!buckets_.empty() && buckets_.back().first_step / width_ == step / width_) {
    Append(added, buckets_.back());
    return;
  }
  buckets_.push_back(added);
  while (buckets_.size() > kMaxBuckets) {
    width_ *= 2;
    std::vector<Bucket> wider;
    for (const Bucket& bucket : buckets_) {
      if (!wider.empty() && wider.back().first_step / width_ == bucket.first_step / width_) {
        Append(bucket, wider.back());
      } else {
        wider.push_back(bucket);
      }
    }
    buckets_ = std::move(wider);
  }
}

void Series::ForgetFrom(int64_t step) {
  while (!buckets_.empty() && buckets_.back().last_step >= step) buckets_.pop_back();
}

Bucket Total(const std::vector<Bucket>& buckets) {
  Bucket total = buckets.front();
  for (size_t i = 1; i < buckets.size(); ++i) Append(buckets[i], total);
  return total;
}

std::vector<Bucket> Downsample(const std::vector<Bucket>& buckets, int64_t first_step, int64_t last_step,
                               int num_columns) {
  const double steps_per_column = (static_cast<double>(last_step - first_step) + 1) / num_columns;
  std::vector<Bucket> columns;
  int64_t last_column = -1;
  for (const Bucket& bucket : buckets) {
    const auto column = static_cast<int64_t>(static_cast<double>(bucket.first_step - first_step) / steps_per_column);
    if (column == last_column) {
      Append(bucket, columns.back());
    } else {
      columns.push_back(bucket);
    }
    last_column = column;
  }
  return columns;
}

}  // namespace official::report
