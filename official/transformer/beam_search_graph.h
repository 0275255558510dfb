// Translation as a TensorFlow graph.
#pragma once

#include "official/transformer/model_params.h"
#include "utils/export/tf_ops.h"

namespace official::transformer {

struct TranslationNodes {
  exporting::TfOps::Node outputs;  // int32 [B, T]: the best translation of each sentence, with EOS, padded with 0
  exporting::TfOps::Node scores;   // float32 [B]
};

// Adds encoder, decoder and beam search for sentences int64 [B, S], padded with 0. The arithmetic is that of Decoder,
// for batches with padding; keys and values of decoded tokens are cached, and reordered with their hypotheses.
TranslationNodes AddTranslation(const exporting::TfOps::Node& sentences, const ModelParams& params,
                                exporting::TfOps& tf);

}  // namespace official::transformer
