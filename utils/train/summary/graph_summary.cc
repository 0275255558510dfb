#include "utils/train/summary/graph_summary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/graph/op_def.h"
#include "utils/protos/graph.pb.h"
#include "utils/protos/step_stats.pb.h"
#include "utils/protos/tensor_conversion.h"

namespace official::train {
namespace {

std::string TensorFlowOp(const compute::Node& node) {
  if (node.Is(compute::op::Input)) return "Placeholder";
  if (node.Is(compute::op::Constant)) return "Const";
  if (node.Is(compute::op::Variable)) return "VariableV2";
  return std::string(node.op().name.text());
}

std::string NameOf(const compute::Value& value) {
  const std::string& node = value.node()->name();
  return value.index() == 0 ? node : absl::StrCat(node, ":", value.index());
}

}  // namespace

std::string GraphDefOf(const compute::Graph& graph) {
  tensorflow::GraphDef graph_def;
  graph_def.mutable_versions()->set_producer(26);
  for (const auto& node : graph.nodes()) {
    tensorflow::NodeDef* const added = graph_def.add_node();
    added->set_name(node->name());
    added->set_op(TensorFlowOp(*node));
    for (const compute::Value& input : node->inputs()) added->add_input(NameOf(input));
    if (node->num_outputs() == 0) continue;
    auto& attrs = *added->mutable_attr();
    attrs["dtype"].set_type(ToDataType(node->output_types()[0].dtype));
    tensorflow::AttrValue::ListValue& shapes = *attrs["_output_shapes"].mutable_list();
    for (const compute::TensorType& type : node->output_types()) *shapes.add_shape() = ToShapeProto(type.shape.dims());
  }
  return graph_def.SerializeAsString();
}

std::string RunMetadataOf(absl::Span<const logs::DeviceTrace> devices) {
  tensorflow::RunMetadata metadata;
  for (const logs::DeviceTrace& device : devices) {
    tensorflow::DeviceStepStats& stats = *metadata.mutable_step_stats()->add_dev_stats();
    stats.set_device(device.device);
    for (const logs::TraceEvent& event : device.events) {
      tensorflow::NodeExecStats& node = *stats.add_node_stats();
      node.set_node_name(event.name);
      node.set_timeline_label(absl::StrCat(event.name, " = ", event.op, "(", absl::StrJoin(event.inputs, ", "), ")"));
      node.set_scheduled_micros(event.start_us);
      node.set_all_start_micros(event.start_us);
      node.set_op_end_rel_micros(event.duration_us);
      node.set_all_end_rel_micros(event.duration_us);
      node.set_thread_id(static_cast<uint32_t>(event.thread));
    }
  }
  return metadata.SerializeAsString();
}

}  // namespace official::train
