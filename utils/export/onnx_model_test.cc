#include "utils/export/onnx_model.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>

#include "absl/strings/str_cat.h"
#include "utils/export/onnx_check.h"
#include "utils/export/write_model.h"
#include "utils/files/files.h"

namespace official::exporting {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;
using Names = std::vector<std::string>;

std::string NewDirectory() {
  static int counter = 0;
  const char* directory = std::getenv("TEST_TMPDIR");
  const std::string path = absl::StrCat(directory ? directory : "/tmp", "/onnx-", getpid(), "-", ++counter);
  REQUIRE(files::MakeDirectories(path).ok());
  return path;
}

// y = relu(x * kernel), and a variable that it does not need.
struct Model {
  Model() {
    const std::string x = graph.AddPlaceholder("x", DType::kFloat32, {-1, 3});
    const std::string kernel = graph.AddVariable("dense/kernel", {DType::kFloat32, {3, 2}});
    const GraphDefBuilder::Attrs type = {{"T", TypeAttr(DType::kFloat32)}};
    const std::string product = graph.AddNode("MatMul", "dense/MatMul", {x, kernel}, type);
    const std::string y = graph.AddNode("Relu", "dense/Relu", {product}, type);
    signature = {"predict", {{"input", {x, DType::kFloat32, {-1, 3}}}}, {{"y", {y, DType::kFloat32, {-1, 2}}}}};
  }
  std::map<std::string, Tensor> OwnValues() const { return {{"dense/kernel", values.at("dense/kernel")}}; }

