#include "utils/export/onnx_walk.h"

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/export/onnx_converter.h"
#include "utils/export/onnx_forms.h"
#include "utils/protos/tensor_conversion.h"

namespace official::exporting {

using compute::DType;
using compute::Tensor;
using tensorflow::NodeDef;

namespace {

std::string Normalized(absl::string_view tensor) { return std::string(absl::StripSuffix(tensor, ":0")); }

}  // namespace

OnnxWalk::OnnxWalk(const tensorflow::GraphDef& graph, const std::map<std::string, Tensor>& variables)
    : graph_(graph), variables_(variables) {
  for (const NodeDef& node : graph_.node()) nodes_[node.name()] = &node;
}

absl::StatusOr<onnx::GraphProto> OnnxWalk::Convert(const Signature& signature) {
  for (const auto& [name, tensor] : signature.outputs) taken_.insert(name);
  OnnxBuilder out(signature.key, taken_);
  Scope root{out, nullptr};
  root_ = scope_ = &root;
  for (const auto& [name, tensor] : signature.inputs) {
    root.values[kOwn][Normalized(tensor.name)] = {out.AddInput(name, tensor.dtype, tensor.dims), tensor.dtype,
                                                  static_cast<int>(tensor.dims.size())};
  }
  for (const auto& [name, tensor] : signature.outputs) {
    ASSIGN_OR_RETURN(const OnnxValue value, Get(tensor.name));
    out.AddOutput(name, value.name, value.dtype, tensor.dims);
  }
  return std::move(out).Finish();
}

const NodeDef& OnnxWalk::NodeOf(absl::string_view tensor) const {
  const auto found = nodes_.find(tensor.substr(0, tensor.find(':')));
  OFFICIAL_CHECK(found != nodes_.end()) << "there is no node for " << tensor;
  return *found->second;
}

const NodeDef& OnnxWalk::Producer(absl::string_view tensor) const {
  const NodeDef* node = &NodeOf(tensor);
  while (node->op() == "Enter" && BoolAttrOf(*node, "is_constant")) node = &NodeOf(node->input(0));
  return *node;
}

absl::StatusOr<Tensor> OnnxWalk::ConstOf(const NodeDef& user, int input) const {
  const NodeDef& node = Producer(user.input(input));
  if (node.op() != "Const") return NoOnnxForm(user, absl::StrCat(": its input ", input, " is not a constant"));
  return TensorOf(node);
}

absl::StatusOr<OnnxWalk::Ints> OnnxWalk::IntsOf(const NodeDef& user, int input) const {
  ASSIGN_OR_RETURN(const Tensor tensor, ConstOf(user, input));
  const Tensor wide = tensor.CastTo(DType::kInt64);
  const absl::Span<int64_t> values = wide.flat<int64_t>();
  return Ints(values.begin(), values.end());
}

absl::StatusOr<int> OnnxWalk::RankOf(const NodeDef& user, int shape) {
  const NodeDef& node = Producer(user.input(shape));
  if (node.op() == "Pack") return node.input_size();
  if (node.op() == "Shape") {
    ASSIGN_OR_RETURN(const OnnxValue of, Get(node.input(0)));
    return of.rank;
  }
  ASSIGN_OR_RETURN(const Ints dims, IntsOf(user, shape));
  return static_cast<int>(dims.size());
}

const OnnxValue* OnnxWalk::Find(const std::string& tensor, OnnxLayout layout) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->around) {
    const auto found = scope->values[layout].find(tensor);
    if (found != scope->values[layout].end()) return &found->second;
  }
  return nullptr;
}

absl::Status OnnxWalk::Ensure(const std::string& tensor) {
  if (Find(tensor, kOwn) != nullptr || Find(tensor, kChannelsFirst) != nullptr) return absl::OkStatus();
  const NodeDef& node = NodeOf(tensor);
  const OnnxForm* const form = OnnxFormOf(node.op());
  if (form == nullptr) return NoOnnxForm(node, "");
  // Constants are no part of a loop.
  const bool is_constant = node.op() == "Const" || node.op() == "ReadVariableOp";
  Scope& scope = is_constant ? *root_ : *scope_;
  ASSIGN_OR_RETURN(const OnnxValue value, In(scope, [&] { return form->function(*this, node, form->op); }));
  scope.values[value.layout][node.name()] = value;
  if (Find(tensor, value.layout) != nullptr) return absl::OkStatus();
  return NoOnnxForm(node, absl::StrCat(" for its output ", tensor));
}

