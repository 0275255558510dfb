#include "utils/export/serving_graph.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/graph_converter.h"
#include "utils/train/step.h"

namespace official::exporting {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;

// Dimensions with that of the batch free.
std::vector<int64_t> Batched(absl::Span<const int64_t> dims) {
  std::vector<int64_t> batched = {-1};
  batched.insert(batched.end(), dims.begin(), dims.end());
  return batched;
}

// The node that stands for a feature of the model: the placeholder, with its values in the feature's shape.
std::string AddFeature(const std::string& placeholder, const std::vector<int64_t>& dims, const data::Leaf& feature,
                       GraphDefBuilder& graph) {
  if (compute::Shape(dims) == feature.type.shape) return placeholder;
  const std::vector<int64_t> shape = Batched(feature.type.shape.dims());
  const std::vector<int32_t> narrow(shape.begin(), shape.end());
  const std::string to = graph.AddConst(absl::StrCat(placeholder, "/Reshape/shape"),
                                        Tensor::Of<int32_t>({static_cast<int64_t>(narrow.size())}, narrow));
  return graph.AddNode("Reshape", absl::StrCat(placeholder, "/Reshape"), {placeholder, to},
                       {{"T", TypeAttr(feature.type.dtype)}, {"Tshape", TypeAttr(DType::kInt32)}});
}

}  // namespace

absl::StatusOr<ServingGraph> BuildServingGraph(const train::Model& model, const data::ElementSpec& spec,
                                               const ServingSignature& signature) {
  OFFICIAL_CHECK(signature.inputs.size() == spec.features.size()) << signature.key;
  ASSIGN_OR_RETURN(train::BuiltModel built, train::BuildForExport(model, spec));
  ServingGraph serving{.graph = {}, .signature = {signature.key, {}, {}}, .not_trainable = {}};
  std::vector<GraphFeed> feeds;
  std::vector<std::string> inputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    const ServingInput& input = signature.inputs[i];
    const data::Leaf& feature = spec.features[i];
    const std::vector<int64_t> dims = Batched(input.dims);
    const std::string placeholder = serving.graph.AddPlaceholder(input.placeholder, feature.type.dtype, dims);
    inputs.push_back(input.name);
    serving.signature.inputs[input.name] = {placeholder, feature.type.dtype, dims};
    feeds.push_back({built.roots.feeds[i], AddFeature(placeholder, input.dims, feature, serving.graph)});
  }
  const std::vector<Value>& fetches = built.roots.fetches;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, AddGraph(feeds, fetches, serving.graph));
  for (size_t i = 0; i < fetches.size(); ++i) {
    serving.signature.outputs[built.fetch_names[i]] = {names[i], fetches[i].dtype(),
                                                       Batched(fetches[i].shape().dims().subspan(1))};
  }
  for (const compute::VariableSpec& variable : built.graph->variables()) {
    if (!variable.trainable) serving.not_trainable.insert(variable.name);
  }
  serving.model = std::make_shared<const TrainedModel>(TrainedModel{std::move(built), std::move(inputs)});
  return serving;
}

}  // namespace official::exporting
