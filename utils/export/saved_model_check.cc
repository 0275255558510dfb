#include "utils/export/saved_model_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/protos/tensor_conversion.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::exporting {
namespace {

using Nodes = std::map<std::string, const tensorflow::NodeDef*, std::less<>>;

absl::Status Inconsistent(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the SavedModel would not be valid: ", what));
}

absl::Status NotAsWritten(const std::string& directory, absl::string_view what) {
  return absl::AbortedError(
      absl::StrCat(directory, " is not read back as it was written: ", what, "; nothing is exported, try again"));
}

// The node of "name", "name:1" or "^name".
absl::string_view NodeOf(absl::string_view tensor) {
  absl::ConsumePrefix(&tensor, "^");
  return tensor.substr(0, tensor.find(':'));
}

absl::StatusOr<const tensorflow::NodeDef*> Find(const Nodes& nodes, absl::string_view tensor, absl::string_view user) {
  const auto found = nodes.find(NodeOf(tensor));
  if (found != nodes.end()) return found->second;
  return Inconsistent(absl::StrCat(user, " uses ", tensor, ", and there is no such node"));
}

// Nodes that wait for no other are taken away, until none is left.
absl::Status CheckAcyclic(const tensorflow::GraphDef& graph) {
  std::map<std::string, std::vector<std::string>> users;
  std::map<std::string, int> missing;
  std::vector<std::string> ready;
  for (const tensorflow::NodeDef& node : graph.node()) {
    missing[node.name()] = node.input_size();
    if (node.input_size() == 0) ready.push_back(node.name());
    for (const std::string& input : node.input()) {
      // A loop has this one edge back.
      const bool closes_loop = node.op() == "Merge" && &input != &node.input(0);
      if (closes_loop) {
        if (--missing[node.name()] == 0) ready.push_back(node.name());
      } else {
        users[std::string(NodeOf(input))].push_back(node.name());
      }
    }
  }
  size_t done = 0;
  for (; !ready.empty(); ++done) {
    const std::string name = ready.back();
    ready.pop_back();
    for (const std::string& user : users[name]) {
      if (--missing[user] == 0) ready.push_back(user);
    }
  }
  return done == static_cast<size_t>(graph.node_size()) ? absl::OkStatus() : Inconsistent("its graph has a cycle");
}

absl::Status CheckSignature(const std::string& key, const tensorflow::SignatureDef& signature, const Nodes& nodes) {
  for (const auto& [name, info] : signature.inputs()) {
    const std::string user = absl::StrCat("input ", name, " of signature ", key);
    ASSIGN_OR_RETURN(const tensorflow::NodeDef* const node, Find(nodes, info.name(), user));
    const auto dtype = node->attr().find("dtype"), shape = node->attr().find("shape");
    const bool same = node->op() == "Placeholder" && dtype != node->attr().end() && shape != node->attr().end() &&
                      dtype->second.type() == info.dtype() &&
                      shape->second.shape().SerializeAsString() == info.tensor_shape().SerializeAsString();
    if (!same)
      return Inconsistent(absl::StrCat(user, " is not of the type and shape of the placeholder ", node->name()));
  }
  for (const auto& [name, info] : signature.outputs()) {
    RETURN_IF_ERROR(Find(nodes, info.name(), absl::StrCat("output ", name, " of signature ", key)).status());
  }
  return absl::OkStatus();
}

// The variables that have a handle in the graph.
std::map<std::string, const tensorflow::NodeDef*> VariablesOf(const tensorflow::GraphDef& graph) {
  std::map<std::string, const tensorflow::NodeDef*> variables;
  for (const tensorflow::NodeDef& node : graph.node()) {
    if (node.op() == "VarHandleOp") variables[node.name()] = &node;
  }
  return variables;
}

absl::Status CheckSaver(const tensorflow::MetaGraphDef& meta_graph, const Nodes& nodes) {
  const auto variables = VariablesOf(meta_graph.graph_def());
  if (variables.empty()) return absl::OkStatus();
  const tensorflow::SaverDef& saver = meta_graph.saver_def();
  RETURN_IF_ERROR(Find(nodes, saver.filename_tensor_name(), "the saver").status());
  RETURN_IF_ERROR(Find(nodes, saver.save_tensor_name(), "the saver").status());
  ASSIGN_OR_RETURN(const tensorflow::NodeDef* const restore, Find(nodes, saver.restore_op_name(), "the saver"));
  std::set<std::string, std::less<>> assigned;
  for (const std::string& input : restore->input()) {
    ASSIGN_OR_RETURN(const tensorflow::NodeDef* const assign, Find(nodes, input, restore->name()));
    if (assign->op() == "AssignVariableOp" && assign->input_size() > 0) assigned.insert(assign->input(0));
  }
  for (const auto& [name, node] : variables) {
    if (!assigned.contains(name)) return Inconsistent(absl::StrCat("its saver does not restore ", name));
  }
  return absl::OkStatus();
}

absl::Status CheckVariables(const std::string& directory, const tensorflow::GraphDef& graph,
                            const std::map<std::string, compute::Tensor>& values) {
  const auto variables = VariablesOf(graph);
  if (variables.empty()) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<train::BundleReader>> bundle =
      train::BundleReader::Open(files::JoinPath(directory, "variables/variables"));
  if (!bundle.ok()) return NotAsWritten(directory, bundle.status().message());
  if ((*bundle)->ListTensors().size() != variables.size()) {
    return NotAsWritten(directory, "the variables are not those of the graph");
  }
  for (const auto& [name, node] : variables) {
    const absl::StatusOr<compute::Tensor> stored = (*bundle)->Read(name);
    if (!stored.ok()) return NotAsWritten(directory, stored.status().message());
    const auto value = values.find(name);
    const bool same = value != values.end() && value->second.type() == stored->type() &&
                      std::memcmp(value->second.raw_data(), stored->raw_data(), stored->num_bytes()) == 0;
    const bool fits = node->attr().at("dtype").type() == ToDataType(stored->dtype()) &&
                      node->attr().at("shape").shape().SerializeAsString() ==
                          ToShapeProto(stored->shape().dims()).SerializeAsString();
    if (!same || !fits) return NotAsWritten(directory, absl::StrCat("the variable ", name, " has another value"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMetaGraph(const tensorflow::MetaGraphDef& meta_graph) {
  Nodes nodes;
  for (const tensorflow::NodeDef& node : meta_graph.graph_def().node()) {
    if (!nodes.emplace(node.name(), &node).second) {
      return Inconsistent(absl::StrCat("two nodes have the name ", node.name()));
    }
  }
  for (const tensorflow::NodeDef& node : meta_graph.graph_def().node()) {
    for (const std::string& input : node.input()) RETURN_IF_ERROR(Find(nodes, input, node.name()).status());
  }
  RETURN_IF_ERROR(CheckAcyclic(meta_graph.graph_def()));
  for (const auto& [key, signature] : meta_graph.signature_def()) {
    RETURN_IF_ERROR(CheckSignature(key, signature, nodes));
  }
  return CheckSaver(meta_graph, nodes);
}

absl::Status CheckSavedModel(const std::string& directory, absl::string_view model,
                             const std::map<std::string, compute::Tensor>& variables) {
  const absl::StatusOr<std::string> read =
      files::ReadFile(files::JoinPath(directory, "saved_model.pb"), static_cast<int64_t>(model.size()));
  if (!read.ok()) return NotAsWritten(directory, read.status().message());
  tensorflow::SavedModel parsed;
  if (*read != model || !parsed.ParseFromString(*read) || parsed.meta_graphs_size() != 1) {
    return NotAsWritten(directory, "saved_model.pb has other bytes");
  }
  RETURN_IF_ERROR(CheckMetaGraph(parsed.meta_graphs(0)));
  return CheckVariables(directory, parsed.meta_graphs(0).graph_def(), variables);
}

}  // namespace official::exporting
