// Builds a TensorFlow graph node by node.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/protos/graph.pb.h"

namespace official::exporting {

// Values of node attributes.
tensorflow::AttrValue TypeAttr(compute::DType dtype);
tensorflow::AttrValue ShapeAttr(absl::Span<const int64_t> dims);  // -1: unknown size
tensorflow::AttrValue IntAttr(int64_t value);
tensorflow::AttrValue IntsAttr(absl::Span<const int64_t> values);
tensorflow::AttrValue FloatAttr(float value);
tensorflow::AttrValue BoolAttr(bool value);
tensorflow::AttrValue StringAttr(absl::string_view value);

class GraphDefBuilder {
 public:
  using Attrs = std::vector<std::pair<std::string, tensorflow::AttrValue>>;

  struct Variable {
    std::string name;  // name in the checkpoint, and of the node that is its handle
    compute::TensorType type;
  };

  // Each function that adds a node returns its name: `name`, or as in TensorFlow name_1, name_2, ... if that is taken.

  // Adds any node. `inputs` are names of nodes ("x": its output 0), outputs ("x:1") or, last, controls ("^x").
  // Attributes that have a default in TensorFlow may be left out.
  std::string AddNode(absl::string_view op, const std::string& name, absl::Span<const std::string> inputs,
                      const Attrs& attrs);
  std::string AddPlaceholder(const std::string& name, compute::DType dtype, absl::Span<const int64_t> dims);
  std::string AddConst(const std::string& name, const compute::Tensor& value);
  // Add a tensor of strings, of shape [n] or a scalar.
  std::string AddStringsConst(const std::string& name, absl::Span<const std::string> values);
  std::string AddStringConst(const std::string& name, const std::string& value);
  // Adds the handle of a variable and a node that reads it, whose name is returned. The variable's name must be one
  // that no other node has.
  std::string AddVariable(const std::string& name, const compute::TensorType& type);

  const tensorflow::GraphDef& graph_def() const { return graph_def_; }
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  std::string AddConst(const std::string& name, tensorflow::TensorProto value);

  tensorflow::GraphDef graph_def_;
  std::set<std::string> names_;
  std::vector<Variable> variables_;
};

}  // namespace official::exporting
