#include "official/transformer/bleu_evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/transformer/bleu/bleu.h"
#include "official/transformer/decoder.h"
#include "official/transformer/text/subtokenizer.h"
#include "official/transformer/text/unicode.h"
#include "official/transformer/text/vocabulary.h"
#include "official/transformer/translator.h"
#include "utils/compute/core/status.h"
#include "utils/data/fingerprint.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"

namespace official::transformer {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int kBatchSize = 32;  // sentences; upstream's

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, files::ReadFile(path, kMaxFileBytes));
  std::vector<std::string> lines = LinesToTranslate(content);
  if (lines.empty()) return absl::DataLossError(absl::StrCat(path, " has no sentences"));
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t invalid = FindInvalidUtf8(lines[i]);
    if (invalid == absl::string_view::npos) continue;
    return absl::DataLossError(absl::StrCat(path, ": line ", i + 1, ": byte ", invalid + 1, " is not UTF-8"));
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadVocabularyFor(const ModelParams& params, const std::string& vocab_file) {
  ASSIGN_OR_RETURN(std::vector<std::string> subtokens, ReadVocabulary(vocab_file));
  const auto size = static_cast<int64_t>(subtokens.size());
  if (size <= params.vocab_size) return subtokens;
  return absl::InvalidArgumentError(
      absl::StrCat("--vocab_file=", vocab_file, " has ", size, " subtokens, but vocab_size is ", params.vocab_size,
                   "; give --params_override=vocab_size=", size, " or the vocabulary that goes with the data"));
}

absl::StatusOr<std::unique_ptr<BleuEvaluation>> BleuEvaluation::Open(const BleuConfig& config,
                                                                     const ModelParams& params) {
  std::unique_ptr<BleuEvaluation> evaluation(new BleuEvaluation(config, params));
  ASSIGN_OR_RETURN(evaluation->subtokens_, ReadVocabularyFor(params, config.vocab_file));
  ASSIGN_OR_RETURN(evaluation->source_, ReadLines(config.source));
  ASSIGN_OR_RETURN(evaluation->reference_, ReadLines(config.reference));
  if (evaluation->source_.size() != evaluation->reference_.size()) {
    return absl::DataLossError(absl::StrCat(
        "--bleu_source=", config.source, " has ", evaluation->source_.size(), " lines, --bleu_ref=", config.reference,
        " has ", evaluation->reference_.size(), ", but line by line they must belong together"));
  }
  const Subtokenizer vocabulary(evaluation->subtokens_);
  for (size_t i = 0; i < evaluation->source_.size(); ++i) {
    std::vector<int32_t> ids;
    const absl::Status status = vocabulary.Encode(Strip(evaluation->source_[i]), &ids);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat(config.source, ": line ", i + 1, ": ", status.message()));
  }
  return evaluation;
}

std::string BleuEvaluation::Fingerprint() const {
  data::Fingerprint fingerprint;
  for (const std::vector<std::string>* lines : {&source_, &reference_, &subtokens_}) {
    const std::string text = absl::StrJoin(*lines, "\n");
    fingerprint.AddContent(text.data(), static_cast<int64_t>(text.size()));
  }
  return absl::StrCat("BLEU of ", source_.size(), " lines, digest ", fingerprint.Digest());
}

train::EvalSamples BleuEvaluation::SamplesOf(const std::vector<std::string>& translations) const {
  train::EvalSamples samples{.columns = {"source", "reference", "translation"}, .rows = {}};
  const size_t num_samples = std::min(translations.size(), static_cast<size_t>(config_.eval_samples));
  for (size_t i = 0; i < num_samples; ++i) samples.rows.push_back({source_[i], reference_[i], translations[i]});
  return samples;
}

absl::StatusOr<train::EvalResults> BleuEvaluation::Evaluate(train::Estimator& estimator,
                                                            const std::function<absl::Status()>& before_batch) {
  ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder,
                   Decoder::Create(params_, config_.dtype, estimator.strategy().device(0),
                                   [&](const compute::VariableSpec& spec) { return estimator.Variable(spec.name); }));
  Translator translator(Subtokenizer(subtokens_), std::move(decoder));
  absl::Status asked;  // of before_batch
  absl::StatusOr<std::vector<std::string>> translations =
      translator.Translate(source_, {.batch_size = kBatchSize,
                                     .before_batch = estimator.strategy().has_other_workers()
                                                         ? std::function([&] { return asked = before_batch(); })
                                                         : nullptr});
  RETURN_IF_ERROR(asked);
  if (absl::IsCancelled(translations.status())) {
    return absl::CancelledError(absl::StrCat("stopped while translating --bleu_source at step ",
                                             estimator.global_step(), ", whose checkpoint is saved"));
  }
  if (!translations.ok()) {
    return absl::Status(translations.status().code(),
                        absl::StrCat(config_.source, ": ", translations.status().message()));
  }
  const float cased = TextBleu(reference_, *translations, {.case_sensitive = true});
  const float uncased = TextBleu(reference_, *translations, {.case_sensitive = false});
  const train::EvalResults results = {{"bleu_cased", cased}, {"bleu_uncased", uncased}};
  RETURN_IF_ERROR(estimator.AddEvalSamples(SamplesOf(*translations)));
  LOG(INFO) << "Bleu score (uncased): " << uncased << ", (cased): " << cased;
  if (config_.model_dir.empty()) return results;
  if (events_ == nullptr) {
    ASSIGN_OR_RETURN(events_, train::EventWriter::Open(files::JoinPath(config_.model_dir, "bleu")));
  }
  RETURN_IF_ERROR(events_->AddScalars(estimator.global_step(), {{"bleu/uncased", uncased}, {"bleu/cased", cased}}));
  RETURN_IF_ERROR(events_->Flush());
  return results;
}

}  // namespace official::transformer
