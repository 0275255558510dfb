// The trained Transformer with its beam search for programs that serve it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "official/transformer/model_params.h"
#include "utils/export/destination.h"
#include "utils/train/estimator.h"

namespace official::transformer {

// Writes <export_dir>/<seconds since 1970>/ with the official signature `translate`: input `input` (the placeholder
// input_tensor) int64 [-1, -1], sentences of ids with EOS at the end, padded with 0; outputs `outputs` int32 [-1, -1],
// the best translation of each, with EOS at the end, padded with 0, and `scores` float32 [-1]. The search is that of
// `params`. The vocabulary is copied to assets.extra/vocab.txt. Returns the path. NotFound if nothing was trained or
// there is no vocabulary.
absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, const ModelParams& params,
                                          const std::string& vocab_file, const exporting::Destination& to);

}  // namespace official::transformer
