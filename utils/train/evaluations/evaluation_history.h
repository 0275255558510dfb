// EvaluationHistory: the results of the evaluations of a run, in the order of their steps, and what follows from them.
// It is a file, eval/results.txt of model_dir, with a line for each evaluation:
//   600 accuracy=0.98 loss=0.0625
// In names, blanks, control characters and percent signs are written as in URLs: "top 5" is top%205.
// Only runs that decide by their evaluations write it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/train/evaluations/metric_rule.h"

namespace official::train {

inline constexpr absl::string_view kEvaluationHistoryFile = "eval/results.txt";  // in model_dir

class EvaluationHistory {
 public:
  // Reads the file of model_dir; empty if there is none. DataLoss, naming the line, if it is damaged.
  static absl::StatusOr<EvaluationHistory> Read(const std::string& model_dir);
  // Replaces or creates the file in one durable step.
  absl::Status Write(const std::string& model_dir) const;
  // Removes the file, if there is one.
  static absl::Status Remove(const std::string& model_dir);

  // Forgets the evaluations of later steps: those of a training that continues from an earlier checkpoint.
  void ForgetAfter(int64_t step);
  // Adds the results of a step by their names, global_step apart, and forgets what was known of it and of later ones.
  void Add(int64_t step, absl::Span<const std::pair<std::string, double>> results);

  // Returns the `rule.number` best of `steps`, the best one last; of equal ones the earlier is better, and those
  // without the metric are the worst.
  std::vector<int64_t> Best(const std::set<int64_t>& steps, const MetricRule& rule) const;

  // The best evaluation of all that have the metric, and the number of those after it.
  struct BestSoFar {
    int64_t step;
    double value;
    int64_t evaluations_since;
  };
  // Nothing if none has the metric.
  std::optional<BestSoFar> BestOf(const MetricRule& rule) const;

 private:
  // The value of the metric; not a number if there is none.
  double ValueOf(int64_t step, const std::string& metric) const;

  std::map<int64_t, std::map<std::string, double>> results_;  // by step
};

}  // namespace official::train
