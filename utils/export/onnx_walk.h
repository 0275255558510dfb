// OnnxWalk: the walk from the outputs of a TensorFlow graph to its inputs that makes the nodes of an ONNX graph. What
// an op becomes is in onnx_forms.h.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/export/graph_def_builder.h"
#include "utils/export/onnx_builder.h"
#include "utils/export/signature.h"
#include "utils/protos/graph.pb.h"
#include "utils/protos/onnx.pb.h"

namespace official::exporting {

// OnnxLayout: kOwn is TensorFlow's, of images [N, H, W, C]; kChannelsFirst, of images only, is [N, C, H, W], as ONNX
// wants them.
enum OnnxLayout { kOwn, kChannelsFirst };
inline constexpr int kImageRank = 4;

// A value of the ONNX graph.
struct OnnxValue {
  std::string name;
  compute::DType dtype = compute::DType::kFloat32;
  int rank = 0;
  OnnxLayout layout = kOwn;
};
using OnnxValues = std::vector<OnnxValue>;

// Tensors of the TensorFlow graph are named as inputs of its nodes are: "x", "x:0" or "x:1".
class OnnxWalk {
 public:
  using Ints = std::vector<int64_t>;
  using Result = absl::StatusOr<OnnxValue>;

  // The arguments must outlive the walk.
  OnnxWalk(const tensorflow::GraphDef& graph, const std::map<std::string, compute::Tensor>& variables);
  OnnxWalk(const OnnxWalk&) = delete;
  OnnxWalk& operator=(const OnnxWalk&) = delete;

  // Returns the graph that computes the outputs of the signature. To be called once.
  absl::StatusOr<onnx::GraphProto> Convert(const Signature& signature);

  // The following are for what makes the nodes of an op.

  // Returns what a tensor became, converting its node if need be; images are transposed once.
  Result Get(absl::string_view tensor, OnnxLayout layout = kOwn);
  // Returns it as [N, C, H, W] if it is there in that layout, else as it is.
  Result GetAsIs(absl::string_view tensor);
  // Returns the first `count` inputs of a node.
  absl::StatusOr<OnnxValues> GetInputs(const tensorflow::NodeDef& node, int count);
  // Says what a further output of the present node became.
  void Set(const std::string& tensor, const OnnxValue& value) { scope_->values[value.layout][tensor] = value; }

  // Adds a node with one output.
  OnnxValue Add(const std::string& name, absl::string_view op, const OnnxValues& inputs, OnnxBuilder::Attrs attrs,
                compute::DType dtype, int rank);
  OnnxValue CastTo(const std::string& name, const OnnxValue& x, compute::DType dtype);
  OnnxValue Permuted(const std::string& name, const OnnxValue& x, const Ints& perm);
  // Return constants, int64 [n] and a scalar.
  OnnxValue Int64s(const Ints& values) { return Int64s({static_cast<int64_t>(values.size())}, values); }
  OnnxValue Int64(int64_t value) { return Int64s({}, {value}); }
  // Returns the variable that is an input of a convolution as [out, in, height, width].
  Result Filters(const tensorflow::NodeDef& convolution, int input);
  // Returns the graph that nodes are added to now: the model's own, or the body of a loop.
  OnnxBuilder& out() { return scope_->out; }

  // Returns the node of the TensorFlow graph that a tensor is an output of; of what a loop has from outside, that
  // there.
  const tensorflow::NodeDef& Producer(absl::string_view tensor) const;
  // Return the values of an input that is a constant; Unimplemented if it is none.
  absl::StatusOr<compute::Tensor> ConstOf(const tensorflow::NodeDef& user, int input) const;
  absl::StatusOr<Ints> IntsOf(const tensorflow::NodeDef& user, int input) const;
  // Returns how many dimensions an input that is a shape has.
  absl::StatusOr<int> RankOf(const tensorflow::NodeDef& user, int shape);

  // Make the nodes of constants, variables and loops.
  Result Constant(const tensorflow::NodeDef& node, absl::string_view op);
  Result Variable(const tensorflow::NodeDef& node, absl::string_view op);
  Result Enter(const tensorflow::NodeDef& node, absl::string_view op);
  Result Loop(const tensorflow::NodeDef& exit, absl::string_view op);

 private:
  // A graph of the model, its own or the body of a loop; or, in either, a place where a loop has other values.
  struct Scope {
    OnnxBuilder& out;
    Scope* around;
    std::map<std::string, OnnxValue> values[2] = {};  // of TensorFlow's tensors, by OnnxLayout
  };
  // A variable of a loop: the node where its value comes in, the one where it goes on or out, and the name of the last.
  struct LoopVariable {
    const tensorflow::NodeDef *merge, *branches;
    std::string exit = "";
  };

  // Converts the node of a tensor if that has no value yet.
  absl::Status Ensure(const std::string& tensor);
  const OnnxValue* Find(const std::string& tensor, OnnxLayout layout) const;
  OnnxValue Int64s(compute::Shape shape, const Ints& values);
  const tensorflow::NodeDef& NodeOf(absl::string_view tensor) const;
  const compute::Tensor& ValueOf(const std::string& variable) const;
  std::vector<LoopVariable> VariablesOf(const std::string& condition) const;
  // The condition of a loop, whose variables have these values.
  Result ConditionOf(const std::string& condition, const std::vector<LoopVariable>& variables,
                     const OnnxValues& values);
  // Returns the values that come into a loop at first (input 0 of the Merge nodes), or from one iteration to the next
  // (input 1).
  absl::StatusOr<OnnxValues> GetMerged(const std::vector<LoopVariable>& variables, int input);

  // Calls a function with another scope.
  template <typename F>
  auto In(Scope& scope, const F& function) {
    Scope* const before = std::exchange(scope_, &scope);
    auto result = function();
    scope_ = before;
    return result;
  }

  const tensorflow::GraphDef& graph_;
  const std::map<std::string, compute::Tensor>& variables_;
  std::map<std::string, const tensorflow::NodeDef*, std::less<>> nodes_;
  std::set<std::string> taken_;
  std::map<std::pair<Ints, Ints>, std::string> int64s_;  // by shape and values
  std::map<std::string, OnnxValue> filters_;             // by variable
  Scope* root_ = nullptr;
  Scope* scope_ = nullptr;
};

}  // namespace official::exporting
