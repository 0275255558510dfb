// Turns a model into the programs of the three modes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/runtime/program.h"
#include "utils/data/dataset.h"
#include "utils/train/model.h"

namespace official::train {

// The variables that count steps and sum metrics. The sums are not saved.
inline constexpr char kGlobalStep[] = "global_step";
inline constexpr char kLocalPrefix[] = "_local/";

// A mode of a model for one batch size, built but not compiled. Feeds: the features, then for training and evaluation
// the labels, then for training the random state and the learning rate.
struct BuiltModel {
  std::unique_ptr<compute::Graph> graph;
  compute::GraphRoots roots;
  // Names of the fetches. Train: "loss", the logged values, then total and count of each metric. Evaluation: "loss",
  // then the metrics likewise. Prediction: the predictions.
  struct MetricFetch {
    std::string name, summary_tag;
    int total, count;  // indices of fetches
  };
  std::vector<std::string> fetch_names;
  std::vector<MetricFetch> metrics;
  int num_logged = 0;  // kTrain: fetches [1, 1 + num_logged) are the logged values
};

// Total divided by count, as fetched from the last run; NaN where nothing was counted.
absl::StatusOr<double> MetricValue(const compute::Program& program, const BuiltModel::MetricFetch& metric);

absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, compute::DType dtype,
                                      const data::ElementSpec& spec, int64_t batch_size);

}  // namespace official::train
