// ncf_main: trains and evaluates the official recommendation model.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "official/recommendation/data/eval_data.h"
#include "official/recommendation/ncf_run.h"
#include "utils/compute/core/status.h"
#include "utils/files/user_dirs.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/skip_bad_records.h"
#include "utils/run/predict_lines.h"
#include "utils/run/standalone/main.h"

ABSL_FLAG(std::string, dataset, "ml-1m",
          "MovieLens data set to train on: 100 thousand, 1 million or 20 million ratings.");
ABSL_FLAG(bool, download_if_missing, true, "Download the data set if it is not in --data_dir.");
ABSL_FLAG(
    std::string, ratings_file, "",
    "File with your own ratings to train on, instead of MovieLens: user, item, rating and timestamp on each line, "
    "separated by commas, tabs, ::, semicolons or spaces.");
ABSL_FLAG(std::string, item_names, "",
          "File with the number and the name of an item on each line (u.item, movies.dat or movies.csv of MovieLens). "
          "--predict and the samples of evaluations show the names, --export_dir copies them.");
ABSL_FLAG(std::string, model, "neumf",
          "Network. gmf: generalized matrix factorization; mlp: multilayer perceptron; neumf: both combined.");
ABSL_FLAG(
    std::string, loss, "softmax",
    "Cross entropy of the probability that a user chooses an item with the score x. softmax: sigmoid(x - 1), as in "
    "TensorFlow's program; sigmoid: sigmoid(x), the binary cross entropy.");
ABSL_FLAG(std::string, eval_batch_size, "",
          "Pairs of a user and an item that an evaluation scores at a time. HR and NDCG do not depend on it.");
ABSL_FLAG(int, num_factors, 8, "Embedding size of the matrix factorization.");
ABSL_FLAG(std::vector<std::string>, layers, std::vector<std::string>({"64", "32", "16", "8"}),
          "Layer sizes of the perceptron. The first is its input: the embeddings of a user and of an item, each half "
          "of it.");
ABSL_FLAG(double, mf_regularization, 0, "Factor of the L2 loss of the matrix factorization's embeddings.");
ABSL_FLAG(std::vector<std::string>, mlp_regularization, std::vector<std::string>({"0.", "0.", "0.", "0."}),
          "Factors of the L2 loss of the perceptron, as many as --layers: one for its embeddings, then one for each "
          "kernel.");
ABSL_FLAG(
    int, num_neg, 4,
    "Negatives per rating: items that the user has not rated, or the one that is held out, sampled again for each "
    "epoch, to train on.");
ABSL_FLAG(std::optional<int>, num_eval_negatives, std::nullopt,
          "Negatives per user in an evaluation: items that the user has not rated, among which the user's last item is "
          "ranked.");
ABSL_FLAG(double, learning_rate, 0.001, "Learning rate of the Adam optimizer.");
ABSL_FLAG(std::optional<double>, hr_threshold, std::nullopt,
          "Stop training when an evaluation's HR@10 (0 to 1) is at least this value.");
ABSL_FLAG(std::optional<std::string>, mlperf_log, std::nullopt,
          "File for MLPerf's log of the training, in the format of rules 0.7.0 and later. A new run overwrites the "
          "log that is there, a resumed run appends to it; a file with anything else is refused.");
ABSL_FLAG(bool, ml_perf, false,
          "MLPerf's rule for evaluation: negatives are sampled with replacement, and repeated ones are ignored.");
ABSL_FLAG(std::vector<std::string>, predict, {},
          "Users, by their numbers in the ratings, to recommend items to with the latest checkpoint in --model_dir, "
          "instead of training; - reads them from standard input, a line each, and prints the items of each at once.");
ABSL_FLAG(int, top_k, 10, "Number of items that --predict prints for each user.");

