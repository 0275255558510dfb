#include "official/recommendation/ncf_run.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/recommendation/data/item_names.h"
#include "official/recommendation/ncf_export.h"
#include "official/recommendation/ncf_input.h"
#include "official/recommendation/ncf_predict.h"
#include "official/recommendation/ncf_samples.h"
#include "official/recommendation/op/neural_factorization.h"
#include "official/recommendation/synthetic.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/start_threads.h"
#include "utils/data/fingerprint.h"
#include "utils/flags/network.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/misc/text.h"
#include "utils/run/batch_size.h"
#include "utils/run/mlperf_hook.h"
#include "utils/run/rehearsal.h"
#include "utils/run/session.h"

namespace official::recommendation {
namespace {

// Candidates that an evaluation scores at a time, if --eval_batch_size is not given. The fused op keeps none of their
// layers: so many that what is computed once for all of them costs little. Op by op, a layer of all of them is in
// memory: so few that it stays in the caches.
constexpr int64_t kFusedEvalBatchSize = 1 << 20, kLayeredEvalBatchSize = 1 << 14;

// Of the negatives that an evaluation draws: with every --seed it ranks the same items, in training and afterwards.
constexpr uint64_t kEvalSeed = 1;

// What a run is trained on, kept for as long as it lasts.
struct NcfData {
  LoadedRatings loaded;
  ItemNames item_names;
  std::shared_ptr<const EvalData> eval;
};
using NcfDataPtr = std::shared_ptr<const NcfData>;

// The names that --item_names gives; none without it.
absl::StatusOr<ItemNames> LoadItemNames(const NcfConfig& config, const Ratings& ratings) {
  if (config.item_names.empty()) return ItemNames();
  ASSIGN_OR_RETURN(ItemNames names, ReadItemNames(config.item_names));
  const bool named =
      std::any_of(ratings.item_ids.begin(), ratings.item_ids.end(), [&](int32_t item) { return names.contains(item); });
  if (named) return names;
  return absl::InvalidArgumentError(absl::StrFormat("--item_names=%s names none of the %d items of the ratings",
                                                    config.item_names, ratings.num_items()));
}

// The number of candidates that an evaluation scores at a time.
int64_t EvalBatchSize(const NcfConfig& config) {
  const auto num_layers = static_cast<int>(config.model.layers.size()) - 1;  // the first size is of their input
  const bool is_fused = ComputesFactorization(config.train.dtype, num_layers);
  return config.eval_batch_size.value_or(is_fused ? kFusedEvalBatchSize : kLayeredEvalBatchSize);
}

// The number of users that an evaluation scores at a time.
int64_t UsersPerBatch(const NcfConfig& config, int num_candidates) {
  return std::max<int64_t>(1, EvalBatchSize(config) / num_candidates);
}

// For --use_synthetic_data: an evaluation is one batch.
absl::StatusOr<NcfDataPtr> SyntheticData(const NcfConfig& config) {
  ASSIGN_OR_RETURN(const GeneratorOptions size, SizeOfDataset(config.ratings.dataset));
  const int num_negatives = config.num_eval_negatives.value_or(kUsualNegatives);
  const auto users = static_cast<int32_t>(std::min<int64_t>(size.num_users, UsersPerBatch(config, 1 + num_negatives)));
  EvalData eval = SyntheticEvalData(size, users, num_negatives);
  return std::make_shared<NcfData>(LoadedRatings{.ratings = SyntheticRatings(size)}, ItemNames(),
                                   std::make_shared<EvalData>(std::move(eval)));
}

run::Input SyntheticInput(const NcfConfig& config, const NcfDataPtr& data, const GeneratorOptions& size,
                          int64_t batch_size) {
  const int64_t positives = size.num_ratings - size.num_users;  // each user's last rating is held out
  const int64_t num_examples = std::max(batch_size, positives * (1 + config.num_neg));
  return {.dataset = absl::StrCat(config.ratings.dataset, "-synthetic"),
          .spec = TrainSpec(),
          .num_train_examples = num_examples,
          .steps_per_epoch = num_examples / batch_size,
          .train = [=, num_neg = config.num_neg](const run::ReadOptions& read) -> absl::StatusOr<data::BatchSourcePtr> {
            return SyntheticTrainBatches(size, num_neg, num_examples, batch_size, read.start, read.end_epoch);
          },
          .eval = [=](const data::HeldRows&) -> absl::StatusOr<data::BatchSourcePtr> {
            const auto users = static_cast<int64_t>(data->eval->repeat_offsets.size()) - 1;
            return EvalBatches(data->eval, users, users);
          }};
}

absl::StatusOr<NcfDataPtr> LoadData(const NcfConfig& config) {
  if (config.performance.use_synthetic_data) return SyntheticData(config);
  ASSIGN_OR_RETURN(LoadedRatings loaded, LoadRatings(config.ratings));
  if (!loaded.note.empty()) {
    LOG(WARNING) << loaded.note;
  }
  ASSIGN_OR_RETURN(ItemNames names, LoadItemNames(config, loaded.ratings));
  ASSIGN_OR_RETURN(EvalData eval, MakeEvalData(loaded.ratings, {.num_negatives = config.num_eval_negatives,
                                                                .with_replacement = config.ml_perf,
                                                                .seed = kEvalSeed}));
  if (!eval.note.empty()) {
    LOG(WARNING) << eval.note << "; --num_eval_negatives chooses another number";
  }
  return std::make_shared<NcfData>(std::move(loaded), std::move(names), std::make_shared<EvalData>(std::move(eval)));
}

// Of the ratings, whatever is drawn for them.
std::string FingerprintOf(const Ratings& ratings) {
  data::Fingerprint fingerprint;
  const auto add = [&](const auto& values) {
    fingerprint.AddContent(values.data(), static_cast<int64_t>(values.size() * sizeof(values[0])));
  };
  add(ratings.user_ids);
  add(ratings.item_ids);
  add(ratings.train_items);
  add(ratings.held_out);
  return fingerprint.ToString(ratings.num_positives());
}

// Kept, since it takes a second for MovieLens 20M; but a resumed run has the seed that it was begun with. Null with
// synthetic data.
using SamplerPtr = std::shared_ptr<std::shared_ptr<const TrainSampler>>;

absl::StatusOr<SamplerPtr> MakeSampler(const NcfConfig& config, const NcfDataPtr& data) {
  if (config.performance.use_synthetic_data) return nullptr;
  auto sampler = std::make_shared<std::shared_ptr<const TrainSampler>>();
  ASSIGN_OR_RETURN(*sampler, TrainSampler::Create(data->loaded.ratings, config.num_neg, config.train.seed));
  return sampler;
}

absl::StatusOr<run::Input> MakeInput(const NcfConfig& config, const NcfDataPtr& data, const SamplerPtr& sampler,
                                     int64_t batch_size) {
  if (config.performance.use_synthetic_data) {
    ASSIGN_OR_RETURN(const GeneratorOptions size, SizeOfDataset(config.ratings.dataset));
    return SyntheticInput(config, data, size, batch_size);
  }
  const Ratings& ratings = data->loaded.ratings;
  const int64_t num_examples = (*sampler)->num_examples();
  if (batch_size > num_examples) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--batch_size=%d is more than the %d examples of an epoch (%d ratings to train on, each with "
                        "--num_neg=%d negatives); try --batch_size=%d",
                        batch_size, num_examples, ratings.num_positives(), config.num_neg, num_examples));
  }
  const int64_t users_per_batch = UsersPerBatch(config, data->eval->num_candidates);
  const std::string name = config.ratings.ratings_file.empty() ? config.ratings.dataset : "ratings";
  return run::Input{
      .dataset = data->loaded.generated ? absl::StrCat("generated ", name) : name,
      .fingerprint = FingerprintOf(ratings),
      .evaluates_fingerprint = true,
      .facts = {UsersAndItems(config.ratings, config.train.model_dir, ratings)},
      .spec = TrainSpec(),
      .num_train_examples = num_examples,
      .carries_over = true,
      .train = [=, num_neg = config.num_neg](const run::ReadOptions& read) -> absl::StatusOr<data::BatchSourcePtr> {
        if ((*sampler)->seed() != read.seed) {
          ASSIGN_OR_RETURN(*sampler, TrainSampler::Create(data->loaded.ratings, num_neg, read.seed));
        }
        return TrainBatches(*sampler, batch_size, read.start, read.end_epoch, read.rows);
      },
      .eval = [=](const data::HeldRows&) -> absl::StatusOr<data::BatchSourcePtr> {
        return EvalBatches(data->eval, data->loaded.ratings.num_users(), users_per_batch);
      },
      .made_by_computing_threads = true};
}

