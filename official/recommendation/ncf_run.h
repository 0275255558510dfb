// The run of ncf_main: NeuMF on ratings.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/recommendation/data/movielens.h"
#include "official/recommendation/neumf_model.h"
#include "utils/flags/network.h"
#include "utils/run/config.h"
#include "utils/train/model.h"
#include "utils/train/run_facts.h"

namespace official::recommendation {

struct NcfConfig : run::Config {
  ModelConfig model;  // except the numbers of users and items
  RatingsOptions ratings;
  int num_neg = 4;                         // negatives for each positive example
  std::optional<int> num_eval_negatives;   // negatives for each user of an evaluation; unset: see EvalOptions
  std::optional<int64_t> eval_batch_size;  // candidates scored at a time; unset: as many as are fast
  std::optional<double> hr_threshold;      // HR at which training ends
  std::optional<std::string> mlperf_log;   // the file for MLPerf's log of the training
  bool ml_perf = false;                    // MLPerf's rule for the candidates of an evaluation
  std::vector<int32_t> predict;            // users to find items for, instead of training
  bool predict_lines = false;              // the same for users in the lines of standard input
  int top_k = 10;                          // the number of items for each
  std::string item_names = "";             // a file with the names of the items (item_names.h); empty: none
};

// The model with the numbers of users and items of the ratings.
train::Model ModelFor(ModelConfig model, const Ratings& ratings);

// The users and items of the ratings as a fact of the training: another run must have the same, in the same order.
train::RunFact UsersAndItems(const RatingsOptions& options, const std::string& model_dir, const Ratings& ratings);

// InvalidArgument if `trained`, the flags of the training in `model_dir`, say that its data were synthetic: such a
// network has nothing to recommend.
absl::Status CheckCanRecommend(const std::string& model_dir, const flags::FlagValues& trained);

// Trains and evaluates, or predicts if users are given. Results go to `results`, all else to the log. InvalidArgument
// if what was trained on a ratings file is to be trained further, to be evaluated or to predict without one, or if what
// was trained on synthetic data or on ratings of other users and items is to predict.
absl::Status RunNcf(const NcfConfig& config, std::ostream& results);

}  // namespace official::recommendation
