#include "official/transformer/transformer_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/transformer/bleu_evaluation.h"
#include "official/transformer/dataset.h"
#include "official/transformer/run_parameters.h"
#include "official/transformer/training_vocabulary.h"
#include "official/transformer/transformer_export.h"
#include "official/transformer/transformer_model.h"
#include "utils/compute/core/status.h"
#include "utils/data/batch.h"
#include "utils/data/records/bad_records.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/run/batch_size.h"
#include "utils/run/rehearsal.h"
#include "utils/run/session.h"

namespace official::transformer {
namespace {

using compute::DType;
using compute::Tensor;

// Of one pair, padded.
data::ElementSpec SpecOf(int64_t length) {
  return {.features = {{"inputs", {DType::kInt32, {length}}}, {"input_lengths", {DType::kInt32, {}}}},
          .labels = {{"targets", {DType::kInt32, {length}}}, {"target_lengths", {DType::kInt32, {}}}}};
}

// Upstream's synthetic batches: as many sentences as each has ids, all of them 1.
class SyntheticPairs : public data::BatchSource {
 public:
  // `sentences` is the size of a batch; an epoch has about num_pairs.
  static absl::StatusOr<data::BatchSourcePtr> Create(int64_t sentences, int64_t num_pairs, data::Position start,
                                                     int64_t end_epoch) {
    return Create(sentences, sentences, num_pairs, start, end_epoch);
  }
  // The same with `length` ids in each sentence.
  static absl::StatusOr<data::BatchSourcePtr> Create(int64_t sentences, int64_t length, int64_t num_pairs,
                                                     data::Position start, int64_t end_epoch) {
    const int64_t whole = std::max<int64_t>(1, num_pairs / sentences) * sentences;
    ASSIGN_OR_RETURN(
        data::BatchCounter counter,
        data::BatchCounter::Create(whole, {.batch_size = sentences, .start = start, .end_epoch = end_epoch}));
    return std::unique_ptr<data::BatchSource>(new SyntheticPairs(sentences, length, whole, std::move(counter)));
  }

  const data::ElementSpec& spec() const override { return spec_; }
  std::optional<int64_t> num_examples() const override { return num_pairs_; }
  absl::StatusOr<std::optional<data::Batch>> Next() override {
    data::Batch batch = counter_.Advance();
    if (batch.num_examples == 0) return std::nullopt;
    batch.features = {ids_, lengths_};
    batch.labels = {ids_, lengths_};
    return batch;
  }

 private:
  SyntheticPairs(int64_t sentences, int64_t length, int64_t num_pairs, data::BatchCounter counter)
      : spec_(SpecOf(length)),
        num_pairs_(num_pairs),
        counter_(std::move(counter)),
        ids_(DType::kInt32, {sentences, length}),
        lengths_(DType::kInt32, {sentences}) {
    std::fill_n(ids_.data<int32_t>(), sentences * length, 1);
    std::fill_n(lengths_.data<int32_t>(), sentences, static_cast<int32_t>(length));
  }