// What MLPerf's log tells of the model and its data.
std::vector<std::pair<std::string, logs::Json>> MlperfValues(const NcfConfig& config, const NcfData& data) {
  return {{"eval_samples", static_cast<int64_t>(data.eval->items.size())},
          {"opt_name", "adam"},
          {"opt_base_learning_rate", config.model.learning_rate},
          {"opt_adam_beta_1", kAdam.beta1},
          {"opt_adam_beta_2", kAdam.beta2},
          {"opt_adam_epsilon", kAdam.epsilon}};
}

// Shows what is recommended to some users, if one replica, which predicts, evaluates, and if the items are at most
// --eval_batch_size or, without it, as many as the largest data set of MovieLens has by far. The evaluation is over: a
// prediction that fails is only told.
absl::Status ShowSamples(const NcfConfig& config, const NcfData& data, train::Estimator& estimator) {
  const bool is_alone = estimator.strategy().num_replicas_in_sync() == 1 && !estimator.strategy().has_other_workers();
  const bool fits = data.loaded.ratings.num_items() <= config.eval_batch_size.value_or(kFusedEvalBatchSize);
  if (config.train.eval_samples == 0 || config.performance.use_synthetic_data || !is_alone || !fits) {
    return absl::OkStatus();
  }
  absl::StatusOr<train::EvalSamples> samples =
      SampleUsers(estimator, data.loaded.ratings, data.item_names, config.train.eval_samples);
  if (samples.ok()) return estimator.AddEvalSamples(*std::move(samples));
  LOG(WARNING) << "there are no samples of this evaluation: " << samples.status().message();
  return absl::OkStatus();
}

