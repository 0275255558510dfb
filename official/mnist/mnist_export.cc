#include "official/mnist/mnist_export.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/saved_model.h"

namespace official::mnist {
namespace {

using compute::DType;
using compute::Tensor;
using exporting::BoolAttr;
using exporting::GraphDefBuilder;
using exporting::IntsAttr;
using exporting::StringAttr;
using exporting::TypeAttr;

// The inference graph of the model in TensorFlow's ops, with the batch dimension free.
class MnistGraph {
 public:
  explicit MnistGraph(const std::map<std::string, Tensor>& variables) : variables_(variables) {}

  exporting::Signature Build(const ModelConfig& config) {
    const std::string image = graph_.AddPlaceholder("image", DType::kFloat32, {-1, kImageSize, kImageSize});
    std::string x = Reshape("Reshape", image, {-1, kImageSize, kImageSize, 1});
    x = MaxPool("max_pooling2d/MaxPool", Convolution("conv2d", x));
    x = MaxPool("max_pooling2d_1/MaxPool", Convolution("conv2d_1", x));
    if (config.channels_first) {
      const std::string perm = graph_.AddConst("transpose/perm", Tensor::Of<int32_t>({4}, {0, 3, 1, 2}));
      x = graph_.AddNode("Transpose", "transpose", {x, perm}, {kFloat, {"Tperm", TypeAttr(DType::kInt32)}});
    }
    x = Reshape("Reshape_1", x, {-1, static_cast<int32_t>(variables_.at("dense/kernel").shape().dim(0))});
    x = graph_.AddNode("Relu", "dense/Relu", {Dense("dense", x)}, {kFloat});
    const std::string logits = Dense("dense_1", x);
    const std::string axis = graph_.AddConst("ArgMax/dimension", Tensor::Scalar<int32_t>(1));
    const std::string classes =
        graph_.AddNode("ArgMax", "ArgMax", {logits, axis},
                       {kFloat, {"Tidx", TypeAttr(DType::kInt32)}, {"output_type", TypeAttr(DType::kInt64)}});
    const std::string probabilities = graph_.AddNode("Softmax", "Softmax", {logits}, {kFloat});
    return {"classify",
            {{"image", {image, DType::kFloat32, {-1, kImageSize, kImageSize}}}},
            {{"classes", {classes, DType::kInt64, {-1}}},
             {"probabilities", {probabilities, DType::kFloat32, {-1, kNumClasses}}}}};
  }

  GraphDefBuilder&& graph() { return std::move(graph_); }

 private:
  inline static const std::pair<std::string, tensorflow::AttrValue> kFloat = {"T", TypeAttr(DType::kFloat32)};

  std::string Reshape(const std::string& name, const std::string& x, std::initializer_list<int32_t> shape) {
    const auto rank = static_cast<int64_t>(shape.size());
    const std::string to = graph_.AddConst(absl::StrCat(name, "/shape"), Tensor::Of<int32_t>({rank}, shape));
    return graph_.AddNode("Reshape", name, {x, to}, {kFloat, {"Tshape", TypeAttr(DType::kInt32)}});
  }

  std::string BiasAdd(const std::string& layer, const std::string& x) {
    return graph_.AddNode("BiasAdd", layer + "/BiasAdd", {x, Variable(layer + "/bias")}, {kFloat});
  }

  std::string Convolution(const std::string& layer, const std::string& x) {
    const std::string y =
        graph_.AddNode("Conv2D", layer + "/Conv2D", {x, Variable(layer + "/kernel")},
                       {kFloat, {"strides", IntsAttr({1, 1, 1, 1})}, {"padding", StringAttr("SAME")}});
    return graph_.AddNode("Relu", layer + "/Relu", {BiasAdd(layer, y)}, {kFloat});
  }

  std::string MaxPool(const std::string& name, const std::string& x) {
    return graph_.AddNode("MaxPool", name, {x},
                          {kFloat,
                           {"ksize", IntsAttr({1, 2, 2, 1})},
                           {"strides", IntsAttr({1, 2, 2, 1})},
                           {"padding", StringAttr("SAME")}});
  }

  std::string Dense(const std::string& layer, const std::string& x) {
    return BiasAdd(layer, graph_.AddNode("MatMul", layer + "/MatMul", {x, Variable(layer + "/kernel")}, {kFloat}));
  }

  std::string Variable(const std::string& name) { return graph_.AddVariable(name, variables_.at(name).type()); }

  const std::map<std::string, Tensor>& variables_;
  GraphDefBuilder graph_;
};

}  // namespace

absl::StatusOr<std::string> ExportSavedModel(train::Estimator& estimator, const ModelConfig& config,
                                             const std::string& export_dir) {
  RETURN_IF_ERROR(
      estimator.RestoreForPrediction({.features = {{"", {DType::kFloat32, {kImageSize * kImageSize}}}}, .labels = {}}));
  std::map<std::string, Tensor> variables;
  for (const char* layer : {"conv2d", "conv2d_1", "dense", "dense_1"}) {
    for (const char* part : {"/kernel", "/bias"}) {
      const std::string name = absl::StrCat(layer, part);
      ASSIGN_OR_RETURN(variables[name], estimator.Variable(name));
    }
  }
  MnistGraph graph(variables);
  const exporting::Signature signature = graph.Build(config);
  return exporting::WriteSavedModel(export_dir, graph.graph(), variables, {signature});
}

}  // namespace official::mnist
