#include "utils/train/summary/graph_summary.h"

#include <catch2/catch.hpp>

#include "utils/compute/graph/op_def.h"
#include "utils/protos/graph.pb.h"
#include "utils/protos/step_stats.pb.h"

namespace official::train {
namespace {

constexpr compute::OpName kTwoOutputs("TwoOutputs");

using compute::DType;
using compute::Graph;
using compute::Tensor;
using compute::Value;

// An op that the graph knows nothing else of.
[[maybe_unused]] const bool registered =
    compute::RegisterOp({.name = kTwoOutputs, .infer = [](const compute::InferContext& c) {
                           return std::vector<compute::TensorType>(2, c.type(0));
                         }});

TEST_CASE("A graph has a node for each of ours, with inputs, types and shapes") {
  compute::Graph graph;
  graph.Input("image", {DType::kFloat32, {8, 28}});
  graph.Variable({"dense/kernel", {DType::kFloat32, {28, 3}}, compute::Initializer::Zeros()});
  const Value c = graph.Constant(Tensor::Scalar<int64_t>(7));
  REQUIRE(graph.status().ok());

  tensorflow::GraphDef written;
  REQUIRE(written.ParseFromString(GraphDefOf(graph)));
  REQUIRE(written.node_size() == 3);
  CHECK(written.node(0).name() == "image");
  CHECK(written.node(0).op() == "Placeholder");
  CHECK(written.node(0).attr().at("dtype").type() == tensorflow::DT_FLOAT);
  const auto& shapes = written.node(0).attr().at("_output_shapes").list();
  REQUIRE(shapes.shape_size() == 1);
  REQUIRE(shapes.shape(0).dim_size() == 2);
  CHECK(shapes.shape(0).dim(1).size() == 28);
  CHECK(written.node(1).name() == "dense/kernel");
  CHECK(written.node(1).op() == "VariableV2");
  CHECK(written.node(2).name() == c.node()->name());
  CHECK(written.node(2).op() == "Const");
  CHECK(written.node(2).attr().at("dtype").type() == tensorflow::DT_INT64);
  CHECK(written.node(2).attr().count("value") == 0);
}

TEST_CASE("Inputs are named by node and output") {
  compute::Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2, 2}});
  const Value sum = compute::Apply(kTwoOutputs, {x});
  const Value second = compute::Apply(kTwoOutputs, {sum.node()->output(1)});
  REQUIRE(second);
  tensorflow::GraphDef written;
  REQUIRE(written.ParseFromString(GraphDefOf(graph)));
  CHECK(written.node(1).op() == "TwoOutputs");
  CHECK(written.node(1).input(0) == "x");
  CHECK(written.node(1).attr().at("_output_shapes").list().shape_size() == 2);
  CHECK(written.node(2).input(0) == written.node(1).name() + ":1");
}

TEST_CASE("Run metadata have the times of each device's ops") {
  const std::vector<logs::DeviceTrace> traces = {{.device = "/device:CPU:0",
                                                  .events = {{.name = "MatMul_1",
                                                              .op = "MatMul",
                                                              .inputs = {"x", "w"},
                                                              .thread = 2,
                                                              .start_us = 1'600'000'000'000'000,
                                                              .duration_us = 25}}}};
  tensorflow::RunMetadata metadata;
  REQUIRE(metadata.ParseFromString(RunMetadataOf(traces)));
  REQUIRE(metadata.step_stats().dev_stats_size() == 1);
  const tensorflow::DeviceStepStats& device = metadata.step_stats().dev_stats(0);
  CHECK(device.device() == "/device:CPU:0");
  REQUIRE(device.node_stats_size() == 1);
  const tensorflow::NodeExecStats& node = device.node_stats(0);
  CHECK(node.node_name() == "MatMul_1");
  CHECK(node.timeline_label() == "MatMul_1 = MatMul(x, w)");
  CHECK(node.all_start_micros() == 1'600'000'000'000'000);
  CHECK(node.op_start_rel_micros() == 0);
  CHECK(node.op_end_rel_micros() == 25);
  CHECK(node.all_end_rel_micros() == 25);
  CHECK(node.thread_id() == 2);
}

}  // namespace
}  // namespace official::train