  const data::ElementSpec spec_;
  const int64_t num_pairs_;  // of an epoch
  data::BatchCounter counter_;
  Tensor ids_, lengths_;
};

train::LargestBatches BatchesOfLength(int64_t length, int64_t num_sentences) {
  return {.num_examples = std::max<int64_t>(1, num_sentences), .make = [length](int64_t sentences) {
            return SyntheticPairs::Create(sentences, length, sentences, /*start=*/{}, /*end_epoch=*/1);
          }};
}

// Returns a batch of as many ids as one of the fullest bucket can have, in sentences that are as long as possible,
// since their attention takes most.
train::LargestBatches LargestOf(const std::vector<Bucket>& buckets, int64_t max_length) {
  int64_t ids = 0;
  for (const Bucket& bucket : buckets) ids = std::max(ids, bucket.batch_size * (bucket.max_length - 1));
  const int64_t sentences = (ids + max_length - 1) / max_length;
  return BatchesOfLength((ids + sentences - 1) / sentences, sentences);
}

absl::StatusOr<run::Input> SyntheticInput(const TransformerConfig& config, int64_t batch_size) {
  const auto sentences = static_cast<int64_t>(std::sqrt(static_cast<double>(batch_size)));
  if (sentences > config.params.max_length) {
    return absl::InvalidArgumentError(absl::StrCat("--batch_size=", batch_size, " makes synthetic sentences of ",
                                                   sentences, " ids, but max_length is ", config.params.max_length));
  }
  return run::Input{.dataset = "WMT-synthetic",
                    .fingerprint = "",
                    .spec = SpecOf(sentences),
                    .num_train_examples = kTrainPairs,
                    .steps_per_epoch = std::max<int64_t>(1, kTrainPairs / sentences),
                    .train =
                        [=](const run::ReadOptions& read) {
                          return SyntheticPairs::Create(sentences, kTrainPairs, read.start, read.end_epoch);
                        },
                    .largest_batch = BatchesOfLength(/*length=*/sentences, sentences),
                    .eval =
                        [=](const data::HeldRows&) {
                          return SyntheticPairs::Create(sentences, kEvalPairs, /*start=*/{}, /*end_epoch=*/1);
                        }};
}

// Of one epoch, in whatever order its pairs come.
int64_t StepsPerEpoch(const Translations& pairs, const std::vector<Bucket>& buckets, bool static_batch,
                      int64_t batch_size) {
  if (static_batch) return std::max<int64_t>(1, pairs.num_examples() / (batch_size / pairs.max_length()));
  std::vector<int64_t> counts(buckets.size());
  for (int64_t i = 0; i < pairs.num_examples(); ++i) {
    const int64_t length = std::max(pairs.num_inputs(i), pairs.num_targets(i));
    const auto bucket =
        std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) { return length < b.max_length; });
    ++counts[bucket - buckets.begin()];
  }
  int64_t steps = 0;
  for (size_t b = 0; b < buckets.size(); ++b) steps += (counts[b] + buckets[b].batch_size - 1) / buckets[b].batch_size;
  return steps;
}

absl::StatusOr<TranslationsPtr> OpenPairs(const TransformerConfig& config, TranslationPart part,
                                          data::BadRecords& bad) {
  ASSIGN_OR_RETURN(TranslationsPtr pairs, Translations::Open(config.base.data_dir, part, config.params.max_length,
                                                             config.performance.num_parallel_calls, &bad));
  if (pairs->max_id() >= config.params.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the sentences in ", config.base.data_dir, " have ids up to ", pairs->max_id(),
                     ", but vocab_size is ", config.params.vocab_size,
                     "; give --params_override=vocab_size=N with the number of lines of their vocabulary"));
  }
  return pairs;
}

// Null with synthetic data.
struct Pairs {
  TranslationsPtr train;  // null where it is not read
  TranslationsPtr dev;
};

absl::StatusOr<Pairs> LoadPairs(const TransformerConfig& config, bool reads_train) {
  Pairs pairs;
  if (config.performance.use_synthetic_data) return pairs;
  data::BadRecords bad(config.skip_bad_records);
  if (reads_train) {
    ASSIGN_OR_RETURN(pairs.train, OpenPairs(config, TranslationPart::kTrain, bad));
  }
  ASSIGN_OR_RETURN(pairs.dev, OpenPairs(config, TranslationPart::kEval, bad));
  bad.Report();
  for (const auto& [set, use] : {std::pair(pairs.train, "training"), std::pair(pairs.dev, "evaluation")}) {
    if (set == nullptr || set->num_too_long() == 0) continue;
    LOG(INFO) << "left out of the " << use << " " << set->num_too_long() << " pairs longer than "
              << config.params.max_length << " ids";
  }
  return pairs;
}

// With --static_batch: InvalidArgument if there is no batch for an evaluation, which is better known before training.
absl::Status CheckEvaluationHasBatch(const TransformerConfig& config, const Translations& dev, int64_t batch_size) {
  const int64_t pairs = batch_size / config.params.max_length;
  if (!config.static_batch || dev.num_examples() >= pairs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the %d pairs of sentences for the evaluation in %s do not fill a batch of %d, which --static_batch makes of "
      "--batch_size=%d; give a smaller --batch_size, or leave out --static_batch",
      dev.num_examples(), config.base.data_dir, pairs, batch_size));
}