  GraphDefBuilder graph;
  Signature signature;
  std::map<std::string, Tensor> values = {{"dense/kernel", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                                          {"dense/kernel/Adam", Tensor::Of<float>({1}, {1})}};
};

onnx::ModelProto Load(const std::string& path) {
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(files::ReadFile(path, 1 << 20).value()));
  return model;
}

TEST_CASE("An ONNX model is a version, alone or beside a SavedModel, with the files that go with it") {
  const Model model;
  const auto files_of = [&](bool saved_model) {
    const Destination to{NewDirectory(), saved_model, /*onnx=*/true};
    const std::string path =
        WriteModel(to, model.graph, model.values, {model.signature}, {{"labels.txt", "a\n"}}).value();
    CHECK(files::ReadFile(path + "/assets.extra/labels.txt", 10).value() == "a\n");
    return files::ListDirectory(path).value();
  };
  CHECK(files_of(false) == Names{"assets.extra", "model.onnx"});
  CHECK(files_of(true) == Names{"assets.extra", "model.onnx", "saved_model.pb", "variables"});
}

TEST_CASE("Its initializers are the graph's variables, and equal models are equal files") {
  const Model model;
  const std::string directory = NewDirectory(), path = directory + "/a.onnx", second = directory + "/b.onnx";
  REQUIRE(WriteOnnxModel(path, model.graph, model.values, model.signature) == absl::OkStatus());
  const onnx::ModelProto loaded = Load(path);
  REQUIRE(loaded.graph().initializer_size() == 1);
  const onnx::TensorProto& kernel = loaded.graph().initializer(0);
  CHECK(kernel.name() == "dense/kernel");
  CHECK(kernel.raw_data() == std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40\0\0\xc0\x40", 24));
  REQUIRE(WriteOnnxModel(second, model.graph, model.values, model.signature).ok());
  CHECK(files::ReadFile(path, 1 << 20).value() == files::ReadFile(second, 1 << 20).value());
}

// What the check says of a model that `change` has spoiled.
std::string Spoiled(const std::function<void(onnx::GraphProto&)>& change) {
  const Model model;
  const std::string path = NewDirectory() + "/model.onnx";
  REQUIRE(WriteOnnxModel(path, model.graph, model.values, model.signature).ok());
  onnx::ModelProto loaded = Load(path);
  CHECK(CheckOnnxModel(loaded, model.signature) == absl::OkStatus());
  change(*loaded.mutable_graph());
  const absl::Status status = CheckOnnxModel(loaded, model.signature);
  CHECK(absl::IsInternal(status));
  return std::string(status.message());
}

TEST_CASE("A model that a loader would refuse is not exported") {
  using Graph = onnx::GraphProto;
  CHECK_THAT(Spoiled([](Graph& g) { g.mutable_node(1)->set_input(0, "dense/Sum"); }),
             Contains("dense/Relu uses dense/Sum, which nothing before it makes"));
  CHECK_THAT(Spoiled([](Graph& g) { g.mutable_node()->SwapElements(0, 1); }),
             Contains("dense/Relu uses dense/MatMul, which nothing before it makes"));
  CHECK_THAT(Spoiled([](Graph& g) { g.mutable_node(1)->set_output(0, "dense/MatMul"); }),
             Contains("two values have the name dense/MatMul"));
  CHECK_THAT(Spoiled([](Graph& g) { g.mutable_output(0)->set_name("z"); }), Contains("nothing makes the output z"));
  CHECK_THAT(Spoiled([](Graph& g) { g.mutable_input(0)->set_name("input_1"); }),
             Contains("uses input, which nothing before it makes"));
  CHECK_THAT(Spoiled([](Graph& g) {
               g.mutable_input(0)->set_name("input_1");
               g.mutable_node(0)->set_input(0, "input_1");
             }),
             Contains("it has an input input_1"));
  CHECK_THAT(Spoiled([](Graph& g) { *g.add_input() = g.input(0), g.mutable_input(1)->set_name("more"); }),
             Contains("it has 2 inputs instead of 1"));
  const auto type_of = [](Graph& g) { return g.mutable_output(0)->mutable_type()->mutable_tensor_type(); };
  const std::string other = "the output y has another type or shape";
  CHECK_THAT(Spoiled([&](Graph& g) { type_of(g)->set_elem_type(onnx::TensorProto::INT64); }), Contains(other));
  CHECK_THAT(Spoiled([&](Graph& g) { type_of(g)->mutable_shape()->mutable_dim(0)->set_dim_value(1); }),
             Contains(other));
  CHECK_THAT(Spoiled([&](Graph& g) { type_of(g)->mutable_shape()->mutable_dim(1)->set_dim_value(3); }),
             Contains(other));
  CHECK_THAT(Spoiled([](Graph& g) { g.mutable_initializer(0)->add_dims(2); }),
             Contains("dense/kernel has not the bytes"));
  // The body of a loop sees what was made before it, and has no name a second time.
  const auto add_loop = [](Graph& g, const std::string& input, const std::string& output) {
    onnx::NodeProto* const loop = g.add_node();
    loop->set_name("loop");
    onnx::NodeProto* const inner = loop->add_attribute()->mutable_g()->add_node();
    inner->set_name("inner");
    inner->add_input(input);
    inner->add_output(output);
  };
  CHECK_THAT(Spoiled([&](Graph& g) { add_loop(g, "dense/Sum", "w"); }), Contains("inner uses dense/Sum"));
  CHECK_THAT(Spoiled([&](Graph& g) { add_loop(g, "dense/Relu", "dense/Relu"); }),
             Contains("two values have the name dense/Relu"));
}

TEST_CASE("A file that is not read back as it was written is found") {
  const Model model;
  const std::string path = NewDirectory() + "/model.onnx";
  REQUIRE(WriteOnnxModel(path, model.graph, model.values, model.signature).ok());
  const std::string bytes = files::ReadFile(path, 1 << 20).value();
  CHECK(CheckOnnxFile(path, bytes, model.signature, model.OwnValues()) == absl::OkStatus());
  const auto error_with = [&](const std::string& content, const std::map<std::string, Tensor>& values) {
    REQUIRE(files::WriteFileAtomically(path, content).ok());
    const absl::Status status = CheckOnnxFile(path, bytes, model.signature, values);
    CHECK(absl::IsAborted(status));
    CHECK_THAT(std::string(status.message()), Contains(path));
    return std::string(status.message());
  };
  std::string other = bytes;
  other[other.size() / 2] ^= 1;
  CHECK_THAT(error_with(other, model.OwnValues()), Contains("the file has other bytes"));
  CHECK_THAT(error_with(bytes.substr(1), model.OwnValues()), Contains("the file has other bytes"));
  CHECK_THAT(error_with("", model.OwnValues()), Contains("the file has other bytes"));
  std::map<std::string, Tensor> values = model.OwnValues();
  values["dense/kernel"] = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 7});
  CHECK_THAT(error_with(bytes, values), Contains("the variable dense/kernel"));
  values["dense/kernel"] = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK_THAT(error_with(bytes, values), Contains("the variable dense/kernel"));
  const absl::Status missing = CheckOnnxFile(path, bytes, model.signature, model.values);
  CHECK(absl::IsInternal(missing));
  CHECK_THAT(std::string(missing.message()), Contains("no initializer is the variable dense/kernel/Adam"));
}

TEST_CASE("A model that does not fit into a file of 2 GiB is refused before anything is written") {
  Model model;
  model.graph.AddVariable("table", {DType::kFloat32, {int64_t{1} << 23, 64}});
  const Destination to{NewDirectory(), /*saved_model=*/false, /*onnx=*/true};
  const absl::Status status = WriteModel(to, model.graph, model.values, {model.signature}).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(std::string(status.message()), Contains("2.00 GiB") && Contains("--export_format=saved_model"));
  CHECK(files::ListDirectory(to.export_dir).value().empty());
}

}  // namespace
}  // namespace official::exporting
