// The official Transformer ("Attention Is All You Need", with normalization before each sublayer) over packed
// sentences. Sources: tensorflow/models official/transformer/model/transformer.py and transformer_main.py at d64bcfe3.
#pragma once

#include "official/transformer/model_params.h"
#include "utils/train/model.h"

namespace official::transformer {

// Batches are those of TranslationBatches, shares those of PackedShare. The loss is the mean of PaddedCrossEntropy over
// the targets. Evaluation: metrics/accuracy, metrics/accuracy_top5 and metrics/neg_log_perplexity, means over the
// targets, and SentenceMetrics. Event files of a training have upstream's learning_rate, minibatch_loss and
// global_norm/gradient_norm.
train::Model TransformerModel(const ModelParams& params);

// Returns the logits of a share of a batch, not for prediction: float [U, vocab_size] in the type of the computation,
// each row computed from the inputs of its sentence and the targets before its own.
compute::Value Logits(const train::ModelInputs& in, const ModelParams& params);

// Returns learning_rate * hidden_size^-0.5 * min(1, step / warmup) / sqrt(max(step, warmup)): 0 for the first update.
train::LearningRateFn LearningRate(const ModelParams& params);

}  // namespace official::transformer
