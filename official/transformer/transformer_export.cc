#include "official/transformer/transformer_export.h"

#include <map>
#include <utility>

#include "official/transformer/beam_search_graph.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/write_model.h"
#include "utils/files/files.h"

namespace official::transformer {

using compute::DType;

absl::StatusOr<std::string> ExportTrained(train::Estimator& estimator, const ModelParams& params,
                                          const std::string& vocab_file, const exporting::Destination& to) {
  constexpr int64_t kMaxVocabularyBytes = int64_t{1} << 30;
  ASSIGN_OR_RETURN(std::string vocabulary, files::ReadFile(vocab_file, kMaxVocabularyBytes));
  exporting::GraphDefBuilder graph;
  const std::string input = graph.AddPlaceholder("input_tensor", DType::kInt64, {-1, -1});
  exporting::TfOps tf(graph, "translate");
  const TranslationNodes found = AddTranslation({input, DType::kInt64}, params, tf);
  compute::Graph trained;
  for (const exporting::GraphDefBuilder::Variable& variable : graph.variables()) {
    trained.Variable({variable.name, variable.type, compute::Initializer::Zeros()});
  }
  RETURN_IF_ERROR(estimator.LoadVariables(trained));
  std::map<std::string, compute::Tensor> variables;
  for (const exporting::GraphDefBuilder::Variable& variable : graph.variables()) {
    ASSIGN_OR_RETURN(variables[variable.name], estimator.Variable(variable.name));
  }
  const exporting::Signature signature{"translate",
                                       {{"input", {input, DType::kInt64, {-1, -1}}}},
                                       {{"outputs", {found.outputs.name, DType::kInt32, {-1, -1}}},
                                        {"scores", {found.scores.name, DType::kFloat32, {-1}}}}};
  return exporting::WriteModel(to, graph, variables, {signature}, {{"vocab.txt", std::move(vocabulary)}});
}

}  // namespace official::transformer