absl::StatusOr<run::Input> InputOf(const TransformerConfig& config, const Pairs& pairs, int64_t batch_size) {
  if (config.performance.use_synthetic_data) return SyntheticInput(config, batch_size);
  const TranslationsPtr train = pairs.train, dev = pairs.dev;
  ASSIGN_OR_RETURN(const std::vector<Bucket> buckets,
                   MakeBuckets(batch_size, config.params.max_length, config.static_batch));
  RETURN_IF_ERROR(CheckEvaluationHasBatch(config, *dev, batch_size));
  const TranslationBatchOptions options{.batch_tokens = batch_size, .static_batch = config.static_batch};
  const auto batches = [](const TranslationsPtr& pairs,
                          const TranslationBatchOptions& options) -> absl::StatusOr<data::BatchSourcePtr> {
    ASSIGN_OR_RETURN(data::BatchSourcePtr source, TranslationBatches(pairs, options));
    return data::Prefetch(std::move(source), /*depth=*/2);
  };
  run::Input input = {.dataset = "translations",
                      .eval_fingerprint = dev->fingerprint(),
                      .spec = SpecOf(config.params.max_length),
                      .largest_batch = LargestOf(buckets, config.params.max_length),
                      .eval = [=](const data::HeldRows& rows) {
                        TranslationBatchOptions of_dev = options;
                        of_dev.shuffle = false;
                        of_dev.rows = rows;
                        return batches(dev, of_dev);
                      }};
  if (train == nullptr) return input;
  input.fingerprint = train->fingerprint();
  input.num_train_examples = train->num_examples();
  input.steps_per_epoch = StepsPerEpoch(*train, buckets, config.static_batch, batch_size);
  input.train = [=, shuffle = config.base.shuffle](const run::ReadOptions& read) {
    TranslationBatchOptions of_train = options;
    of_train.shuffle = shuffle;
    of_train.seed = read.seed;
    of_train.start = read.start;
    of_train.end_epoch = read.end_epoch;
    of_train.rows = read.rows;
    return batches(train, of_train);
  };
  return input;
}

// The evaluation by BLEU; nullptr without --bleu_source. A vocabulary that does not go with the network is an error.
absl::StatusOr<std::unique_ptr<BleuEvaluation>> OpenBleu(const TransformerConfig& config,
                                                         const std::string& model_dir) {
  if (config.bleu_source) {
    return BleuEvaluation::Open({.source = *config.bleu_source,
                                 .reference = *config.bleu_ref,
                                 .vocab_file = *config.vocab_file,
                                 .model_dir = model_dir,
                                 .dtype = config.train.dtype,
                                 .eval_samples = config.train.eval_samples},
                                config.params);
  }
  if (config.vocab_file) RETURN_IF_ERROR(ReadVocabularyFor(config.params, *config.vocab_file).status());
  return nullptr;
}

// The names of the results of an evaluation.
std::vector<std::string> EvaluationMetrics(bool with_bleu) {
  std::vector<std::string> names = {"loss",
                                    "metrics/accuracy",
                                    "metrics/accuracy_per_sequence",
                                    "metrics/accuracy_top5",
                                    "metrics/approx_bleu_score",
                                    "metrics/neg_log_perplexity",
                                    "metrics/rouge_2_fscore",
                                    "metrics/rouge_L_fscore"};
  if (with_bleu) names.insert(names.begin(), {"bleu_cased", "bleu_uncased"});
  return names;
}

// A batch has one pair of the largest length for each device, or more.
run::BatchSizeOptions BatchSizeOptionsOf(const TransformerConfig& config, const run::TrainingFn& training) {
  const auto length = static_cast<uint64_t>(config.params.max_length);
  run::BatchSizeOptions options = {
      .training = training, .per_example = static_cast<int64_t>(std::bit_ceil(length + 1)), .counted = "tokens"};
  if (config.performance.use_synthetic_data) options.largest = static_cast<int64_t>(length * length);
  return options;
}

