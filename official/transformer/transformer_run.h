// The run of transformer_main: the Transformer on sentence pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "official/transformer/model_params.h"
#include "utils/run/config.h"

namespace official::transformer {

struct TransformerConfig : run::Config {
  std::string param_set;  // for the run record
  ModelParams params;
  bool static_batch = false;
  std::optional<int64_t> train_steps;  // the total, instead of epochs
  int64_t steps_between_evals = 1000;  // with train_steps
  std::optional<std::string> vocab_file;
  std::optional<std::string> bleu_source, bleu_ref;  // both, together with vocab_file, or neither
  int64_t skip_bad_records = 0;                      // the number of damaged records that may be left out
};

// Trains and evaluates, with bleu_source also by BLEU, which stop_threshold is then compared with; with
// base.export_dir, also exports, with vocab_file. Results go to `results`, all else to the log.
absl::Status RunTransformer(const TransformerConfig& config, std::ostream& results);

}  // namespace official::transformer
