// Graph: the result of a model function. A Value is one output of a Node; its dtype and shape are known as soon as it
// exists. Building computes no values.
//
// Errors stick: the first op whose inputs do not fit leaves its message in Graph::status(), and every Value made from
// it is invalid, so that model functions compose ops without checking each. Compiling a failed graph returns its
// status.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/attrs.h"
#include "utils/compute/graph/initializer.h"
#include "utils/compute/graph/op_name.h"

namespace official::compute::op {

inline constexpr OpName Input("Input");
inline constexpr OpName Variable("Variable");
inline constexpr OpName Constant("Constant");

}  // namespace official::compute::op

namespace official::compute {

class Graph;
class Node;
struct OpDef;

class Value {
 public:
  Value() = default;
  Value(Node* node, int index) : node_(node), index_(index) {}

  // False for the result of an op that failed.
  explicit operator bool() const { return node_ != nullptr; }
  Node* node() const { return node_; }
  int index() const { return index_; }
  Graph* graph() const;
  // The dtype and shape; a float32 scalar for an invalid value.
  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }

  friend bool operator==(const Value& a, const Value& b) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Value& v) {
    return H::combine(std::move(h), v.node_, v.index_);
  }

 private:
  Node* node_ = nullptr;
  int index_ = 0;
};

class Node {
 public:
  // The position in the order of construction, which is the order of execution.
  int id() const { return id_; }
  const OpDef& op() const { return *op_; }
  bool Is(OpName op) const;
  // The name, unique in the graph; that of an Input or Variable is the name it was given.
  const std::string& name() const { return name_; }
  absl::Span<const Value> inputs() const { return inputs_; }
  const Value& input(int i) const { return inputs_[i]; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  absl::Span<const TensorType> output_types() const { return output_types_; }
  int num_outputs() const { return static_cast<int>(output_types_.size()); }
  Value output(int i) const { return Value(const_cast<Node*>(this), i); }
  const Attrs& attrs() const { return attrs_; }
  Graph& graph() const { return *graph_; }

 private:
  friend class Graph;
  int id_ = 0;
  const OpDef* op_ = nullptr;
  Graph* graph_ = nullptr;
  std::string name_;
  std::vector<Value> inputs_;
  std::vector<TensorType> output_types_;
  Attrs attrs_;
};

// A variable as the model declares it. Its value lives in a VariableStore (utils/compute/program).
struct VariableSpec {
  std::string name;  // TensorFlow's name, for example "conv2d/kernel"
  TensorType type;
  Initializer initializer;
  bool trainable = true;
  bool per_device = false;  // each device has its own, even if they share memory
};

// The part of a training step that a graph computes.
struct StepContext {
  int num_replicas = 1;
  Value weight = {};  // float32 scalar, this replica's share of the examples; invalid with one replica
  // True if each update must change all rows of a table at once, since other programs read or change the variables
  // before the next one: between micro-batches, or for averages of the variables.
  bool needs_whole_updates = false;
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // The number of parts, a power of two, in which kernels that sum over the batch in parts do so; they then add the
  // parts by halves (core/batch_parts.h). It must be set before nodes are added.
  int batch_parts() const { return batch_parts_; }
  void set_batch_parts(int parts) { batch_parts_ = parts; }

  // The functions that add the nodes of training, such as a model's, read it, so it must be set before they are called.
  // Rewriting (rewrite.h) does not keep it.
  const StepContext& step_context() const { return step_context_; }
  void set_step_context(const StepContext& context) { step_context_ = context; }

  // A value that the caller hands to every run.
  Value Input(absl::string_view name, TensorType type);
  // A value that outlives runs; ops that write it (optimizers, moving averages) do so in place. The same name gives the
  // same variable; its type must not differ.
  Value Variable(VariableSpec spec);
  Value Constant(Tensor value);

  // Adds a node of the registered op `op`. Returns nullptr (and sets status()) if the op is unknown, an input is
  // invalid, the inputs do not fit the op, or a size of a result would be below 0 or its bytes beyond int64.
  Node* AddNode(OpName op, absl::Span<const Value> inputs, Attrs attrs = {}, absl::string_view name = "");

  const absl::Status& status() const { return status_; }
  // Records an error from code that composes ops (such as a layer given a wrong rank); the first one is kept.
  void Fail(absl::Status status);

  const std::deque<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  const std::vector<VariableSpec>& variables() const { return variables_; }
  // The spec of a variable's node.
  const VariableSpec& variable(const Node& node) const;

 private:
  int batch_parts_ = 1;
  std::string UniqueName(absl::string_view base);

  std::deque<std::unique_ptr<Node>> nodes_;
  std::vector<VariableSpec> variables_;
  absl::flat_hash_map<std::string, Value> variable_values_;
  absl::flat_hash_map<std::string, int> variable_index_;
  absl::flat_hash_map<std::string, int> name_counts_;
  absl::Status status_;
  StepContext step_context_;
};

// Adds a node to the graph of the inputs, for the functions that are an op's C++ API (Value Relu(Value x)). Invalid
// inputs give an invalid result.
Node* ApplyNode(OpName op, absl::Span<const Value> inputs, Attrs attrs = {});
// Output 0 of ApplyNode.
Value Apply(OpName op, absl::Span<const Value> inputs, Attrs attrs = {});
// Output `i` of a node that may be nullptr.
inline Value OutputOf(Node* node, int i) { return node == nullptr ? Value() : node->output(i); }

}  // namespace official::compute