namespace official::recommendation {
namespace {

// Of --num_neg and --num_eval_negatives: more are of no use, and the numbers that are computed from it stay small.
constexpr int kMostNegatives = 100000;

// The numbers of a list flag; nothing if one of them is none.
template <typename T, typename Parse>
std::optional<std::vector<T>> Numbers(const std::vector<std::string>& items, Parse parse) {
  std::vector<T> numbers;
  for (const std::string& item : items) {
    if (!parse(item, &numbers.emplace_back())) return std::nullopt;
  }
  return numbers;
}

constexpr int64_t kMaxLayer = 1 << 20;

std::optional<std::vector<int64_t>> LayersFromFlag() {
  return Numbers<int64_t>(absl::GetFlag(FLAGS_layers), [](const std::string& item, int64_t* n) {
    return absl::SimpleAtoi(item, n) && *n >= 1 && *n <= kMaxLayer;
  });
}

std::optional<std::vector<double>> RegularizationFromFlag() {
  return Numbers<double>(absl::GetFlag(FLAGS_mlp_regularization), [](const std::string& item, double* n) {
    return absl::SimpleAtod(item, n) && *n >= 0 && std::isfinite(*n);
  });
}

bool IsRegularized(const std::vector<double>& factors) {
  return std::any_of(factors.begin(), factors.end(), [](double factor) { return factor > 0; });
}

absl::Status CheckLayers(const flags::CommandLine&) {
  const auto layers = LayersFromFlag();
  if (!layers || layers->empty()) {
    return flags::FlagError("layers", absl::StrCat("needs a comma-separated list of sizes from 1 to ", kMaxLayer));
  }
  if ((*layers)[0] % 2 != 0) {
    return flags::FlagError("layers",
                            "needs an even first size: it is divided between the embeddings of user and item");
  }
  const auto factors = RegularizationFromFlag();
  if (!factors)
    return flags::FlagError("mlp_regularization", "needs a comma-separated list of finite numbers of at least 0");
  if (!IsRegularized(*factors)) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_model) == "gmf") {
    return flags::FlagError("mlp_regularization", "cannot be combined with --model=gmf, which has no perceptron");
  }
  if (factors->size() == layers->size()) return absl::OkStatus();
  return flags::FlagError("mlp_regularization",
                          absl::StrCat("needs ", layers->size(), " numbers, as many as --layers has"));
}

absl::Status CheckFactorization(const flags::CommandLine&) {
  if (absl::GetFlag(FLAGS_model) != "mlp" || absl::GetFlag(FLAGS_mf_regularization) == 0) return absl::OkStatus();
  return flags::FlagError("mf_regularization",
                          "cannot be combined with --model=mlp, which has no matrix factorization");
}

bool UsersAreLines() { return run::IsStandardInput(absl::GetFlag(FLAGS_predict)); }

std::optional<std::vector<int32_t>> UsersFromFlag() {
  if (UsersAreLines()) return std::vector<int32_t>();
  return Numbers<int32_t>(absl::GetFlag(FLAGS_predict),
                          [](const std::string& item, int32_t* n) { return absl::SimpleAtoi(item, n); });
}

absl::Status CheckUsers(const flags::CommandLine& command_line) {
  if (!UsersFromFlag()) return flags::FlagError("predict", "needs a comma-separated list of users, or -");
  // In a flag file the empty value is the default.
  if (!absl::GetFlag(FLAGS_predict).empty() || !command_line.given("predict")) return absl::OkStatus();
  return flags::FlagError("predict", "names no user; without the flag, the program trains");
}

absl::Status CheckEvalBatchSize(const flags::CommandLine&) {
  int64_t size = 0;
  const std::string& text = absl::GetFlag(FLAGS_eval_batch_size);
  if (text.empty() || (absl::SimpleAtoi(text, &size) && size >= 1)) return absl::OkStatus();
  return flags::FlagError("eval_batch_size", "needs an integer, at least 1");
}

absl::Status WhatDoesNotApply(const flags::CommandLine& command_line) {
  const flags::BaseConfig base = flags::BaseFromFlags(command_line);
  if (flags::FromFlags<flags::PerformanceConfig>().use_synthetic_data) {
    for (const absl::string_view flag : {"ratings_file", "item_names", "predict"}) {
      if (command_line.given(flag)) return flags::FlagError(flag, "cannot be combined with --use_synthetic_data");
    }
  }
  if (base.overfit_batches) {
    return flags::FlagError("overfit_batches", "is not for ncf_main: each epoch draws other negatives for its batches");
  }
  if (base.stop_threshold) return flags::FlagError("stop_threshold", "is not used by ncf_main; use --hr_threshold");
  if (!base.eval_only || !absl::GetFlag(FLAGS_mlperf_log)) return absl::OkStatus();
  return flags::FlagError("mlperf_log", "cannot be combined with --eval_only: it logs a training");
}

flags::FlagSpec SkipFlag() {
  flags::FlagSpec flag = flags::SkipBadRecordsFlag();
  flag.help = "Number of lines of the ratings that may be damaged: they are logged and left out. One more is an error.";
  return flag;
}

