#include "official/transformer/transformer_servable.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "official/transformer/translate_run.h"
#include "official/transformer/translator.h"
#include "utils/compute/core/status.h"

namespace official::transformer {
namespace {

using serve::Values;

constexpr int64_t kMaxTokens = 1024;  // the time and the memory of a translation grow with its square

class TransformerServable : public serve::Servable {
 public:
  TransformerServable(OpenedTranslator opened)
      : opened_(std::move(opened)),
        signature_{.name = "translate", .inputs = {{"text", {}, {}}}, .outputs = {{"translation", {}, {}}}} {}

  const serve::Signature& signature() const override { return signature_; }
  int64_t version() const override { return opened_.global_step; }

  absl::StatusOr<Values> Prepare(Values example) const override {
    const absl::StatusOr<int64_t> tokens = opened_.translator->CountTokens(std::get<std::string>(example[0]));
    if (!tokens.ok()) return absl::InvalidArgumentError(tokens.status().message());
    if (*tokens <= kMaxTokens) return example;
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", *tokens, " subtokens; a sentence may have ", kMaxTokens));
  }

  absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> examples) override {
    std::vector<std::string> lines;
    for (const Values& example : examples) lines.push_back(std::get<std::string>(example[0]));
    ASSIGN_OR_RETURN(std::vector<std::string> translations,
                     // The others of a batch are strangers' requests.
                     opened_.translator->Translate(lines, {.batch_size = static_cast<int>(lines.size()),
                                                           .decode_length = DecodeLength::kOfSentence}));
    std::vector<Values> outputs;
    for (std::string& translation : translations) outputs.push_back({std::move(translation)});
    return outputs;
  }

 private:
  const OpenedTranslator opened_;
  const serve::Signature signature_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run) {
  const std::string vocab_file = run.File("vocab_file");
  if (vocab_file.empty()) {
    return absl::NotFoundError("the training did not name its vocabulary; give it with --vocab_file");
  }
  TranslateConfig config;
  config.model_dir = run.config.train.model_dir;
  config.only_latest = run.config.train.only_latest;
  config.param_set = run.Trained("param_set");
  config.params_override = run.Trained("params_override");
  config.vocab_file = vocab_file;
  config.dtype = run.config.train.dtype;
  config.num_gpus = run.config.base.num_gpus;
  config.performance = run.config.performance;
  config.program = run.config.program;
  absl::StatusOr<OpenedTranslator> opened = OpenTranslator(config);
  if (!opened.ok()) return run.FileError("vocab_file", opened.status());
  return std::make_unique<TransformerServable>(*std::move(opened));
}

}  // namespace official::transformer
