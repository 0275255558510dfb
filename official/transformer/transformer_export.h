// The Transformer with its beam search for programs that serve it.
#pragma once

#include "official/transformer/model_params.h"
#include "utils/export/serving_graph.h"

namespace official::transformer {

// Returns the graph with the official signature `translate`: input `input` (the placeholder input_tensor) int64
// [-1, -1], sentences of ids with EOS at the end, padded with 0; outputs `outputs` int32 [-1, -1], the best translation
// of each, with EOS at the end, padded with 0, and `scores` float32 [-1]. The search is that of `params`.
exporting::ServingGraph TransformerServingGraph(const ModelParams& params);

}  // namespace official::transformer
