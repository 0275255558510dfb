#include "utils/train/keras/network.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/top_k/top_k.h"

namespace official::keras {

using compute::DType;
using compute::Tensor;
using compute::Value;

Metric SparseCategoricalAccuracy(std::string name) {
  return {std::move(name), [](Value labels, Value outputs) {
            const Value classes = compute::Cast(compute::ArgMax(outputs), DType::kInt32);
            const Aligned aligned = AlignRanks(labels, classes);
            return compute::Cast(compute::Equal(aligned.outputs, aligned.labels), DType::kFloat32);
          }};
}

absl::Status CheckMetrics(absl::string_view model, const std::vector<Metric>& metrics) {
  const std::set<absl::string_view> reserved = {"loss", "learning_rate", "global_step"};
  std::set<absl::string_view> names;
  for (const Metric& metric : metrics) {
    const bool is_reserved = reserved.count(metric.name) > 0;
    if (!is_reserved && names.insert(metric.name).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model, " has ", is_reserved ? "a metric" : "two metrics", " named '", metric.name, "'",
                     is_reserved ? ", which is the name of something else in the logs" : "",
                     "; give each metric a name of its own"));
  }
  return absl::OkStatus();
}

train::ModelSpec BuildSpec(const NetworkFn& network, const LossFn& loss, const std::vector<Metric>& metrics,
                           const train::ModelInputs& in) {
  compute::Layers layers(in.graph, in.dtype);
  const Value outputs = network(layers, in);
  train::ModelSpec spec;
  if (in.mode == train::Mode::kPredict) {
    spec.predictions = {{kOutputs, outputs}};
    return spec;
  }
  const auto fail = [&](absl::string_view message) {
    in.graph.Fail(absl::InvalidArgumentError(message));
    return spec;
  };
  if (loss == nullptr) return fail("the model is compiled without a loss; set CompileOptions::loss");
  if (in.labels.empty()) {
    return fail("the data set has no labels, which the loss needs; give it features and labels");
  }
  spec.loss = loss(in.labels[0], outputs);
  for (const Metric& metric : metrics) {
    const Value values = metric.values(in.labels[0], outputs);
    const auto count = static_cast<float>(values.shape().num_elements());
    spec.metrics.push_back({metric.name, compute::Sum(values), in.graph.Constant(Tensor::Scalar(count))});
  }
  spec.moving_averages = layers.moving_averages();
  return spec;
}

}  // namespace official::keras
