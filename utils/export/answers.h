// Answers of a trained model to a few examples, with which an export is compared before it is said to be written.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"
#include "utils/export/signature.h"
#include "utils/train/step.h"

namespace official::exporting {

using NamedTensors = std::map<std::string, compute::Tensor>;

struct Answers {
  NamedTensors inputs, outputs;  // by the names of the signature, [examples, ...]
  // Distances, by output: so far an element of it moves at most if the inputs move by a millionth.
  std::map<std::string, double> spread = {};
};

// The model that a signature is of, for one example.
struct TrainedModel {
  train::BuiltModel built;
  std::vector<std::string> inputs;  // the name in the signature of each of its feeds
};

// Computes a model on a few examples: numbers in [0, 1), of integers 0 and 1. `variables` has the values of the
// variables that it reads. Unimplemented if an output has no rows of examples; else errors of computing it.
absl::StatusOr<Answers> AnswersOf(const TrainedModel& model, const Signature& signature, const NamedTensors& variables);

// Adds the nodes of an exported graph and returns its outputs, both by the names of the signature.
using AddExported = std::function<absl::StatusOr<std::map<std::string, compute::Value>>(
    const std::map<std::string, compute::Value>& feeds, compute::Graph& graph)>;

// Computes the inputs of `answers` with an exported graph and compares. Internal, naming the output with both values,
// if one differs from the model's by more than 1e-4 of the largest and ten times the spread, or if more than a quarter
// of its integers are others: the classes of two almost equal probabilities may be exchanged. A number that is not
// finite has to be the same. Other errors are those of `add`.
absl::Status CheckAnswers(const Answers& answers, const AddExported& add);

}  // namespace official::exporting
