// The trained Transformer for serve_main.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "official/serve/servable/served_run.h"

namespace official::transformer {

// Opens the latest checkpoint of a run of transformer_main, with the vocabulary that its --vocab_file named. Signature
// `translate`: input `text`, a sentence of at most 1024 subtokens; output `translation`, as translate_main prints it
// for this sentence alone. NotFound without a vocabulary; other errors as those of translate_main.
absl::StatusOr<std::unique_ptr<serve::Servable>> OpenServable(const serve::ServedRun& run);

}  // namespace official::transformer