OnnxWalk::Result OnnxWalk::GetAsIs(absl::string_view name) {
  const std::string tensor = Normalized(name);
  RETURN_IF_ERROR(Ensure(tensor));
  const OnnxValue* const images = Find(tensor, kChannelsFirst);
  return images != nullptr ? *images : *Find(tensor, kOwn);
}

OnnxWalk::Result OnnxWalk::Get(absl::string_view name, OnnxLayout layout) {
  const std::string tensor = Normalized(name);
  ASSIGN_OR_RETURN(const OnnxValue made, GetAsIs(tensor));
  if (made.rank != kImageRank) return made;  // no image
  if (const OnnxValue* value = Find(tensor, layout)) return *value;
  const bool to_own = layout == kOwn;
  OnnxValue value =
      Permuted(absl::StrCat(tensor, to_own ? "/NHWC" : "/NCHW"), made, to_own ? Ints{0, 2, 3, 1} : Ints{0, 3, 1, 2});
  value.layout = layout;
  Set(tensor, value);
  return value;
}

absl::StatusOr<OnnxValues> OnnxWalk::GetInputs(const NodeDef& node, int count) {
  OnnxValues values;
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(OnnxValue value, Get(node.input(i)));
    values.push_back(std::move(value));
  }
  return values;
}

OnnxValue OnnxWalk::Add(const std::string& name, absl::string_view op, const OnnxValues& inputs,
                        OnnxBuilder::Attrs attrs, DType dtype, int rank) {
  std::vector<std::string> names;
  for (const OnnxValue& input : inputs) names.push_back(input.name);
  return {out().AddNode(op, name, names, std::move(attrs)), dtype, rank};
}

OnnxValue OnnxWalk::CastTo(const std::string& name, const OnnxValue& x, DType dtype) {
  return Add(name, "Cast", {x}, {OnnxInt("to", ToOnnxType(dtype))}, dtype, x.rank);
}

OnnxValue OnnxWalk::Permuted(const std::string& name, const OnnxValue& x, const Ints& perm) {
  return Add(name, "Transpose", {x}, {OnnxInts("perm", perm)}, x.dtype, x.rank);
}

OnnxValue OnnxWalk::Int64s(compute::Shape shape, const Ints& values) {
  std::string& name = int64s_[{Ints(shape.dims().begin(), shape.dims().end()), values}];
  const int rank = shape.rank();
  if (name.empty()) {
    name = root_->out.AddInitializer(absl::StrCat("int64/", absl::StrJoin(values, "_")),
                                     Tensor::Of<int64_t>(std::move(shape), values));
  }
  return {name, DType::kInt64, rank};
}

const Tensor& OnnxWalk::ValueOf(const std::string& variable) const {
  const auto found = variables_.find(variable);
  OFFICIAL_CHECK(found != variables_.end()) << variable << " needs a value";
  return found->second;
}

OnnxWalk::Result OnnxWalk::Constant(const NodeDef& node, absl::string_view) {
  ASSIGN_OR_RETURN(const Tensor value, TensorOf(node));
  return OnnxValue{root_->out.AddInitializer(node.name(), value), value.dtype(), value.shape().rank()};
}

OnnxWalk::Result OnnxWalk::Variable(const NodeDef& node, absl::string_view) {
  const Tensor& value = ValueOf(node.input(0));
  return OnnxValue{root_->out.AddInitializer(node.input(0), value), value.dtype(), value.shape().rank()};
}

OnnxWalk::Result OnnxWalk::Filters(const NodeDef& convolution, int input) {
  const NodeDef& read = Producer(convolution.input(input));
  if (read.op() != "ReadVariableOp") return NoOnnxForm(convolution, ": its filters are not a variable");
  const std::string& variable = read.input(0);
  OnnxValue& filters = filters_[variable];
  if (filters.name.empty()) {
    const std::string name = absl::StrCat(variable, kOnnxFilters);
    filters = {root_->out.AddInitializer(name, ToOnnxFilters(ValueOf(variable))), DType::kFloat32, kImageRank};
  }
  return filters;
}

