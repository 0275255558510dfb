#include "utils/export/export_model.h"

#include <optional>

#include "utils/compute/core/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/export/write_model.h"
#include "utils/logs/log.h"

namespace official::exporting {

absl::StatusOr<std::string> ExportModel(train::Estimator& estimator, const ServingGraph& serving, const Destination& to,
                                        const std::map<std::string, std::string>& extra_files) {
  compute::Graph trained;
  for (const GraphDefBuilder::Variable& variable : serving.graph.variables()) {
    trained.Variable({variable.name, variable.type, compute::Initializer::Zeros(),
                      /*trainable=*/serving.not_trainable.count(variable.name) == 0});
  }
  RETURN_IF_ERROR(estimator.LoadVariables(trained));
  std::map<std::string, compute::Tensor> variables;
  for (const GraphDefBuilder::Variable& variable : serving.graph.variables()) {
    ASSIGN_OR_RETURN(variables[variable.name], estimator.Variable(variable.name));
  }
  std::optional<Answers> answers;
  if (serving.model != nullptr) {
    absl::StatusOr<Answers> of_model = AnswersOf(*serving.model, serving.signature, variables);
    if (of_model.ok()) {
      answers = *std::move(of_model);
    } else if (absl::IsUnimplemented(of_model.status())) {
      LOG(WARNING) << "the export is not compared with the trained model: " << of_model.status().message();
    } else {
      return of_model.status();
    }
  }
  return WriteModel(to, serving.graph, variables, {serving.signature}, extra_files, answers);
}

}  // namespace official::exporting
