#include "utils/export/answers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/random.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/program/program.h"

namespace official::exporting {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;

constexpr int64_t kExamples = 4;
constexpr double kTolerance = 1e-4;

// Example i of a tensor [examples, ...], under the shape of one.
Tensor ExampleOf(const Tensor& tensor, int64_t i, const compute::TensorType& type) {
  Tensor example(type);
  std::memcpy(example.raw_data(), static_cast<const char*>(tensor.raw_data()) + i * example.num_bytes(),
              static_cast<size_t>(example.num_bytes()));
  return example;
}

Tensor MadeUp(const Signature::Tensor& input, uint64_t stream) {
  std::vector<int64_t> dims = input.dims;
  dims[0] = kExamples;
  Tensor floats(DType::kFloat32, compute::Shape(dims));
  const absl::Span<float> values = floats.flat<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = compute::Philox(/*seed=*/1, stream, i)[0] >> 8;
    values[i] = compute::IsFloating(input.dtype) ? static_cast<float>(bits) / (1 << 24) : static_cast<float>(bits % 2);
  }
  return floats.CastTo(input.dtype);
}

absl::Status Differs(const std::string& output, int64_t i, double exported, double model) {
  return absl::InternalError(absl::StrCat("the exported model does not answer as the trained one does: element ", i,
                                          " of its output ", output, " is ", exported, ", and should be ", model,
                                          "; nothing is exported"));
}

absl::Status Compare(const std::string& name, const Tensor& exported, const Tensor& model) {
  if (exported.type() != model.type()) {
    return absl::InternalError(absl::StrCat("the output ", name, " of the exported model is ",
                                            exported.type().ToString(), ", and should be ", model.type().ToString()));
  }
  const Tensor a = exported.CastTo(DType::kFloat64), b = model.CastTo(DType::kFloat64);
  const absl::Span<double> x = a.flat<double>(), y = b.flat<double>();
  double largest = 0;
  for (const double value : y) largest = std::max(largest, std::abs(value));
  const bool is_floating = compute::IsFloating(model.dtype());
  const int64_t most_others = is_floating ? 0 : model.num_elements() / kExamples;
  int64_t others = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool is_equal = is_floating ? std::abs(x[i] - y[i]) <= kTolerance * largest : x[i] == y[i];
    if (!is_equal && ++others > most_others) return Differs(name, static_cast<int64_t>(i), x[i], y[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Answers> AnswersOf(const ServedModel& model, const Signature& signature, const NamedTensors& variables) {
  ASSIGN_OR_RETURN(const auto device, compute::MakeDevice("cpu"));
  compute::VariableStore store(*device);
  const compute::Graph& graph = *model.built.graph;
  RETURN_IF_ERROR(store.Create(graph, /*seed=*/0));
  for (const compute::VariableSpec& spec : graph.variables()) {
    const auto value = variables.find(spec.name);
    if (value != variables.end()) RETURN_IF_ERROR(store.Write(spec.name, value->second));
  }
  const compute::GraphRoots& roots = model.built.roots;
  ASSIGN_OR_RETURN(const auto program, compute::Program::Compile(graph, roots, *device, store));
  Answers answers;
  for (size_t f = 0; f < model.inputs.size(); ++f) {
    answers.inputs[model.inputs[f]] = MadeUp(signature.inputs.at(model.inputs[f]), f);
  }
  for (int64_t example = 0; example < kExamples; ++example) {
    std::vector<Tensor> feeds;
    for (size_t f = 0; f < model.inputs.size(); ++f) {
      feeds.push_back(ExampleOf(answers.inputs[model.inputs[f]], example, roots.feeds[f].type()));
    }
    RETURN_IF_ERROR(program->Run(feeds));
    for (size_t i = 0; i < roots.fetches.size(); ++i) {
      ASSIGN_OR_RETURN(const Tensor one, program->Fetch(static_cast<int>(i)));
      std::vector<int64_t> dims(one.shape().dims().begin(), one.shape().dims().end());
      dims[0] = kExamples;
      Tensor& all =
          answers.outputs.try_emplace(model.built.fetch_names[i], one.dtype(), compute::Shape(dims)).first->second;
      std::memcpy(static_cast<char*>(all.raw_data()) + example * one.num_bytes(), one.raw_data(),
                  static_cast<size_t>(one.num_bytes()));
    }
  }
  return answers;
}

absl::Status CheckAnswers(const Answers& answers, const AddExported& add) {
  ASSIGN_OR_RETURN(const auto device, compute::MakeDevice("cpu"));
  compute::Graph graph;
  compute::GraphRoots roots;
  std::map<std::string, Value> inputs;
  std::vector<Tensor> feeds;
  for (const auto& [name, tensor] : answers.inputs) {
    inputs[name] = graph.Input(name, tensor.type());
    roots.feeds.push_back(inputs[name]);
    feeds.push_back(tensor);
  }
  ASSIGN_OR_RETURN(const auto outputs, add(inputs, graph));
  for (const auto& [name, value] : outputs) roots.fetches.push_back(value);
  ASSIGN_OR_RETURN(const std::vector<Tensor> computed, compute::Evaluate(graph, roots, feeds, *device));
  size_t i = 0;
  for (const auto& [name, value] : outputs) {
    const auto wanted = answers.outputs.find(name);
    if (wanted == answers.outputs.end()) return absl::InternalError(absl::StrCat("the model has no output ", name));
    RETURN_IF_ERROR(Compare(name, computed[i++], wanted->second));
  }
  return absl::OkStatus();
}

}  // namespace official::exporting
