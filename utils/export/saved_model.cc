#include "utils/export/saved_model.h"

#include <utility>

#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/meta_graph.h"
#include "utils/export/saved_model_check.h"
#include "utils/export/version_directory.h"
#include "utils/files/files.h"
#include "utils/protos/saved_model.pb.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::exporting {
namespace {

using Variable = GraphDefBuilder::Variable;

tensorflow::SavedModel BuildSavedModel(GraphDefBuilder graph, absl::Span<const Signature> signatures) {
  tensorflow::SavedModel model;
  model.set_saved_model_schema_version(1);
  tensorflow::MetaGraphDef& meta_graph = *model.add_meta_graphs();
  meta_graph = BuildMetaGraph(std::move(graph), signatures, [](const std::string& variable) { return variable; });
  meta_graph.mutable_meta_info_def()->add_tags("serve");
  return model;
}

}  // namespace

absl::Status WriteSavedModel(const std::string& directory, GraphDefBuilder graph,
                             const std::map<std::string, compute::Tensor>& variables,
                             absl::Span<const Signature> signatures) {
  if (!graph.variables().empty()) {
    std::map<std::string, compute::Tensor> values;  // in the order of their names, as TensorFlow writes them
    for (const Variable& variable : graph.variables()) {
      const auto value = variables.find(variable.name);
      OFFICIAL_CHECK(value != variables.end() && value->second.type() == variable.type)
          << variable.name << " needs a value of type " << variable.type.ToString();
      values.insert(*value);
    }
    const std::string variables_dir = files::JoinPath(directory, "variables");
    RETURN_IF_ERROR(files::MakeDirectories(variables_dir));
    ASSIGN_OR_RETURN(const auto bundle, train::BundleWriter::Create(files::JoinPath(variables_dir, "variables")));
    for (const auto& [name, value] : values) {
      RETURN_IF_ERROR(CheckNotStopped());
      RETURN_IF_ERROR(bundle->Add(name, value));
    }
    RETURN_IF_ERROR(bundle->Finish());
  }
  const std::string model = SerializeDeterministically(BuildSavedModel(std::move(graph), signatures));
  RETURN_IF_ERROR(files::WriteFileAtomically(files::JoinPath(directory, "saved_model.pb"), model));
  return CheckSavedModel(directory, model, variables);
}

}  // namespace official::exporting
