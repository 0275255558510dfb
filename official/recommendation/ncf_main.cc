// ncf_main: trains and evaluates the official recommendation model.

#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "official/recommendation/ncf_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/main.h"

ABSL_FLAG(std::string, dataset, "ml-1m", "The ratings of MovieLens to train on.");
ABSL_FLAG(bool, download_if_missing, true, "Download the data set if it is not in --data_dir.");
ABSL_FLAG(std::string, ratings_file, "",
          "A file of ratings of your own, in place of a data set: user, item, rating and timestamp on a line, with "
          "commas, tabs, ::, semicolons or blanks between them.");
ABSL_FLAG(
    std::string, item_names, "",
    "A file with the number and the name of an item on each line (u.item, movies.dat or movies.csv of MovieLens): "
    "--predict prints the names, --export_dir keeps them.");
ABSL_FLAG(std::string, model, "neumf",
          "gmf: generalized matrix factorization; mlp: a perceptron; neumf: both, one beside the other.");
ABSL_FLAG(
    std::string, loss, "softmax",
    "The probability of a score x is sigmoid(x - 1) (softmax) or sigmoid(x), the binary cross entropy (sigmoid).");
ABSL_FLAG(
    std::string, eval_batch_size, "",
    "Candidates that an evaluation scores at a time. Not given, so many that it is fast; what HR and NDCG are does "
    "not depend on it.");
ABSL_FLAG(int, num_factors, 8, "Size of the embeddings of matrix factorization.");
ABSL_FLAG(std::vector<std::string>, layers, std::vector<std::string>({"64", "32", "16", "8"}),
          "Sizes of the perceptron: of the two embeddings that it takes, together, then of each layer.");
ABSL_FLAG(double, mf_regularization, 0, "Factor of the sum of squares of matrix factorization's embeddings.");
ABSL_FLAG(std::vector<std::string>, mlp_regularization, std::vector<std::string>({"0.", "0.", "0.", "0."}),
          "Factors of the sums of squares of the perceptron's embeddings and of each of its kernels.");
ABSL_FLAG(int, num_neg, 4, "Negatives that are drawn for each rating of the training set.");
ABSL_FLAG(std::optional<int>, num_eval_negatives, std::nullopt,
          "Items that a user has not rated, among which an evaluation ranks the user's last item.");
ABSL_FLAG(double, learning_rate, 0.001, "Learning rate of Adam.");
ABSL_FLAG(std::optional<double>, hr_threshold, std::nullopt, "Stop when HR@10 is at least this.");
ABSL_FLAG(
    std::optional<std::string>, mlperf_log, std::nullopt,
    "Write MLPerf's log of the training to this file, in the lines of its rules 0.7.0 and later, which have no ncf "
    "any more. A new run begins the file anew, a resumed one goes on in it.");
ABSL_FLAG(bool, ml_perf, false,
          "MLPerf's rule: an evaluation's negatives are drawn with replacement, and repeats do not count.");
ABSL_FLAG(std::vector<std::string>, predict, {},
          "Users, as the ratings number them, to find items for with what was trained in --model_dir, in place of "
          "training.");
ABSL_FLAG(int, top_k, 10, "How many items --predict prints for each user.");

