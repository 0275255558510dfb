// BLEU in training: after each evaluation the network translates a text, which is compared with a reference. Source:
// evaluate_and_log_bleu in tensorflow/models official/transformer/transformer_main.py at d64bcfe3.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "official/transformer/model_params.h"
#include "utils/compute/core/dtype.h"
#include "utils/train/estimator.h"
#include "utils/train/summary/event_writer.h"

namespace official::transformer {

struct BleuConfig {
  std::string source, reference;  // files with a sentence a line, --bleu_source and --bleu_ref
  std::string vocab_file;
  std::string model_dir;                            // events go into its subdirectory bleu; empty: there are none
  compute::DType dtype = compute::DType::kFloat32;  // type of the computation
  int eval_samples = 16;                            // the number of translations that event files show
};

class BleuEvaluation {
 public:
  // Reads the files. NotFound if one is missing; DataLoss if one is damaged, and, naming both files and counts, if the
  // texts differ in their number of lines; InvalidArgument if the vocabulary does not fit the network.
  static absl::StatusOr<std::unique_ptr<BleuEvaluation>> Open(const BleuConfig& config, const ModelParams& params);

  // Returns the fingerprint of the two texts and the vocabulary: "BLEU of 3000 lines, digest 1a2b3c4d".
  std::string Fingerprint() const;

  // Translates with the present weights, on the first device. Returns the BLEU of the translation, 0 to 100, with and
  // without regard to case: bleu_cased and bleu_uncased, which the event file has as bleu/cased and bleu/uncased. The
  // first sentences become samples of the estimator's evaluation, with source, reference and translation. Cancelled
  // after a signal to stop; else errors of Decoder and EventWriter. Where there are other workers, `before_batch` is
  // called before each batch, as often on all of them, and its error returned.
  absl::StatusOr<train::EvalResults> Evaluate(train::Estimator& estimator,
                                              const std::function<absl::Status()>& before_batch);

 private:
  train::EvalSamples SamplesOf(const std::vector<std::string>& translations) const;
  BleuEvaluation(const BleuConfig& config, const ModelParams& params) : config_(config), params_(params) {}

  const BleuConfig config_;
  const ModelParams params_;
  std::vector<std::string> source_, reference_;  // lines
  std::vector<std::string> subtokens_;
  std::unique_ptr<train::EventWriter> events_;
};

// Returns the subtokens of a file. InvalidArgument if there are more than the network's vocabulary has; else errors of
// ReadVocabulary.
absl::StatusOr<std::vector<std::string>> ReadVocabularyFor(const ModelParams& params, const std::string& vocab_file);

}  // namespace official::transformer