bool Predicts(const NcfConfig& config) { return config.predict_lines || !config.predict.empty(); }

// Refuses to use or to resume a training on ratings of one's own without them, before others are downloaded or made.
// What a new training finds is not used: --clean, if it is not done yet, removes it, and --resume=never refuses it.
absl::Status CheckHasRatingsOfTraining(const NcfConfig& config) {
  const bool trains = !Predicts(config) && !config.base.eval_only;
  const bool is_new = trains && (config.base.clean || config.train.resume == train::Resume::kNever);
  if (is_new || !config.ratings.ratings_file.empty() || config.performance.use_synthetic_data) {
    return absl::OkStatus();
  }
  const flags::FlagValues trained = flags::FlagsOfTraining(config.train.model_dir);
  const auto file = trained.find("ratings_file");
  if (file == trained.end() || file->second.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the network in --model_dir=", misc::Printable(config.train.model_dir),
                                                 " was trained with --ratings_file=", misc::Printable(file->second),
                                                 "; give that flag, or the file where it is now",
                                                 trains ? ", or --clean to start again there" : ""));
}

absl::Status Predict(const NcfConfig& config, std::ostream& results) {
  const std::string& model_dir = config.train.model_dir;
  RETURN_IF_ERROR(CheckCanRecommend(model_dir, flags::FlagsOfTraining(model_dir)));
  RETURN_IF_ERROR(CheckHasRatingsOfTraining(config));
  ASSIGN_OR_RETURN(const LoadedRatings loaded, LoadRatings(config.ratings));
  if (!loaded.note.empty()) {
    LOG(WARNING) << loaded.note;
  }
  ASSIGN_OR_RETURN(ItemNames names, LoadItemNames(config, loaded.ratings));
  ASSIGN_OR_RETURN(const auto estimator, run::OpenTrained(config, ModelFor(config.model, loaded.ratings),
                                                          {UsersAndItems(config.ratings, model_dir, loaded.ratings)}));
  const PredictOptions options = {.users = config.predict,
                                  .top_k = config.top_k,
                                  .item_names = std::move(names),
                                  .json = config.base.output == "json"};
  if (config.predict_lines) return PredictLines(*estimator, loaded.ratings, STDIN_FILENO, options, results);
  return PredictItems(*estimator, loaded.ratings, options, results);
}

}  // namespace

train::Model ModelFor(ModelConfig model, const Ratings& ratings) {
  model.num_users = ratings.num_users();
  model.num_items = ratings.num_items();
  return NeuMfModel(model);
}

// Users and items are rows of the embeddings in the order in which they first appear in the ratings: with other
// ratings, or the same in another order, all rows would be taken for those of somebody else.
train::RunFact UsersAndItems(const RatingsOptions& options, const std::string& model_dir, const Ratings& ratings) {
  data::Fingerprint fingerprint;
  for (const std::vector<int32_t>* ids : {&ratings.user_ids, &ratings.item_ids}) {
    fingerprint.AddContent(ids->data(), static_cast<int64_t>(ids->size() * sizeof(int32_t)));
  }
  const std::string now = absl::StrFormat("%d users and %d items, digest %s", ratings.num_users(), ratings.num_items(),
                                          fingerprint.Digest());
  return {.name = "users_and_items",
          .value = now,
          .difference =
              [now, options, model_dir](absl::string_view before) {
                return absl::StrCat(
                    "the network in --model_dir=", model_dir, " was trained on ratings of ", before, ", and ",
                    options.ratings_file.empty() ? absl::StrCat("--dataset=", options.dataset)
                                                 : absl::StrCat("--ratings_file=", options.ratings_file),
                    " has ", now,
                    " (in the order of the file); give the ratings of that training, or another --model_dir");
              },
          .must_match = true};
}