namespace official::recommendation {
namespace {

// The numbers of a list flag; nothing if one of them is none.
template <typename T, typename Parse>
std::optional<std::vector<T>> Numbers(const std::vector<std::string>& items, Parse parse) {
  std::vector<T> numbers;
  for (const std::string& item : items) {
    if (!parse(item, &numbers.emplace_back())) return std::nullopt;
  }
  return numbers;
}

std::optional<std::vector<int64_t>> LayersFromFlag() {
  return Numbers<int64_t>(absl::GetFlag(FLAGS_layers),
                          [](const std::string& item, int64_t* n) { return absl::SimpleAtoi(item, n) && *n >= 1; });
}

std::optional<std::vector<double>> RegularizationFromFlag() {
  return Numbers<double>(absl::GetFlag(FLAGS_mlp_regularization),
                         [](const std::string& item, double* n) { return absl::SimpleAtod(item, n) && *n >= 0; });
}

bool IsRegularized(const std::vector<double>& factors) {
  return std::any_of(factors.begin(), factors.end(), [](double factor) { return factor > 0; });
}

absl::Status CheckLayers(const flags::CommandLine&) {
  const auto layers = LayersFromFlag();
  if (!layers || layers->empty()) return flags::FlagError("layers", "wants a comma separated list of sizes");
  if ((*layers)[0] % 2 != 0) {
    return flags::FlagError("layers", "wants an even first size, that of two embeddings side by side");
  }
  const auto factors = RegularizationFromFlag();
  if (!factors) return flags::FlagError("mlp_regularization", "wants a comma separated list of numbers of at least 0");
  if (!IsRegularized(*factors) || factors->size() == layers->size()) return absl::OkStatus();
  return flags::FlagError("mlp_regularization",
                          absl::StrCat("wants ", layers->size(), " numbers, as many as --layers"));
}

std::optional<std::vector<int32_t>> UsersFromFlag() {
  return Numbers<int32_t>(absl::GetFlag(FLAGS_predict),
                          [](const std::string& item, int32_t* n) { return absl::SimpleAtoi(item, n); });
}

absl::Status CheckUsers(const flags::CommandLine&) {
  return UsersFromFlag() ? absl::OkStatus() : flags::FlagError("predict", "wants a comma separated list of users");
}

absl::Status CheckEvalBatchSize(const flags::CommandLine&) {
  int64_t size = 0;
  const std::string& text = absl::GetFlag(FLAGS_eval_batch_size);
  if (text.empty() || (absl::SimpleAtoi(text, &size) && size >= 1)) return absl::OkStatus();
  return flags::FlagError("eval_batch_size", "wants a number, at least 1");
}

absl::Status WhatDoesNotApply(const flags::CommandLine& command_line) {
  const flags::BaseConfig base = flags::BaseFromFlags(command_line);
  if (base.stop_threshold) return flags::FlagError("stop_threshold", "has no effect here; give --hr_threshold");
  if (!base.eval_only || !absl::GetFlag(FLAGS_mlperf_log)) return absl::OkStatus();
  return flags::FlagError("mlperf_log", "cannot be combined with --eval_only: it is the log of a training");
}

flags::Program NcfProgram() {
  return {
      .name = "ncf_main",
      .description =
          "Trains neural collaborative filtering to tell which items a user will choose, on MovieLens or ratings of "
          "your own, and evaluates it: how often is the last item that a user chose among the first 10 of 1000? "
          "Without "
          "data it downloads MovieLens; without a network it trains on ratings that it makes itself.",
      .examples = {{"ncf_main", "train for 2 epochs on MovieLens 1M"},
                   {"ncf_main --dataset=ml-20m --layers=256,256,128,64 --num_factors=64 --batch_size=65536",
                    "the sizes of MLPerf"},
                   {"ncf_main --ratings_file=ratings.csv --hr_threshold=0.6", "train on ratings of your own"},
                   {"ncf_main --ratings_file=u.data --item_names=u.item --predict=17", "print the titles of films"},
                   {"ncf_main --export_dir=export --mlperf_log=mlperf.log",
                    "train, write a SavedModel, and a log for MLPerf's checker"},
                   {"ncf_main --predict=17,42", "what will these users choose, of what they have not rated?"}},
      .defaults = {{"data_dir", files::DefaultDataDir("movielens-data")},
                   {"model_dir", files::DefaultModelDir("ncf")},
                   {"train_epochs", "2"},
                   {"batch_size", "256"},
                   {"hooks", "ProfilerHook"}},
      .flags = {.name = "ncf",
                .flags = {{.name = "dataset", .key = true, .choices = {"ml-100k", "ml-1m", "ml-20m"}, .any_case = true},
                          {.name = "download_if_missing", .key = true},
                          {.name = "ratings_file", .key = true},
                          {.name = "item_names", .key = true},
                          {.name = "model", .key = true, .choices = {"neumf", "gmf", "mlp"}},
                          {.name = "loss", .key = true, .choices = {"softmax", "sigmoid"}},
                          {.name = "eval_batch_size", .key = true},
                          {.name = "num_factors", .key = true, .range = flags::AtLeast(1)},
                          {.name = "layers", .key = true},
                          {.name = "mf_regularization", .key = true, .range = flags::AtLeast(0)},
                          {.name = "mlp_regularization", .key = true},
                          {.name = "num_neg", .key = true, .range = flags::AtLeast(0)},
                          // Among 9 or fewer every item is one of the first 10.
                          {.name = "num_eval_negatives",
                           .key = true,
                           .range = flags::AtLeast(10),
                           .unset_means = "999, or as many as every user has"},
                          {.name = "learning_rate", .key = true, .range = flags::MoreThan(0)},
                          {.name = "hr_threshold", .key = true, .unset_means = "train all epochs"},
                          {.name = "ml_perf", .key = true},
                          {.name = "mlperf_log", .unset_means = "none"},
                          {.name = "predict", .key = true},
                          {.name = "top_k", .range = flags::AtLeast(1)}},
                .validators = {CheckLayers, CheckEvalBatchSize, CheckUsers, WhatDoesNotApply, flags::PredictAlone}},
      .network = {{"dataset"}, {"model"}, {"num_factors"}, {"layers"}},
  };
}

NcfConfig ConfigFromFlags(const flags::CommandLine& command_line) {
  NcfConfig config;
  static_cast<run::Config&>(config) = run::ConfigFromFlags(command_line);
  const std::string model = absl::GetFlag(FLAGS_model);
  config.model = {.num_factors = model == "mlp" ? 0 : absl::GetFlag(FLAGS_num_factors),
                  .layers = model == "gmf" ? std::vector<int64_t>() : *LayersFromFlag(),
                  .loss = absl::GetFlag(FLAGS_loss) == "softmax" ? Loss::kSoftmax : Loss::kSigmoid,
                  .mf_regularization = absl::GetFlag(FLAGS_mf_regularization),
                  .learning_rate = absl::GetFlag(FLAGS_learning_rate)};
  const std::vector<double> factors = *RegularizationFromFlag();
  if (model != "gmf" && IsRegularized(factors)) config.model.mlp_regularization = factors;
  config.ratings = {.dataset = absl::GetFlag(FLAGS_dataset),
                    .data_dir = config.base.data_dir,
                    .data_dir_given = config.base.data_dir_given,
                    .download_if_missing = absl::GetFlag(FLAGS_download_if_missing),
                    .generate = config.performance.use_synthetic_data,
                    .ratings_file = absl::GetFlag(FLAGS_ratings_file)};
  config.num_neg = absl::GetFlag(FLAGS_num_neg);
  config.num_eval_negatives = absl::GetFlag(FLAGS_num_eval_negatives);
  int64_t eval_batch_size;
  if (absl::SimpleAtoi(absl::GetFlag(FLAGS_eval_batch_size), &eval_batch_size))
    config.eval_batch_size = eval_batch_size;
  config.hr_threshold = absl::GetFlag(FLAGS_hr_threshold);
  config.ml_perf = absl::GetFlag(FLAGS_ml_perf);
  config.mlperf_log = absl::GetFlag(FLAGS_mlperf_log);
  config.predict = *UsersFromFlag();
  config.top_k = absl::GetFlag(FLAGS_top_k);
  config.item_names = absl::GetFlag(FLAGS_item_names);
  return config;
}

absl::Status Main(const flags::CommandLine& command_line) {
  const NcfConfig config = ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  return RunNcf(config, std::cout);
}

}  // namespace
}  // namespace official::recommendation

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::recommendation::NcfProgram(), official::recommendation::Main);
}
