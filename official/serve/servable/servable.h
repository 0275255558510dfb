// Servable: a trained model as requests see it: named inputs and outputs, and a function of batches. The folder of each
// model has one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"

namespace official::serve {

// An input or output of a signature.
struct TensorInfo {
  std::string name;
  std::optional<compute::DType> dtype;  // unset: text or bytes
  std::vector<int64_t> dims;            // of one example; -1: any number

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

struct Signature {
  std::string name;  // that of the exported model; "serving_default" always means it, too
  std::vector<TensorInfo> inputs, outputs;

  friend bool operator==(const Signature&, const Signature&) = default;
};

// A tensor of the dtype and dims of its TensorInfo, or text or bytes.
using Value = std::variant<compute::Tensor, std::string>;
// The values of one example: of all inputs, or of all outputs, in the order of the signature.
using Values = std::vector<Value>;

class Servable {
 public:
  virtual ~Servable() = default;

  virtual const Signature& signature() const = 0;
  // The global step of the checkpoint: the version of the model.
  virtual int64_t version() const = 0;

  // Returns an example as Run takes it. `example` has the types and shapes of the signature, except that an input of
  // numbers may be bytes, which the client sent as base64: those of a file, if the model knows how to read one.
  // InvalidArgument for an example that cannot be computed. May be called by several threads, also during a Run.
  virtual absl::StatusOr<Values> Prepare(Values example) const = 0;

  // Returns the outputs of each example, in their order. Called by one thread at a time.
  virtual absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> examples) = 0;
};

}  // namespace official::serve
