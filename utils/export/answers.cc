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
// What rounding does to the outputs is like what a small move of the inputs does: little, but for a network that has
// diverged, or has hardly begun.
constexpr float kMove = 1e-6F;
constexpr double kSpreads = 10;

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

// The largest of the numbers that are finite, by their size; 0 if there is none.
double LargestOf(absl::Span<const double> numbers) {
  double largest = 0;
  for (const double number : numbers) {
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  }
  return largest;
}

bool AreEqual(double exported, double model, double tolerance) {
  if (!std::isfinite(model)) return std::isnan(model) ? std::isnan(exported) : exported == model;
  return std::abs(exported - model) <= tolerance;
}

// `spread` is that of Answers.
absl::Status Compare(const std::string& name, const Tensor& exported, const Tensor& model, double spread) {
  if (exported.type() != model.type()) {
    return absl::InternalError(absl::StrCat("the output ", name, " of the exported model is ",
                                            exported.type().ToString(), ", and should be ", model.type().ToString()));
  }
  const Tensor a = exported.CastTo(DType::kFloat64), b = model.CastTo(DType::kFloat64);
  const absl::Span<double> x = a.flat<double>(), y = b.flat<double>();
  const bool is_floating = compute::IsFloating(model.dtype());
  const double tolerance = is_floating ? kTolerance * LargestOf(y) + kSpreads * spread : 0;
  const int64_t most_others = is_floating ? 0 : model.num_elements() / kExamples;
  int64_t others = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!AreEqual(x[i], y[i], tolerance) && ++others > most_others) {
      return Differs(name, static_cast<int64_t>(i), x[i], y[i]);
    }
  }
  return absl::OkStatus();
}

// Computes the outputs of a model for the examples of its inputs, each by itself.
absl::StatusOr<NamedTensors> OutputsOf(const TrainedModel& model, compute::Program& program,
                                       const NamedTensors& inputs) {
  const compute::GraphRoots& roots = model.built.roots;
  NamedTensors outputs;
  for (int64_t example = 0; example < kExamples; ++example) {
    std::vector<Tensor> feeds;
    for (size_t f = 0; f < model.inputs.size(); ++f) {
      feeds.push_back(ExampleOf(inputs.at(model.inputs[f]), example, roots.feeds[f].type()));
    }
    RETURN_IF_ERROR(program.Run(feeds));
    for (size_t i = 0; i < roots.fetches.size(); ++i) {
      const std::string& name = model.built.fetch_names[i];
      ASSIGN_OR_RETURN(const Tensor one, program.Fetch(static_cast<int>(i)));
      std::vector<int64_t> dims(one.shape().dims().begin(), one.shape().dims().end());
      if (dims.empty()) return absl::UnimplementedError(absl::StrCat("its output ", name, " has no rows of examples"));
      dims[0] = kExamples;
      Tensor& all = outputs.try_emplace(name, one.dtype(), compute::Shape(dims)).first->second;
      std::memcpy(static_cast<char*>(all.raw_data()) + example * one.num_bytes(), one.raw_data(),
                  static_cast<size_t>(one.num_bytes()));
    }
  }
  return outputs;
}

// The inputs, of which each float is moved a little.
NamedTensors Moved(const NamedTensors& inputs) {
  NamedTensors moved;
  for (const auto& [name, tensor] : inputs) {
    Tensor& copy = moved.emplace(name, tensor.Clone()).first->second;
    if (copy.dtype() != DType::kFloat32) continue;
    for (float& number : copy.flat<float>()) number *= 1 + kMove;
  }
  return moved;
}

double LargestDifference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.CastTo(DType::kFloat64), y = b.CastTo(DType::kFloat64);
  std::vector<double> differences;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    differences.push_back(x.flat<double>()[i] - y.flat<double>()[i]);
  }
  return LargestOf(differences);
}

}  // namespace

absl::StatusOr<Answers> AnswersOf(const TrainedModel& model, const Signature& signature,
                                  const NamedTensors& variables) {
  ASSIGN_OR_RETURN(const auto device, compute::MakeDevice("cpu"));
  compute::VariableStore store(*device);
  const compute::Graph& graph = *model.built.graph;
  RETURN_IF_ERROR(store.Create(graph, /*seed=*/0));
  for (const compute::VariableSpec& spec : graph.variables()) {
    const auto value = variables.find(spec.name);
    if (value != variables.end()) RETURN_IF_ERROR(store.Write(spec.name, value->second));
  }
  ASSIGN_OR_RETURN(const auto program, compute::Program::Compile(graph, model.built.roots, *device, store));
  Answers answers;
  for (size_t f = 0; f < model.inputs.size(); ++f) {
    answers.inputs[model.inputs[f]] = MadeUp(signature.inputs.at(model.inputs[f]), f);
  }
  ASSIGN_OR_RETURN(answers.outputs, OutputsOf(model, *program, answers.inputs));
  ASSIGN_OR_RETURN(const NamedTensors moved, OutputsOf(model, *program, Moved(answers.inputs)));
  for (const auto& [name, output] : answers.outputs) {
    answers.spread[name] = LargestDifference(output, moved.at(name));
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
    const auto spread = answers.spread.find(name);
    RETURN_IF_ERROR(Compare(name, computed[i++], wanted->second, spread == answers.spread.end() ? 0 : spread->second));
  }
  return absl::OkStatus();
}

}  // namespace official::exporting
