#include "utils/export/meta_graph.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/saved_model_check.h"
#include "utils/protos/tensor_conversion.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::exporting {
namespace {

using Variable = GraphDefBuilder::Variable;

tensorflow::AttrValue TypesAttr(absl::Span<const Variable> variables) {
  tensorflow::AttrValue attr;
  attr.mutable_list();  // set even if it is empty
  for (const Variable& variable : variables) attr.mutable_list()->add_type(ToDataType(variable.type.dtype));
  return attr;
}

tensorflow::AttrValue StringTypeAttr() {
  tensorflow::AttrValue attr;
  attr.set_type(tensorflow::DT_STRING);
  return attr;
}

// The nodes by which a loader fills the variables: it feeds the path of the bundle to save/Const and runs
// save/restore_all. Saving again is declared too, since loaders expect a complete SaverDef.
tensorflow::SaverDef AddSaver(GraphDefBuilder& graph, absl::FunctionRef<std::string(const std::string&)> stored_name) {
  const std::vector<Variable> variables = graph.variables();
  std::vector<std::string> names;
  for (const Variable& variable : variables) names.push_back(stored_name(variable.name));
  const std::vector<std::string> whole(variables.size());  // "": each variable is restored in one piece

  const std::string path = graph.AddStringConst("save/Const", "model");
  const std::string save_names = graph.AddStringsConst("save/SaveV2/tensor_names", names);
  const std::string save_slices = graph.AddStringsConst("save/SaveV2/shape_and_slices", whole);
  std::vector<std::string> save_inputs = {path, save_names, save_slices};
  for (const Variable& variable : variables) {
    save_inputs.push_back(graph.AddNode("ReadVariableOp", absl::StrCat("save/", variable.name, "/ReadVariableOp"),
                                        {variable.name}, {{"dtype", TypeAttr(variable.type.dtype)}}));
  }
  const std::string save = graph.AddNode("SaveV2", "save/SaveV2", save_inputs, {{"dtypes", TypesAttr(variables)}});
  const std::string saved =
      graph.AddNode("Identity", "save/control_dependency", {path, absl::StrCat("^", save)}, {{"T", StringTypeAttr()}});

  const std::string restore_names = graph.AddStringsConst("save/RestoreV2/tensor_names", names);
  const std::string restore_slices = graph.AddStringsConst("save/RestoreV2/shape_and_slices", whole);
  const std::string restore = graph.AddNode("RestoreV2", "save/RestoreV2", {path, restore_names, restore_slices},
                                            {{"dtypes", TypesAttr(variables)}});
  std::vector<std::string> assigned;
  for (size_t i = 0; i < variables.size(); ++i) {
    const std::string assign =
        graph.AddNode("AssignVariableOp", "save/AssignVariableOp", {variables[i].name, absl::StrCat(restore, ":", i)},
                      {{"dtype", TypeAttr(variables[i].type.dtype)}});
    assigned.push_back(absl::StrCat("^", assign));
  }
  const std::string restore_all = graph.AddNode("NoOp", "save/restore_all", assigned, {});

  tensorflow::SaverDef saver;
  saver.set_filename_tensor_name(absl::StrCat(path, ":0"));
  saver.set_save_tensor_name(absl::StrCat(saved, ":0"));
  saver.set_restore_op_name(restore_all);
  saver.set_max_to_keep(5);
  saver.set_keep_checkpoint_every_n_hours(10000);
  saver.set_version(tensorflow::SaverDef::V2);
  return saver;
}

tensorflow::TensorInfo ToTensorInfo(const Signature::Tensor& tensor) {
  tensorflow::TensorInfo info;
  info.set_name(tensor.name.find(':') == std::string::npos ? absl::StrCat(tensor.name, ":0") : tensor.name);
  info.set_dtype(ToDataType(tensor.dtype));
  *info.mutable_tensor_shape() = ToShapeProto(tensor.dims);
  return info;
}

tensorflow::SignatureDef ToSignatureDef(const Signature& signature) {
  tensorflow::SignatureDef def;
  for (const auto& [name, tensor] : signature.inputs) (*def.mutable_inputs())[name] = ToTensorInfo(tensor);
  for (const auto& [name, tensor] : signature.outputs) (*def.mutable_outputs())[name] = ToTensorInfo(tensor);
  def.set_method_name("tensorflow/serving/predict");
  return def;
}

}  // namespace

tensorflow::MetaGraphDef BuildMetaGraph(GraphDefBuilder graph, absl::Span<const Signature> signatures,
                                        absl::FunctionRef<std::string(const std::string&)> stored_name) {
  tensorflow::MetaGraphDef meta_graph;
  // What TensorFlow 1.8 writes; every later version reads it.
  meta_graph.mutable_meta_info_def()->set_tensorflow_version("1.8.0");
  if (!graph.variables().empty()) *meta_graph.mutable_saver_def() = AddSaver(graph, stored_name);
  *meta_graph.mutable_graph_def() = graph.graph_def();
  meta_graph.mutable_graph_def()->mutable_versions()->set_producer(26);
  meta_graph.mutable_graph_def()->mutable_versions()->set_min_consumer(12);
  auto& defs = *meta_graph.mutable_signature_def();
  for (const Signature& signature : signatures) defs[signature.key] = ToSignatureDef(signature);
  if (signatures.size() == 1) defs["serving_default"] = ToSignatureDef(signatures[0]);
  return meta_graph;
}

std::string SerializeDeterministically(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream output(&stream);
  output.SetSerializationDeterministic(true);
  OFFICIAL_CHECK(message.SerializeToCodedStream(&output)) << "the graph has more than 2 GiB of constants";
  output.Trim();
  return bytes;
}

absl::StatusOr<CheckpointGraph> CheckpointGraphOf(const ServingGraph& serving, bool averages) {
  const tensorflow::MetaGraphDef meta_graph =
      BuildMetaGraph(serving.graph, {serving.signature}, [&](const std::string& variable) {
        const bool has_average = averages && serving.not_trainable.count(variable) == 0;
        return absl::StrCat(variable, has_average ? train::kAverageSuffix : "");
      });
  RETURN_IF_ERROR(CheckMetaGraph(meta_graph));
  CheckpointGraph files;
  files.meta_graph = SerializeDeterministically(meta_graph);
  OFFICIAL_CHECK(google::protobuf::TextFormat::PrintToString(meta_graph.graph_def(), &files.graph_text));
  return files;
}

}  // namespace official::exporting
