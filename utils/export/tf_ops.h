// TensorFlow's ops and loops as functions, for graphs that do not come from a compute::Graph.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/graph_def_builder.h"

namespace official::exporting {

class TfOps {
 public:
  // A value of the graph.
  struct Node {
    std::string name;  // "x": output 0 of the node x, or "x:1"
    compute::DType dtype;
    bool in_loop = false;
  };
  // A dimension of a shape: a number, -1 for the remaining elements, or a scalar int32 of the graph.
  struct Size {
    Size(int64_t number) : number(number) {}
    Size(Node node) : node(std::move(node)) {}
    int64_t number = 0;
    std::optional<Node> node;
  };
  using Nodes = std::vector<Node>;
  using Attrs = GraphDefBuilder::Attrs;

  // Nodes other than variables are named scope/Op, scope/Op_1, ...
  TfOps(GraphDefBuilder& graph, std::string scope) : graph_(graph), scope_(std::move(scope)) {}

  Node Const(const compute::Tensor& value);
  Node Int(int32_t value) { return Const(compute::Tensor::Scalar(value)); }
  Node Float(float value) { return Const(compute::Tensor::Scalar(value)); }
  Node Ints(std::vector<int32_t> values);
  // Returns the value of a variable, which may be named several times.
  Node Variable(const std::string& name, const compute::TensorType& type);

  // Adds an op whose attribute T is the type of input 0; the result has that type, too, unless another is given.
  Node Op(absl::string_view op, const Nodes& inputs, Attrs attrs = {}, std::optional<compute::DType> result = {});
  // Adds an op with just these attributes.
  Node OpWith(absl::string_view op, const Nodes& inputs, const Attrs& attrs, compute::DType result);

  Node Add(const Node& a, const Node& b) { return Op("Add", {a, b}); }
  Node Sub(const Node& a, const Node& b) { return Op("Sub", {a, b}); }
  Node Mul(const Node& a, const Node& b) { return Op("Mul", {a, b}); }
  Node Cast(const Node& x, compute::DType dtype);
  Node MatMul(const Node& a, const Node& b, bool transpose_b = false);
  // Adds Softmax or LogSoftmax over the last dimension of x, which has any rank.
  Node OfRows(absl::string_view op, const Node& x);
  // Adds Mean, Min, Any or All over one axis.
  Node Reduce(absl::string_view op, const Node& x, int32_t axis, bool keep_dims = false);
  Node Concat(const Nodes& inputs, int32_t axis);
  // Returns rows of x, by their indices along dimension 0.
  Node Gather(const Node& x, const Node& indices);
  Node Transpose(const Node& x, std::vector<int32_t> perm);
  Node ExpandDims(const Node& x, int32_t axis);
  // Returns 0, 1, ..., n - 1 int32.
  Node Range(const Node& n);
  Node Fill(const Node& value, const std::vector<Size>& dims);
  Node Reshape(const Node& x, const std::vector<Size>& dims);
  // Returns the size of dimension `axis`, a scalar int32; a negative axis counts from the last.
  Node Dim(const Node& x, int32_t axis);
  // Returns the k largest of each row, in descending order, and their positions int32.
  std::pair<Node, Node> TopK(const Node& x, int32_t k);

  // Replaces the state, first `initial`, by body(state) while condition(state), a scalar bool, is true; returns the
  // last state. Nodes made outside may be used inside. The loop has the form of TensorFlow 1, which all versions run.
  // Loops do not nest.
  Nodes While(const Nodes& initial, const std::function<Node(const Nodes&)>& condition,
              const std::function<Nodes(const Nodes&)>& body);

 private:
  std::string NameOf(absl::string_view op) const;
  // Returns the name of an input for the nodes added now, in or outside of the loop.
  std::string Visible(const Node& node);
  Node ShapeOf(const std::vector<Size>& dims);

  GraphDefBuilder& graph_;
  const std::string scope_;
  bool in_loop_ = false;
  std::map<std::string, std::string> entered_;    // inputs of the loop, by their names outside
  std::map<std::string, std::string> variables_;  // names of the nodes that read them, by variable
};

}  // namespace official::exporting
