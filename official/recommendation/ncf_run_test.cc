// The whole of ncf_main but for its command line, on generated ratings.

#include "official/recommendation/ncf_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "official/recommendation/data/generated_ratings.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/run/small_run.h"

namespace official::recommendation {
namespace {

using Catch::Matchers::Contains;

constexpr int kUsers = 150, kItems = 1200, kRatings = 6000;

// 29,250 examples in an epoch: 29 batches, and 226 that begin the next epoch.
NcfConfig SmallConfig() {
  NcfConfig config;
  static_cast<run::Config&>(config) = run::SmallRun(/*batch_size=*/1000);
  config.train.log_every_n_steps = 1;
  REQUIRE(files::MakeDirectories(config.base.data_dir).ok());
  config.ratings.ratings_file = config.base.data_dir + "/ratings.csv";
  const auto ratings = GenerateRatings({.num_users = kUsers, .num_items = kItems, .num_ratings = kRatings});
  REQUIRE(WriteRatings(config.ratings.ratings_file, ratings.value()).ok());
  return config;
}

NcfConfig InNewModelDir(NcfConfig config) {
  config.train.model_dir = run::NewDirectory("model");
  return config;
}

std::string Run(const NcfConfig& config) {
  std::ostringstream out;
  const absl::Status status = RunNcf(config, out);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return out.str();
}

absl::Status RunStatus(const NcfConfig& config) {
  std::ostringstream out;
  return RunNcf(config, out);
}

std::vector<nlohmann::json> Objects(const std::string& text) {
  std::vector<nlohmann::json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

std::vector<nlohmann::json> Evaluations(const std::string& text) {
  std::vector<nlohmann::json> evaluations;
  for (const nlohmann::json& object : Objects(text)) {
    if (object.at("event") == "evaluation") evaluations.push_back(object);
  }
  return evaluations;
}

// With a data set that is not there.
NcfConfig ConfigWithoutRatings() {
  NcfConfig config = SmallConfig();
  config.ratings.ratings_file = "";
  config.ratings.dataset = "ml-100k";
  config.ratings.data_dir = "/nonexistent";
  config.num_eval_negatives = 20;
  return config;
}

TEST_CASE("Synthetic data: nothing is read, the same batch comes again, and a killed run continues") {
  NcfConfig config = ConfigWithoutRatings();
  config.ratings.data_dir_given = true;
  config.performance.use_synthetic_data = true;
  config.performance.max_train_steps = 6;
  Run(config);
  // A network that sees one batch only learns it by heart.
  const std::vector<double> losses = run::Losses(config);
  CHECK(losses.at(5) < losses.at(0));
  NcfConfig resumed = InNewModelDir(config);
  resumed.performance.max_train_steps = 3;
  Run(resumed);
  resumed.performance.max_train_steps = 6;
  Run(resumed);
  run::CheckSameBits(config, resumed);
  const nlohmann::json record =
      nlohmann::json::parse(files::ReadFile(config.train.model_dir + "/benchmark_run.log", 1 << 20).value());
  CHECK(record.at("dataset").at("name") == "ml-100k-synthetic");
}

TEST_CASE("MLPerf's log has the number of pairs that an evaluation ranks, of synthetic data too") {
  NcfConfig config = ConfigWithoutRatings();
  config.performance.use_synthetic_data = true;
  config.performance.max_train_steps = 1;
  config.eval_batch_size = 10 * 21;  // ten users, each with 20 negatives
  config.mlperf_log = config.train.model_dir + "/mlperf.log";
  Run(config);
  const std::string log = files::ReadFile(*config.mlperf_log, 1 << 20).value();
  CHECK_THAT(log, Contains(R"("key": "eval_samples", "value": 210,)"));
}

TEST_CASE("Nothing is recommended by a network that was trained on synthetic data") {
  NcfConfig config = ConfigWithoutRatings();
  config.ratings.data_dir_given = true;  // so that to look for the ratings would be another error
  config.ratings.download_if_missing = false;
  config.performance.max_train_steps = 1;
  config.performance.use_synthetic_data = true;
  config.train.flags_text = "--use_synthetic_data=true\n";
  Run(config);
  config.performance.use_synthetic_data = false;
  config.predict = {1};
  config.ratings.ratings_file = GENERATE("", "/nonexistent/ratings.csv");
  const absl::Status status = RunStatus(config);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "the network in --model_dir=" + config.train.model_dir +
                                " was trained with --use_synthetic_data, and can recommend nothing; train on ratings, "
                                "or name another --model_dir");
}

TEST_CASE("Every model learns who will choose what, for either loss") {
  NcfConfig config = SmallConfig();
  config.base.train_epochs = 12;
  config.base.epochs_between_evals = 6;
  config.model.learning_rate = 0.004;
  config.model.loss = GENERATE(Loss::kSoftmax, Loss::kSigmoid);
  const std::string model = GENERATE("neumf", "gmf", "mlp");
  CAPTURE(model);
  if (model == "gmf") config.model.layers.clear();
  if (model == "mlp") config.model.num_factors = 0;
  const std::vector<nlohmann::json> evaluations = Evaluations(Run(config));
  REQUIRE(evaluations.size() == 2);
  // 6 and 12 epochs, whose leftovers are in the next.
  CHECK(evaluations[0]["global_step"] == 6 * 29250 / 1000);
  CHECK(evaluations[1]["global_step"] == 12 * 29250 / 1000);
  // By chance it would be 0.01, with a standard deviation of 0.008. Later such few ratings are learned by heart.
  CHECK(evaluations[0]["HR"].get<double>() > 0.01 + 4 * 0.008);
  CHECK(evaluations[1]["NDCG"] < evaluations[1]["HR"]);
}

TEST_CASE("A run that was stopped ends with the same bits") {
  NcfConfig whole = SmallConfig();
  whole.base.train_epochs = 2;
  NcfConfig stopped = InNewModelDir(whole);
  Run(whole);
  for (const int64_t step : {1, 5, 29, 40}) {
    stopped.performance.max_train_steps = step;
    Run(stopped);
  }
  stopped.performance.max_train_steps.reset();
  Run(stopped);
  run::CheckSameBits(whole, stopped);
  const auto checkpoint = run::Checkpoint(whole);
  for (const char* name :
       {"embedding/embeddings", "embedding_3/embeddings/Adam_1", "dense_2/kernel", "rating/bias/Adam", "beta1_power"}) {
    CHECK(checkpoint->Find(name).has_value());
  }
}

TEST_CASE("Checkpoints on the way, threads and devices change no bit") {
  NcfConfig one = SmallConfig();
  one.model.loss = GENERATE(Loss::kSoftmax, Loss::kSigmoid);
  Run(one);
  NcfConfig other = InNewModelDir(one);
  SECTION("checkpoints") {
    other.train.save_checkpoints_steps = 3;
    Run(other);
    run::CheckSameBits(one, other);
  }
  SECTION("threads") {
    other.performance.intra_op_parallelism_threads = GENERATE(1, 3);
    Run(other);
    run::CheckSameBits(one, other);
  }
  SECTION("devices") {
    other.performance.num_cpu_devices = GENERATE(2, 4);
    Run(other);
    run::CheckSameBits(one, other);
  }
}

TEST_CASE("Batches computed in parts have the curve of whole ones") {
  NcfConfig whole = SmallConfig();
  whole.model.loss = GENERATE(Loss::kSoftmax, Loss::kSigmoid);
  Run(whole);
  const std::vector<double> want = run::Losses(whole);
  NcfConfig parts = InNewModelDir(whole);
  parts.train.grad_accum_steps = 3;
  parts.performance.num_cpu_devices = GENERATE(1, 2);
  Run(parts);
  const std::vector<double> losses = run::Losses(parts);
  REQUIRE(losses.size() == want.size());
  CHECK(losses.size() == 30);  // of 29 steps and an evaluation
  for (size_t i = 0; i < want.size(); ++i) CHECK(losses[i] == Approx(want[i]).epsilon(1e-5));
}

TEST_CASE("Dense gradients and bfloat16 are trained too") {
  NcfConfig config = SmallConfig();
  config.performance.max_train_steps = 20;
  SECTION("regularization") {
    config.model.mf_regularization = 0.01;
    config.model.mlp_regularization = {0.01, 0, 0, 0.01};
    const std::vector<double> regularized = run::Losses((Run(config), config));
    NcfConfig plain = InNewModelDir(config);
    plain.model.mf_regularization = 0;
    plain.model.mlp_regularization.clear();
    CHECK(regularized[0] > run::Losses((Run(plain), plain))[0] + 0.01);
  }
  SECTION("bfloat16") {
    Run(config);
    NcfConfig narrow = InNewModelDir(config);
    narrow.train.dtype = compute::DType::kBFloat16;
    Run(narrow);
    const std::vector<double> want = run::Losses(config), losses = run::Losses(narrow);
    REQUIRE(losses.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) CHECK(losses[i] == Approx(want[i]).epsilon(0.01));
  }
}

// Scripts look for these lines.
TEST_CASE("The log has HR and NDCG of each iteration") {
  NcfConfig config = SmallConfig();
  config.base.train_epochs = 3;
  config.base.epochs_between_evals = 2;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const std::vector<nlohmann::json> evaluations = Evaluations(Run(config));
  REQUIRE(evaluations.size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(log.Text(),
               Contains(absl::StrFormat(" Iteration %d: HR = %.4f, NDCG = %.4f\n", i + 1,
                                        evaluations[i]["HR"].get<double>(), evaluations[i]["NDCG"].get<double>())));
  }
}

TEST_CASE("The steps of a run include those of the examples that epochs leave over") {
  NcfConfig config = SmallConfig();
  config.base.batch_size = 5000;  // 5.85 batches in an epoch, 17.55 in three
  config.base.train_epochs = 3;
  logs::CapturedLog log(logs::LogFormat::kSimple);
  Run(config);
  CHECK_THAT(log.Text(), Contains("step = 17, ") && Contains("100% of 17 steps"));
}

TEST_CASE("Training ends once HR is good enough") {
  NcfConfig config = SmallConfig();
  config.base.train_epochs = 3;
  config.hr_threshold = 0.0;
  config.ml_perf = true;  // the negatives of an evaluation may repeat
  CHECK(Evaluations(Run(config)).size() == 1);
}

TEST_CASE("Evaluating what was trained gives the same again, however many candidates are scored at a time") {
  NcfConfig config = SmallConfig();
  config.base.train_epochs = 4;
  config.base.epochs_between_evals = 4;
  config.ml_perf = GENERATE(false, true);
  const nlohmann::json trained = Evaluations(Run(config)).at(0);
  CHECK(trained["HR"] > 0.02);
  config.base.eval_only = true;
  config.train.seed = GENERATE(1, 2);  // which draws nothing of an evaluation
  CHECK(Evaluations(Run(config)).at(0) == trained);
  config.eval_batch_size = 1000;  // one user's
  const nlohmann::json again = Evaluations(Run(config)).at(0);
  CHECK(again["HR"] == trained["HR"]);
  CHECK(again["NDCG"].get<double>() == Approx(trained["NDCG"].get<double>()).epsilon(1e-6));
  config.performance.max_train_steps = 2;  // not the number of users
  CHECK(Evaluations(Run(config)).at(0) == again);
  config.train.model_dir = run::NewDirectory("model");
  CHECK(absl::IsNotFound(RunStatus(config)));
}

TEST_CASE("Networks that are computed layer by layer are evaluated in smaller batches, with the same HR") {
  NcfConfig config = SmallConfig();
  config.base.train_epochs = 4;
  config.base.epochs_between_evals = 4;
  const std::string network = GENERATE("the default", "half precision", "deep");
  CAPTURE(network);
  if (network == "half precision") config.train.dtype = compute::DType::kFloat16;
  if (network == "deep") config.model.layers = std::vector<int64_t>(10, 8);
  const nlohmann::json trained = Evaluations(Run(config)).at(0);
  CHECK(trained["HR"] > 0);
  const nlohmann::json record =
      nlohmann::json::parse(files::ReadFile(config.train.model_dir + "/benchmark_run.log", 1 << 20).value());
  const auto& parameters = record.at("run_parameters");
  const auto size = std::find_if(parameters.begin(), parameters.end(), [](const nlohmann::json& parameter) {
    return parameter["name"] == "eval_batch_size";
  });
  REQUIRE(size != parameters.end());
  CHECK(size->at("long_value") == (network == "the default" ? 1 << 20 : 1 << 14));
  config.base.eval_only = true;
  config.eval_batch_size = 1 << 20;
  CHECK(Evaluations(Run(config)).at(0)["HR"] == trained["HR"]);
}

TEST_CASE("What was trained on a ratings file is not used without one") {
  NcfConfig config = SmallConfig();
  config.performance.max_train_steps = 1;
  config.train.flags_text = "--ratings_file=" + config.ratings.ratings_file + "\n";
  Run(config);
  const std::string use = GENERATE("predict", "evaluate", "resume", "rehearse");
  CAPTURE(use);
  if (use == "predict") config.predict = {1};
  config.base.eval_only = use == "evaluate";
  if (use == "rehearse") config.rehearsal = run::Rehearsal::kPrintSchedule;
  const bool trains = use == "resume" || use == "rehearse";
  NcfConfig without = config;
  without.ratings.ratings_file = "";
  without.ratings.download_if_missing = false;
  const absl::Status status = RunStatus(without);
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "the network in --model_dir=" + config.train.model_dir +
                                " was trained with --ratings_file=" + config.ratings.ratings_file +
                                "; give that flag, or the file where it is now" +
                                (trains ? ", or --clean to start again there" : ""));
  Run(config);
}

TEST_CASE("A new training does without the ratings file of the one that is there") {
  NcfConfig config = SmallConfig();
  config.performance.max_train_steps = 1;
  config.train.flags_text = "--ratings_file=" + config.ratings.ratings_file + "\n";
  Run(config);
  NcfConfig other = ConfigWithoutRatings();
  other.ratings.download_if_missing = false;
  other.performance.max_train_steps = 1;
  other.train.model_dir = config.train.model_dir;
  SECTION("--clean") {
    other.base.clean = true;
    Run(other);
    CHECK_FALSE(files::Exists(other.train.model_dir + "/flags.txt"));  // of the one before
  }
  SECTION("--clean, rehearsed") {
    other.base.clean = true;
    other.rehearsal = run::Rehearsal::kPrintSchedule;
    Run(other);
  }
  SECTION("--resume=never") {
    other.train.resume = train::Resume::kNever;
    const absl::Status status = RunStatus(other);
    CHECK(absl::IsFailedPrecondition(status));
    CHECK_THAT(std::string(status.message()), Contains("--resume=never, but there is the checkpoint"));
  }
}

TEST_CASE("Items that a user has not rated are found for the user") {
  NcfConfig config = SmallConfig();
  Run(config);
  config.predict = {1, 7};
  config.top_k = 5;
  const std::vector<nlohmann::json> predictions = Objects(Run(config));
  REQUIRE(predictions.size() == 2);
  CHECK(predictions[1]["user"] == 7);
  const auto& items = predictions[1]["items"];
  REQUIRE(items.size() == 5);
  for (size_t i = 1; i < items.size(); ++i) CHECK(items[i]["rating"] <= items[i - 1]["rating"]);
  const Ratings ratings = LoadRatings(config.ratings).value().ratings;
  const int64_t user = std::find(ratings.user_ids.begin(), ratings.user_ids.end(), 7) - ratings.user_ids.begin();
  for (const int32_t rated : ratings.TrainItems(static_cast<int32_t>(user))) {
    for (const auto& item : items) CHECK(item["item"] != ratings.item_ids[rated]);
  }
  config.predict = {100000};
  CHECK(absl::IsNotFound(RunStatus(config)));
  CHECK(RunStatus(config).message() == "--predict: user 100000 is not among the 150 users with at least 20 ratings");
}

TEST_CASE("A prediction from generated ratings says so, as a training does") {
  NcfConfig config = ConfigWithoutRatings();
  config.ratings.download_if_missing = false;
  config.performance.max_train_steps = 1;
  for (const std::vector<int32_t>& users : {std::vector<int32_t>(), std::vector<int32_t>({1})}) {
    config.predict = users;
    logs::CapturedLog log(logs::LogFormat::kSimple);
    Run(config);
    CHECK_THAT(log.Text(), Contains("the ratings are made by this program, as many as ml-100k has: there is no "
                                    "directory /nonexistent"));
  }
}

TEST_CASE("Samples: what is recommended to the first users, the same as --predict, and where the held-out item is") {
  NcfConfig config = SmallConfig();
  const Ratings ratings = LoadRatings(config.ratings).value().ratings;
  config.item_names = config.base.data_dir + "/names";
  const int32_t named = ratings.item_ids[ratings.held_out[0]];
  REQUIRE(files::WriteFileAtomically(config.item_names, absl::StrFormat("%d|Metropolis\n", named)).ok());
  config.train.eval_samples = 3;
  Run(config);
  const auto samples = run::LastSamples(config);
  REQUIRE(samples.size() == 4);
  CHECK(samples[0] == std::vector<std::string>{"user", "held-out item", "its place", "recommended"});
  CHECK(samples[1][1] == "Metropolis");
  config.predict = {ratings.user_ids[0], ratings.user_ids[1], ratings.user_ids[2]};
  config.top_k = kItems;
  const std::vector<nlohmann::json> predictions = Objects(Run(config));
  for (int32_t user = 0; user < 3; ++user) {
    CAPTURE(user);
    const std::vector<std::string>& sample = samples[1 + user];
    CHECK(sample[0] == absl::StrFormat("%d", ratings.user_ids[user]));
    const int32_t held_out = ratings.item_ids[ratings.held_out[user]];
    if (user > 0 && held_out != named) CHECK(sample[1] == absl::StrFormat("item %d", held_out));
    // --predict has all others of the unrated items, in the same order.
    const auto& others = predictions[user]["items"];
    size_t place = 0;
    CHECK(std::sscanf(sample[2].c_str(), "%zu of", &place) == 1);
    CHECK(sample[2] == absl::StrFormat("%d of %d", place, others.size() + 1));
    for (size_t i = 0, at = 1; at <= 10; ++at) {
      const bool is_held_out = at == place;
      const std::string other = others[i].contains("name") ? others[i]["name"].get<std::string>()
                                                           : absl::StrFormat("item %d", others[i]["item"].get<int>());
      CHECK_THAT(sample[3], Contains(absl::StrFormat("%d. %s", at, is_held_out ? sample[1] : other)));
      if (!is_held_out) ++i;
    }
  }
}

TEST_CASE("Samples of evaluations change no bit") {
  NcfConfig none = SmallConfig();
  none.base.train_epochs = 2;
  none.train.eval_samples = 0;
  const auto some = [&] {
    NcfConfig config = InNewModelDir(none);
    config.train.eval_samples = 16;
    return config;
  }();
  CHECK(run::EvaluationsIn(Run(none)) == run::EvaluationsIn(Run(some)));
  run::CheckSameBits(none, some);
  CHECK(run::LastSamples(none).empty());
  CHECK(run::LastSamples(some).size() == 17);
}

std::vector<Rating> SmallRatings() {
  return GenerateRatings({.num_users = kUsers, .num_items = kItems, .num_ratings = kRatings}).value();
}

// Without `count` of the ratings, from the end, but with the same users and items in the same order.
std::vector<Rating> WithoutSome(std::vector<Rating> ratings, int count) {
  std::map<int32_t, int> of_user;
  std::map<int32_t, size_t> first_of_item;
  for (size_t i = 0; i < ratings.size(); ++i) {
    ++of_user[ratings[i].user];
    first_of_item.try_emplace(ratings[i].item, i);
  }
  for (size_t i = ratings.size(); i-- > 0 && count > 0;) {
    if (first_of_item[ratings[i].item] == i || of_user[ratings[i].user] <= 21) continue;
    --of_user[ratings[i].user];
    ratings.erase(ratings.begin() + static_cast<int64_t>(i));
    --count;
  }
  REQUIRE(count == 0);
  return ratings;
}

TEST_CASE("A run whose ratings or batch size have changed says so, and ends") {
  NcfConfig config = SmallConfig();
  config.base.train_epochs = 2;
  config.performance.max_train_steps = 28;  // of 29 of the first epoch
  Run(config);
  config.performance.max_train_steps.reset();
  logs::CapturedLog log(logs::LogFormat::kSimple);
  SECTION("fewer ratings") {
    REQUIRE(WriteRatings(config.ratings.ratings_file, WithoutSome(SmallRatings(), 1000)).ok());
    CHECK(Evaluations(Run(config)).size() == 1);
    CHECK_THAT(log.Text(), Contains("the training data have changed since the checkpoint was written: they were 5850 "
                                    "examples, digest ") &&
                               Contains(", and are 4850 examples, digest ") &&
                               Contains("after 28000 examples of epoch 1, but the training data have only 24250 now"));
  }
  SECTION("fewer ratings, only evaluated") {
    REQUIRE(WriteRatings(config.ratings.ratings_file, WithoutSome(SmallRatings(), 1000)).ok());
    config.base.eval_only = true;
    CHECK(Evaluations(Run(config)).size() == 1);
    CHECK_THAT(log.Text(), Contains("the training data have changed since the checkpoint was written: they were 5850 "
                                    "examples, digest ") &&
                               Contains("The results of an evaluation on the new data differ"));
  }
  SECTION("the same ratings, only evaluated") {
    config.base.eval_only = true;
    Run(config);
    CHECK_THAT(log.Text(), !Contains("have changed") && !Contains("differ"));
  }
  SECTION("ratings of other users") {
    const auto ratings = GenerateRatings({.num_users = kUsers, .num_items = kItems, .num_ratings = 5000});
    REQUIRE(WriteRatings(config.ratings.ratings_file, ratings.value()).ok());
    const absl::Status status = RunStatus(config);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Contains("was trained on ratings of 150 users and ") &&
                                                  Contains("--ratings_file=" + config.ratings.ratings_file + " has ") &&
                                                  Contains("give the ratings of that training"));
  }
  SECTION("the same ratings in another order") {
    std::vector<Rating> ratings = SmallRatings();
    std::reverse(ratings.begin(), ratings.end());
    REQUIRE(WriteRatings(config.ratings.ratings_file, ratings).ok());
    config.predict = {1};
    CHECK_THAT(std::string(RunStatus(config).message()), Contains("give the ratings of that training"));
  }
  SECTION("a batch that is most of an epoch") {
    config.base.batch_size = 29249;
    CHECK(Evaluations(Run(config)).size() == 2);
    CHECK_THAT(log.Text(), !Contains("have changed"));
  }
  SECTION("a batch that is most of an epoch, and the last one of this training") {
    config.base.train_epochs = 1;
    config.base.batch_size = 29000;
    config.performance.max_train_steps.reset();
    Run(config);
    CHECK_THAT(log.Text(), !Contains("have changed"));
  }
}

TEST_CASE("A batch that is larger than an epoch is one clear error") {
  NcfConfig config = SmallConfig();
  config.base.batch_size = 30000;
  const absl::Status status = RunStatus(config);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             Contains("--batch_size=30000 is more than the 29250 examples of an epoch") && Contains("=29250"));
}

}  // namespace
}  // namespace official::recommendation
