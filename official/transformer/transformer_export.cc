#include "official/transformer/transformer_export.h"

#include <utility>

#include "official/transformer/beam_search_graph.h"
#include "utils/export/graph_def_builder.h"

namespace official::transformer {

using compute::DType;

exporting::ServingGraph TransformerServingGraph(const ModelParams& params) {
  exporting::GraphDefBuilder graph;
  const std::string input = graph.AddPlaceholder("input_tensor", DType::kInt64, {-1, -1});
  exporting::TfOps tf(graph, "translate");
  const TranslationNodes found = AddTranslation({input, DType::kInt64}, params, tf);
  exporting::Signature signature{"translate",
                                 {{"input", {input, DType::kInt64, {-1, -1}}}},
                                 {{"outputs", {found.outputs.name, DType::kInt32, {-1, -1}}},
                                  {"scores", {found.scores.name, DType::kFloat32, {-1}}}}};
  return {.graph = std::move(graph), .signature = std::move(signature), .not_trainable = {}};
}

}  // namespace official::transformer
