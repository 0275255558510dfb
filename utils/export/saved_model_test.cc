#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/export/saved_model_check.h"
#include "utils/export/write_model.h"
#include "utils/files/files.h"
#include "utils/misc/stop_signals.h"
#include "utils/protos/saved_model.pb.h"
#include "utils/train/checkpoint/bundle.h"

// What was in the directories that were synchronized, in the order of the calls.
std::vector<std::vector<std::string>> synced;

// Takes the place of the C library's fsync.
extern "C" int fsync(int fd) {
  const auto names = official::files::ListDirectory(absl::StrCat("/proc/self/fd/", fd));
  if (names.ok()) synced.push_back(*names);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace official::exporting {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using Names = std::vector<std::string>;

std::string NewDirectory() {
  static int counter = 0;
  const char* directory = std::getenv("TEST_TMPDIR");
  return absl::StrCat(directory ? directory : "/tmp", "/export-", getpid(), "-", ++counter);
}

// y = softmax(x * kernel + bias), in a graph as an exporter would build it.
struct DenseModel {
  DenseModel() {
    const std::string x = graph.AddPlaceholder("x", DType::kFloat32, {-1, 3});
    const std::string kernel = graph.AddVariable("dense/kernel", {DType::kFloat32, {3, 2}});
    const std::string bias = graph.AddVariable("dense/bias", {DType::kFloat32, {2}});
    const GraphDefBuilder::Attrs type = {{"T", TypeAttr(DType::kFloat32)}};
    const std::string product = graph.AddNode("MatMul", "dense/MatMul", {x, kernel}, type);
    const std::string sum = graph.AddNode("BiasAdd", "dense/BiasAdd", {product, bias}, type);
    const std::string y = graph.AddNode("Softmax", "softmax", {sum}, type);
    signature = {
        "predict", {{"input", {x, DType::kFloat32, {-1, 3}}}}, {{"probabilities", {y, DType::kFloat32, {-1, 2}}}}};
  }

  GraphDefBuilder graph;
  Signature signature;
  std::map<std::string, Tensor> values = {{"dense/kernel", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                                          {"dense/bias", Tensor::Of<float>({2}, {0.5f, -0.5f})},
                                          {"dense/kernel/Adam", Tensor::Of<float>({1}, {1})}};
};

tensorflow::MetaGraphDef Load(const std::string& path) {
  tensorflow::SavedModel model;
  REQUIRE(model.ParseFromString(files::ReadFile(path + "/saved_model.pb", 1 << 20).value()));
  CHECK(model.saved_model_schema_version() == 1);
  REQUIRE(model.meta_graphs_size() == 1);
  return model.meta_graphs(0);
}

const tensorflow::NodeDef& Node(const tensorflow::MetaGraphDef& meta_graph, const std::string& name) {
  for (const tensorflow::NodeDef& node : meta_graph.graph_def().node()) {
    if (node.name() == name) return node;
  }
  FAIL("no node " << name);
  std::abort();
}

Names Inputs(const tensorflow::NodeDef& node) { return Names(node.input().begin(), node.input().end()); }

TEST_CASE("A model is written under the present time, with its variables and no others") {
  const std::string export_dir = NewDirectory();
  const DenseModel model;
  const int64_t now = std::time(nullptr);
  const std::string path = WriteModel({export_dir}, model.graph, model.values, {model.signature}).value();
  const Names versions = files::ListDirectory(export_dir).value();
  REQUIRE(versions.size() == 1);
  CHECK(path == export_dir + "/" + versions[0]);
  CHECK(std::stoll(versions[0]) >= now);
  CHECK(std::stoll(versions[0]) < now + 100);
  CHECK(files::ListDirectory(path).value() == Names{"saved_model.pb", "variables"});
  CHECK(files::ListDirectory(path + "/variables").value() == Names{"variables.data-00000-of-00001", "variables.index"});

  const auto bundle = train::BundleReader::Open(path + "/variables/variables").value();
  CHECK(bundle->ListTensors().size() == 2);
  CHECK(bundle->Read("dense/kernel").value().data<float>()[5] == 6);
}

TEST_CASE("The signature is there under its key and as the default") {
  const DenseModel model;
  const auto meta_graph = Load(WriteModel({NewDirectory()}, model.graph, model.values, {model.signature}).value());
  CHECK(meta_graph.meta_info_def().tags(0) == "serve");
  CHECK(meta_graph.graph_def().versions().producer() == 26);
  for (const char* key : {"predict", "serving_default"}) {
    REQUIRE(meta_graph.signature_def().count(key) == 1);
    const tensorflow::SignatureDef& signature = meta_graph.signature_def().at(key);
    CHECK(signature.method_name() == "tensorflow/serving/predict");
    const tensorflow::TensorInfo& input = signature.inputs().at("input");
    CHECK(input.name() == "x:0");
    CHECK(input.dtype() == tensorflow::DT_FLOAT);
    CHECK(input.tensor_shape().dim(0).size() == -1);
    CHECK(input.tensor_shape().dim(1).size() == 3);
    CHECK(signature.outputs().at("probabilities").name() == "softmax:0");
  }

  Signature second = model.signature;
  second.key = "classify";
  second.outputs["probabilities"].name = "softmax:1";
  const auto two = Load(WriteModel({NewDirectory()}, model.graph, model.values, {model.signature, second}).value());
  CHECK(two.signature_def().size() == 2);
  CHECK(two.signature_def().at("classify").outputs().at("probabilities").name() == "softmax:1");
}

TEST_CASE("Loaders can restore the variables") {
  const DenseModel model;
  const auto meta_graph = Load(WriteModel({NewDirectory()}, model.graph, model.values, {model.signature}).value());
  CHECK(meta_graph.saver_def().filename_tensor_name() == "save/Const:0");
  CHECK(meta_graph.saver_def().save_tensor_name() == "save/control_dependency:0");
  CHECK(meta_graph.saver_def().restore_op_name() == "save/restore_all");
  CHECK(meta_graph.saver_def().version() == tensorflow::SaverDef::V2);

  const tensorflow::NodeDef& handle = Node(meta_graph, "dense/kernel");
  CHECK(handle.op() == "VarHandleOp");
  CHECK(handle.attr().at("shared_name").s() == "dense/kernel");
  CHECK(handle.attr().at("shape").shape().dim(1).size() == 2);
  CHECK(Inputs(Node(meta_graph, "dense/MatMul")) == Names{"x", "dense/kernel/Read/ReadVariableOp"});

  CHECK(Inputs(Node(meta_graph, "save/restore_all")) == Names{"^save/AssignVariableOp", "^save/AssignVariableOp_1"});
  CHECK(Inputs(Node(meta_graph, "save/AssignVariableOp")) == Names{"dense/kernel", "save/RestoreV2:0"});
  CHECK(Inputs(Node(meta_graph, "save/AssignVariableOp_1")) == Names{"dense/bias", "save/RestoreV2:1"});
  const tensorflow::NodeDef& restore = Node(meta_graph, "save/RestoreV2");
  CHECK(Inputs(restore) == Names{"save/Const", "save/RestoreV2/tensor_names", "save/RestoreV2/shape_and_slices"});
  CHECK(restore.attr().at("dtypes").list().type_size() == 2);
  const tensorflow::TensorProto& names = Node(meta_graph, "save/RestoreV2/tensor_names").attr().at("value").tensor();
  CHECK(names.string_val(0) == "dense/kernel");
  CHECK(names.string_val(1) == "dense/bias");
  CHECK(names.tensor_shape().dim(0).size() == 2);
}

TEST_CASE("A graph without variables needs no restoring") {
  GraphDefBuilder graph;
  const std::string x = graph.AddPlaceholder("x", DType::kFloat32, {2});
  const std::string two = graph.AddConst("two", Tensor::Of<float>({2}, {2, 2}));
  const std::string y = graph.AddNode("Mul", "y", {x, two}, {{"T", TypeAttr(DType::kFloat32)}});
  const std::string path =
      WriteModel({NewDirectory()}, graph, {},
                 {{"double", {{"x", {x, DType::kFloat32, {2}}}}, {{"y", {y, DType::kFloat32, {2}}}}}})
          .value();
  CHECK(files::ListDirectory(path).value() == Names{"saved_model.pb"});
  const auto meta_graph = Load(path);
  CHECK_FALSE(meta_graph.has_saver_def());
  CHECK(Node(meta_graph, "two").attr().at("value").tensor().tensor_content() == std::string("\0\0\0\x40\0\0\0\x40", 8));
}

TEST_CASE("Files that go with a model are assets.extra") {
  const DenseModel model;
  const std::string path =
      WriteModel({NewDirectory()}, model.graph, model.values, {model.signature}, {{"vocab.txt", "'a'\n"}}).value();
  CHECK(files::ListDirectory(path).value() == Names{"assets.extra", "saved_model.pb", "variables"});
  CHECK(files::ReadFile(path + "/assets.extra/vocab.txt", 100).value() == "'a'\n");
}

TEST_CASE("All that is in a version is on the disk before the version has its name") {
  const DenseModel model;
  synced.clear();
  const std::string path =
      WriteModel({NewDirectory()}, model.graph, model.values, {model.signature}, {{"vocab.txt", "'a'\n"}}).value();
  REQUIRE(synced.size() > 2);
  CHECK(synced[synced.size() - 2] == Names{"assets.extra", "saved_model.pb", "variables"});
  CHECK(synced.back() == Names{path.substr(path.rfind('/') + 1)});
}

TEST_CASE("Equal models are equal files, and two exports of one second are two versions") {
  const std::string export_dir = NewDirectory();
  const DenseModel model;
  const std::string first = WriteModel({export_dir}, model.graph, model.values, {model.signature}).value();
  const std::string second = WriteModel({export_dir}, model.graph, model.values, {model.signature}).value();
  CHECK(first < second);
  CHECK(files::ReadFile(first + "/saved_model.pb", 1 << 20).value() ==
        files::ReadFile(second + "/saved_model.pb", 1 << 20).value());
}

TEST_CASE("A temporary directory that somebody else has made is not used") {
  const std::string export_dir = NewDirectory();
  const DenseModel model;
  const int64_t now = std::time(nullptr);
  constexpr int kSeconds = 100;  // more than the test takes
  for (int64_t second = now; second < now + kSeconds; ++second) {
    REQUIRE(files::MakeDirectories(absl::StrCat(export_dir, "/temp-", second)).ok());
  }
  const std::string path = WriteModel({export_dir}, model.graph, model.values, {model.signature}).value();
  CHECK(std::stoll(path.substr(path.rfind('/') + 1)) == now + kSeconds);
  CHECK(files::ListDirectory(absl::StrCat(export_dir, "/temp-", now)).value().empty());
}

TEST_CASE("A signal to stop leaves no part of an export") {
  const std::string export_dir = NewDirectory();
  const DenseModel model;
  absl::Status status;
  {
    const misc::StopSignals signals;
    std::raise(SIGTERM);
    status = WriteModel({export_dir}, model.graph, model.values, {model.signature}).status();
  }
  { const misc::StopSignals forget; }
  CHECK(absl::IsCancelled(status));
  CHECK(files::ListDirectory(export_dir).value().empty());
}

TEST_CASE("Nodes get TensorFlow's names, and attributes their kinds") {
  GraphDefBuilder graph;
  CHECK(graph.AddNode("NoOp", "a", {}, {}) == "a");
  CHECK(graph.AddNode("NoOp", "a", {}, {}) == "a_1");
  CHECK(graph.AddNode("NoOp", "a", {"^a"},
                      {{"i", IntAttr(0)},
                       {"ints", IntsAttr({1, 2})},
                       {"f", FloatAttr(0)},
                       {"b", BoolAttr(false)},
                       {"s", StringAttr("NHWC")}}) == "a_2");
  const auto& attrs = graph.graph_def().node(2).attr();
  CHECK(attrs.at("i").value_case() == tensorflow::AttrValue::kI);  // also those whose value is the default
  CHECK(attrs.at("f").value_case() == tensorflow::AttrValue::kF);
  CHECK(attrs.at("b").value_case() == tensorflow::AttrValue::kB);
  CHECK(attrs.at("s").s() == "NHWC");
  CHECK(attrs.at("ints").list().i(1) == 2);
}

TEST_CASE("A failed export says why and leaves no files") {
  const DenseModel model;
  const std::string file = NewDirectory();
  REQUIRE(files::WriteFileAtomically(file, "").ok());
  CHECK(absl::IsFailedPrecondition(WriteModel({file}, model.graph, model.values, {}).status()));

  const std::string export_dir = NewDirectory();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {100, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const absl::Status status = WriteModel({export_dir}, model.graph, model.values, {}).status();
  setrlimit(RLIMIT_FSIZE, &before);
  CHECK(absl::IsAborted(status));
  CHECK_THAT(std::string(status.message()), Contains(export_dir));
  CHECK(files::ListDirectory(export_dir).value().empty());
}

// What the check says of a graph that `change` has spoiled.
std::string Spoiled(const std::function<void(tensorflow::MetaGraphDef&)>& change) {
  const DenseModel model;
  const std::string path = WriteModel({NewDirectory()}, model.graph, model.values, {model.signature}).value();
  tensorflow::MetaGraphDef meta_graph = Load(path);
  CHECK(CheckMetaGraph(meta_graph).ok());
  change(meta_graph);
  const absl::Status status = CheckMetaGraph(meta_graph);
  CHECK(absl::IsInternal(status));
  return std::string(status.message());
}

TEST_CASE("A graph that a loader would refuse is not exported") {
  const auto node = [](tensorflow::MetaGraphDef& meta_graph, const std::string& name) -> tensorflow::NodeDef& {
    for (tensorflow::NodeDef& node : *meta_graph.mutable_graph_def()->mutable_node()) {
      if (node.name() == name) return node;
    }
    std::abort();
  };
  using Graph = tensorflow::MetaGraphDef;
  CHECK_THAT(Spoiled([&](Graph& g) { *node(g, "softmax").mutable_input(0) = "dense/Sum"; }),
             Contains("softmax uses dense/Sum, and there is no such node"));
  CHECK_THAT(Spoiled([&](Graph& g) { *g.mutable_graph_def()->add_node() = node(g, "softmax"); }),
             Contains("two nodes have the name softmax"));
  CHECK_THAT(Spoiled([&](Graph& g) { *node(g, "dense/MatMul").mutable_input(0) = "softmax"; }), Contains("a cycle"));
  CHECK_THAT(Spoiled([&](Graph& g) {
               (*(*g.mutable_signature_def())["predict"].mutable_outputs())["probabilities"].set_name("y:0");
             }),
             Contains("output probabilities of signature predict uses y:0"));
  CHECK_THAT(Spoiled([&](Graph& g) {
               (*(*g.mutable_signature_def())["predict"].mutable_inputs())["input"].set_dtype(tensorflow::DT_INT32);
             }),
             Contains("input input of signature predict is not of the type and shape of the placeholder x"));
  CHECK_THAT(Spoiled([&](Graph& g) {
               auto& restore = node(g, "save/restore_all");
               restore.mutable_input()->RemoveLast();
             }),
             Contains("its saver does not restore dense/bias"));
}

TEST_CASE("Files that are not read back as they were written are found") {
  const DenseModel model;
  const std::string path = WriteModel({NewDirectory()}, model.graph, model.values, {model.signature}).value();
  const std::string pb = files::ReadFile(path + "/saved_model.pb", 1 << 20).value();
  CHECK(CheckSavedModel(path, pb, model.values).ok());
  const auto check = [&](const std::string& file, const std::string& content, const std::string& words) {
    const std::string name = path + "/" + file, before = files::ReadFile(name, 1 << 20).value();
    REQUIRE(files::WriteFileAtomically(name, content).ok());
    const absl::Status status = CheckSavedModel(path, pb, model.values);
    CHECK(absl::IsAborted(status));
    CHECK_THAT(std::string(status.message()), Contains(words) && Contains(path));
    REQUIRE(files::WriteFileAtomically(name, before).ok());
  };
  std::string other = pb;
  other[other.size() / 2] ^= 1;
  check("saved_model.pb", other, "saved_model.pb has other bytes");
  check("saved_model.pb", pb.substr(0, pb.size() - 1), "saved_model.pb has other bytes");
  const std::string data = "variables/variables.data-00000-of-00001";
  std::string bytes = files::ReadFile(path + "/" + data, 1 << 20).value();
  bytes[3] ^= 0x40;
  check(data, bytes, "Checksum does not match");
  check(data, "", "variables");
  check("variables/variables.index", "", "variables.index");
  auto values = model.values;
  values["dense/bias"] = Tensor::Of<float>({2}, {0.5f, 0.5f});
  CHECK(absl::IsAborted(CheckSavedModel(path, pb, values)));
}

}  // namespace
}  // namespace official::exporting