// Whole rounds, as upstream.
std::optional<train::Schedule::Steps> StepsOf(const TransformerConfig& config) {
  if (!config.train_steps) return std::nullopt;
  const int64_t between = config.steps_between_evals;
  return train::Schedule::Steps{.total = *config.train_steps / between * between, .between_evals = between};
}

}  // namespace

absl::Status RunTransformer(const TransformerConfig& given, std::ostream& results) {
  TransformerConfig config = given;
  if (!config.performance.use_synthetic_data) {
    config.least_batch_size = static_cast<int>(LeastBatchTokens(config.params.max_length, config.static_batch));
  }
  std::unique_ptr<run::Session> session;  // none for a rehearsal
  if (!run::Rehearses(config)) {
    ASSIGN_OR_RETURN(session, run::Session::Open(config, results));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<BleuEvaluation> bleu,
                   OpenBleu(config, session == nullptr ? "" : session->evaluation_dir()));
  const bool has_data = !config.performance.use_synthetic_data;
  ASSIGN_OR_RETURN(const auto vocabulary, FindVocabulary(config.vocab_file, has_data ? config.base.data_dir : ""));
  ASSIGN_OR_RETURN(const Pairs pairs, LoadPairs(config, run::ReadsTrainingData(config, session.get())));
  const auto training = [&](int batch_size) -> absl::StatusOr<run::Training> {
    ASSIGN_OR_RETURN(run::Input input, InputOf(config, pairs, batch_size));
    return run::Training{TransformerModel(config.params), std::move(input)};
  };
  RETURN_IF_ERROR(run::ChooseBatchSize(BatchSizeOptionsOf(config, training), config, session.get()));
  ASSIGN_OR_RETURN(run::Training chosen, training(config.base.batch_size));
  auto& [model, input] = chosen;
  input.facts.push_back(VocabularyFact(vocabulary, config.train.model_dir));
  if (bleu != nullptr) {
    absl::StrAppend(&input.eval_fingerprint, input.eval_fingerprint.empty() ? "" : ", ", bleu->Fingerprint());
  }
  const run::SessionOptions options = {
      .name = "transformer",
      .tensors_to_log = {"cross_entropy_loss", "learning_rate"},
      .steps = StepsOf(config),
      .run_parameters = RunParametersOf(config),
      .official_dataset = "wmt_translate_ende",
      .records_replica_batch = true,
      .metrics = EvaluationMetrics(bleu != nullptr),
      .evaluation_flags = {"params_override", "bleu_source", "bleu_ref"},
      .mismatch_hint = ", or give the --param_set and --params_override that it was trained with",
      .serving_graph = [params = config.params](const train::Model&) { return TransformerServingGraph(params); }};
  if (session == nullptr) return run::Rehearse(config, std::move(model), std::move(input), options, results);
  ASSIGN_OR_RETURN(train::Estimator* const estimator, session->Begin(std::move(model), std::move(input), options));
  while (session->HasNextRound()) {
    RETURN_IF_ERROR(session->Train());
    if (!session->EvaluationIsDue()) continue;
    ASSIGN_OR_RETURN(train::EvalResults evaluation, session->Evaluate());
    if (bleu != nullptr) {
      ASSIGN_OR_RETURN(const train::EvalResults scores,
                       bleu->Evaluate(*estimator, [&] { return session->MeetRequests(); }));
      evaluation.insert(evaluation.end(), scores.begin(), scores.end());
      std::sort(evaluation.begin(), evaluation.end());
    }
    RETURN_IF_ERROR(session->Report(evaluation, "bleu_uncased"));
  }
  RETURN_IF_ERROR(session->End());
  std::map<std::string, std::string> extra_files;
  if (config.base.export_dir) {
    constexpr int64_t kMaxVocabularyBytes = int64_t{1} << 30;
    ASSIGN_OR_RETURN(extra_files["vocab.txt"], files::ReadFile(*config.vocab_file, kMaxVocabularyBytes));
  }
  return session->Export(extra_files);
}

}  // namespace official::transformer