absl::Status CheckCanRecommend(const std::string& model_dir, const flags::FlagValues& trained) {
  const auto synthetic = trained.find("use_synthetic_data");
  if (synthetic == trained.end() || synthetic->second != "true") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the network in --model_dir=", misc::Printable(model_dir),
                                                 " was trained with --use_synthetic_data, and can recommend nothing; "
                                                 "train on ratings, or name another --model_dir"));
}

absl::Status RunNcf(const NcfConfig& given, std::ostream& results) {
  NcfConfig config = given;
  compute::StartThreads(compute::NumThreads());  // ratings are read in parallel, before there is a device
  if (Predicts(config)) return Predict(config, results);
  config.base.stop_threshold = config.hr_threshold;
  std::unique_ptr<run::Session> session;  // none for a rehearsal
  if (!run::Rehearses(config)) {
    ASSIGN_OR_RETURN(session, run::Session::Open(config, results));
  }
  // Here, where the other workers are told of an error, and no worker looks at a directory that it does not use.
  if (session == nullptr || !session->evaluation_dir().empty()) RETURN_IF_ERROR(CheckHasRatingsOfTraining(config));
  std::unique_ptr<run::MlperfHook> mlperf;
  if (config.mlperf_log && session != nullptr && session->is_chief()) {
    ASSIGN_OR_RETURN(mlperf, run::MlperfHook::Open(*config.mlperf_log, "ncf", "HR"));
  }
  ASSIGN_OR_RETURN(const NcfDataPtr data, LoadData(config));
  ASSIGN_OR_RETURN(const SamplerPtr sampler, MakeSampler(config, data));
  const auto training = [&](int batch_size) -> absl::StatusOr<run::Training> {
    ASSIGN_OR_RETURN(run::Input input, MakeInput(config, data, sampler, batch_size));
    return run::Training{ModelFor(config.model, data->loaded.ratings), std::move(input)};
  };
  RETURN_IF_ERROR(run::ChooseBatchSize({.training = training}, config, session.get()));
  ASSIGN_OR_RETURN(run::Training chosen, training(config.base.batch_size));
  auto& [model, input] = chosen;
  if (mlperf != nullptr) {
    mlperf->Describe(MlperfValues(config, *data));
    session->AddHook(std::move(mlperf));
  }
  const logs::RunParameter threshold = config.hr_threshold ? logs::RunParameter(*config.hr_threshold) : std::nullopt;
  const run::SessionOptions options = {
      .name = "recommendation",
      .tensors_to_log = {"cross_entropy", "learning_rate"},
      .run_parameters = {{"eval_batch_size", EvalBatchSize(config)},
                         {"hr_threshold", threshold},
                         {"number_factors", config.model.num_factors}},
      .evaluates_all = true,
      .metrics = {"HR", "NDCG", "loss"},
      .evaluation_flags = {"dataset", "ratings_file", "loss", "mf_regularization", "mlp_regularization",
                           "num_eval_negatives", "ml_perf"},
      .mismatch_hint = ", or give the --model, --num_factors and --layers that it was trained with",
      .serving_graph = NcfServingGraph};
  if (session == nullptr) return run::Rehearse(config, std::move(model), std::move(input), options, results);
  ASSIGN_OR_RETURN(train::Estimator* const estimator, session->Begin(std::move(model), std::move(input), options));
  while (session->HasNextRound()) {
    RETURN_IF_ERROR(session->Train());
    if (!session->EvaluationIsDue()) continue;
    ASSIGN_OR_RETURN(const train::EvalResults evaluation, session->Evaluate());
    LOG(INFO) << absl::StrFormat("Iteration %d: HR = %.4f, NDCG = %.4f", session->EvaluationNumber(),
                                 run::MetricOf(evaluation, "HR"), run::MetricOf(evaluation, "NDCG"));
    RETURN_IF_ERROR(session->Report(evaluation, "HR"));
    RETURN_IF_ERROR(ShowSamples(config, *data, *estimator));
  }
  RETURN_IF_ERROR(session->End());
  return session->Export(IdFiles(data->loaded.ratings, data->item_names));
}

}  // namespace official::recommendation