OnnxWalk::Result OnnxWalk::Enter(const NodeDef& node, absl::string_view) {
  if (!BoolAttrOf(node, "is_constant")) return NoOnnxForm(node, ": it is not of a loop that TfOps makes");
  return In(*scope_->around, [&] { return Get(node.input(0)); });
}

std::vector<OnnxWalk::LoopVariable> OnnxWalk::VariablesOf(const std::string& condition) const {
  std::vector<LoopVariable> variables;
  for (const NodeDef& node : graph_.node()) {
    if (node.op() == "Switch" && node.input(1) == condition) variables.push_back({&NodeOf(node.input(0)), &node});
    if (node.op() != "Exit") continue;
    for (LoopVariable& variable : variables) {
      if (variable.branches->name() == node.input(0)) variable.exit = node.name();
    }
  }
  return variables;
}

OnnxWalk::Result OnnxWalk::ConditionOf(const std::string& condition, const std::vector<LoopVariable>& variables,
                                       const OnnxValues& values) {
  Scope scope{out(), scope_};
  for (size_t i = 0; i < variables.size(); ++i) scope.values[kOwn][variables[i].merge->name()] = values[i];
  return In(scope, [&] { return Get(NodeOf(condition).input(0)); });
}

absl::StatusOr<OnnxValues> OnnxWalk::GetMerged(const std::vector<LoopVariable>& variables, int input) {
  OnnxValues values;
  for (const LoopVariable& variable : variables) {
    ASSIGN_OR_RETURN(OnnxValue value, Get(NodeOf(variable.merge->input(input)).input(0)));
    values.push_back(std::move(value));
  }
  return values;
}

// TensorFlow decides before each iteration whether it takes place. So does ONNX, but by a value from outside, and by
// one that the iteration before has made.
OnnxWalk::Result OnnxWalk::Loop(const NodeDef& exit, absl::string_view op) {
  const std::string condition = NodeOf(exit.input(0)).input(1);
  const std::vector<LoopVariable> variables = VariablesOf(condition);
  ASSIGN_OR_RETURN(const OnnxValues initial, GetMerged(variables, 0));
  ASSIGN_OR_RETURN(const OnnxValue first, ConditionOf(condition, variables, initial));

  OnnxBuilder body(absl::StrCat(exit.name(), "/body"), taken_);
  Scope inside{body, scope_};
  body.AddInput(absl::StrCat(exit.name(), "/iteration"), DType::kInt64, Ints{});
  body.AddInput(absl::StrCat(exit.name(), "/condition"), DType::kBool, Ints{});
  for (size_t i = 0; i < variables.size(); ++i) {
    OnnxValue value = initial[i];
    value.name = body.AddInput(variables[i].merge->name(), value.dtype);
    inside.values[kOwn][absl::StrCat(variables[i].branches->name(), ":1")] = value;
  }
  ASSIGN_OR_RETURN(const OnnxValues next, In(inside, [&] { return GetMerged(variables, 1); }));
  ASSIGN_OR_RETURN(const OnnxValue again, In(inside, [&] { return ConditionOf(condition, variables, next); }));
  body.AddOutput(body.Unique(condition), again.name, DType::kBool, Ints{});
  for (size_t i = 0; i < variables.size(); ++i) {
    body.AddOutput(body.Unique(variables[i].merge->input(1)), next[i].name, next[i].dtype);
  }

  std::vector<std::string> inputs = {"", first.name};  // "": no limit to the iterations
  for (const OnnxValue& value : initial) inputs.push_back(value.name);
  const std::vector<std::string> last =
      out().AddNodeOf(variables.size(), op, exit.name(), inputs, {OnnxGraph("body", std::move(body).Finish())});
  OnnxValue result;
  for (size_t i = 0; i < variables.size(); ++i) {
    OnnxValue value = initial[i];
    value.name = last[i];
    Set(variables[i].exit, value);
    if (variables[i].exit == exit.name()) result = value;
  }
  return result;
}

}  // namespace official::exporting