flags::Program NcfProgram() {
  return {
      .name = "ncf_main",
      .description =
          "Trains neural collaborative filtering (NCF) to recommend items to users, on the ratings of MovieLens or "
          "your own, and evaluates it: HR@10 is how often the last item of a user is ranked among the first 10 of "
          "1000. "
          "MovieLens is downloaded if it is missing; if that fails, the network is trained on ratings that the program "
          "generates.",
      .examples = {{"ncf_main", "train for 2 epochs on MovieLens 1M"},
                   {"ncf_main --dataset=ml-20m --layers=256,256,128,64 --num_factors=64 --batch_size=65536",
                    "train the network of MLPerf"},
                   {"ncf_main --ratings_file=ratings.csv --hr_threshold=0.6", "train on your own ratings"},
                   {"ncf_main --ratings_file=u.data --item_names=u.item --predict=17", "print the titles of films"},
                   {"ncf_main --export_dir=export --mlperf_log=mlperf.log",
                    "also write a SavedModel, and a log for MLPerf's checker"},
                   {"ncf_main --predict=17,42", "recommend items that these users have not rated"}},
      .defaults = {{"data_dir", files::DefaultDataDir("movielens-data")},
                   {"model_dir", files::DefaultModelDir("ncf")},
                   {"train_epochs", "2"},
                   {"batch_size", "256"},
                   {"hooks", "ProfilerHook"}},
      .help = {{"data_dir",
                "Directory of the MovieLens data sets; they are downloaded to it. Not used with --ratings_file."},
               {"batch_size",
                "Training examples per step: ratings and negatives. The batch is divided among all GPUs. An evaluation "
                "uses --eval_batch_size."},
               {"max_train_steps",
                "Stop training at this global step, which includes the steps of earlier runs in --model_dir. It does "
                "not limit evaluations: HR and NDCG are always of all users."},
               {"overfit_batches", "Refused: each epoch draws other negatives for its batches."},
               {"stop_threshold", "Refused: use --hr_threshold."}},
      .not_used = {{"shuffle", "the training examples are always sampled in random order"},
                   {"augment", "there are no images"},
                   {"data_format", "there are no images"},
                   {"num_parallel_calls", "the threads that compute also sample the training examples"}},
      .flags = {.name = "ncf",
                .flags = {{.name = "dataset", .key = true, .choices = {"ml-100k", "ml-1m", "ml-20m"}, .any_case = true},
                          {.name = "download_if_missing", .key = true},
                          {.name = "ratings_file", .key = true, .per_worker = true, .input = true},
                          {.name = "item_names", .key = true, .per_worker = true, .input = true},
                          {.name = "model", .key = true, .choices = {"neumf", "gmf", "mlp"}},
                          {.name = "loss", .key = true, .choices = {"softmax", "sigmoid"}},
                          {.name = "eval_batch_size", .key = true, .unset_means = "chosen for speed"},
                          {.name = "num_factors", .key = true, .range = flags::AtLeast(1)},
                          {.name = "layers", .key = true},
                          {.name = "mf_regularization", .key = true, .range = flags::AtLeast(0)},
                          {.name = "mlp_regularization", .key = true},
                          {.name = "num_neg", .key = true, .range = {.min = 0, .max = kMostNegatives}},
                          {.name = "num_eval_negatives",
                           .key = true,
                           .range = {.min = kFewestNegatives, .max = kMostNegatives},
                           .unset_means = "999, or as many as every user has"},
                          {.name = "learning_rate", .key = true, .range = flags::MoreThan(0)},
                          {.name = "hr_threshold", .key = true, .unset_means = "train all epochs"},
                          {.name = "ml_perf", .key = true},
                          {.name = "mlperf_log", .unset_means = "none", .per_worker = true},
                          {.name = "predict", .key = true},
                          {.name = "top_k", .range = flags::AtLeast(1)},
                          SkipFlag()},
                .validators = {CheckLayers, CheckFactorization, CheckEvalBatchSize, CheckUsers, WhatDoesNotApply,
                               flags::PredictAlone, flags::ThresholdOf("hr_threshold", "HR", 1)}},
      .network = {{"dataset"}, {"model"}, {"num_factors"}, {"layers"}},
      .rehearses = true,
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
  if (IsRegularized(factors)) config.model.mlp_regularization = factors;
  config.ratings = {.dataset = absl::GetFlag(FLAGS_dataset),
                    .data_dir = config.base.data_dir,
                    .data_dir_given = config.base.data_dir_given,
                    .download_if_missing = absl::GetFlag(FLAGS_download_if_missing),
                    .ratings_file = absl::GetFlag(FLAGS_ratings_file),
                    .skip_bad_records = flags::SkipBadRecords()};
  config.num_neg = absl::GetFlag(FLAGS_num_neg);
  config.num_eval_negatives = absl::GetFlag(FLAGS_num_eval_negatives);
  int64_t eval_batch_size;
  if (absl::SimpleAtoi(absl::GetFlag(FLAGS_eval_batch_size), &eval_batch_size))
    config.eval_batch_size = eval_batch_size;
  config.hr_threshold = absl::GetFlag(FLAGS_hr_threshold);
  config.ml_perf = absl::GetFlag(FLAGS_ml_perf);
  config.mlperf_log = absl::GetFlag(FLAGS_mlperf_log);
  config.predict = *UsersFromFlag();
  config.predict_lines = UsersAreLines();
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
  return official::run::RunMain(argc, argv, official::recommendation::NcfProgram(), official::recommendation::Main);
}
