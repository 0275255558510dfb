// Data sets: examples by number. An example's contents are a pure function of (data set, epoch, index), so any thread
// can make any example, and a pipeline can continue at any place without replaying what came before.
//
// records or arrays -> Map -> Shuffle -> Batches -> Prefetch -> the training loop
//                      \__ this file __/   \_ batch.h _/
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/random.h"

namespace official::data {

using Tensors = absl::InlinedVector<compute::Tensor, 2>;

// One tensor of a (possibly nested) structure. Nested structures are flattened in order and a leaf is named by its
// path: {"a": x, "b": {"c": y}} has the leaves "a" and "b/c". A structure that is a single tensor is one leaf named "".
struct Leaf {
  std::string name;
  compute::TensorType type;
  friend bool operator==(const Leaf&, const Leaf&) = default;
};

// The tensors of one example. Shapes have no batch dimension.
struct ElementSpec {
  std::vector<Leaf> features;
  std::vector<Leaf> labels;
  friend bool operator==(const ElementSpec&, const ElementSpec&) = default;
};

// The tensors of one example, in the order of its ElementSpec.
struct Example {
  Tensors features;
  Tensors labels;
};
// Returns an example of zeros.
Example MakeExample(const ElementSpec& spec);

class Dataset;
using DatasetPtr = std::shared_ptr<const Dataset>;

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const ElementSpec& spec() const = 0;
  // The number of examples in one epoch.
  virtual int64_t num_examples() const = 0;
  // Writes example `index` of `epoch`, 0 <= index < num_examples(), into the tensors of `out`, which have the types of
  // spec(). Several threads may call it at once.
  virtual absl::Status Read(int64_t epoch, int64_t index, const Example& out) const = 0;

  // The data set from which this one is computed; null for a source.
  virtual DatasetPtr input() const { return nullptr; }
  // Returns this data set, computed from another input with the same spec. A source has none, and returns null.
  virtual DatasetPtr WithInput(DatasetPtr input) const { return nullptr; }
};

// TensorSlices makes a data set whose example i is row i of every tensor: [n, ...] tensors make n examples of shape
// [...]. All tensors must have the same n.
struct NamedTensor {
  std::string name;
  compute::Tensor tensor;
};
DatasetPtr TensorSlices(std::vector<NamedTensor> features, std::vector<NamedTensor> labels);

// Computes one example from another: reads `in`, writes every tensor of `out`. `random` is a stream of its own for
// every (seed, epoch, index), so what it draws depends neither on threads nor on what was read before. Several threads
// may call it at once.
using MapFn = std::function<absl::Status(const Example& in, Random& random, const Example& out)>;

// Applies `fn` to every example; `spec` describes its output. The map runs in the threads that read: a pipeline with
// BatchOptions::num_threads maps that many examples at once and keeps their order.
DatasetPtr Map(DatasetPtr input, ElementSpec spec, uint64_t seed, MapFn fn);

// Gives every epoch another order: index i becomes the i-th number of a permutation of all examples that depends only
// on (seed, epoch). There is no shuffle buffer, so every order of the whole set is possible and nothing is held in
// memory.
DatasetPtr Shuffle(DatasetPtr input, uint64_t seed);

}  // namespace official::data
