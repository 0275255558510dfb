#include "utils/export/tf_ops.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"

namespace official::exporting {

using compute::DType;
using compute::Tensor;

std::string TfOps::NameOf(absl::string_view op) const { return absl::StrCat(scope_, "/", op); }

TfOps::Node TfOps::Const(const Tensor& value) { return {graph_.AddConst(NameOf("Const"), value), value.dtype()}; }

TfOps::Node TfOps::Ints(std::vector<int32_t> values) {
  return Const(Tensor::Of<int32_t>({static_cast<int64_t>(values.size())}, values));
}

TfOps::Node TfOps::Variable(const std::string& name, const compute::TensorType& type) {
  std::string& read = variables_[name];
  if (read.empty()) read = graph_.AddVariable(name, type);
  return {read, type.dtype};
}

std::string TfOps::Visible(const Node& node) {
  if (node.in_loop == in_loop_) return node.name;
  OFFICIAL_CHECK(in_loop_) << node.name << " is of a loop";
  std::string& entered = entered_[node.name];
  if (entered.empty()) {
    entered = graph_.AddNode(
        "Enter", NameOf("Enter"), {node.name},
        {{"T", TypeAttr(node.dtype)}, {"frame_name", StringAttr(scope_)}, {"is_constant", BoolAttr(true)}});
  }
  return entered;
}

TfOps::Node TfOps::Op(absl::string_view op, const Nodes& inputs, Attrs attrs, std::optional<DType> result) {
  attrs.emplace_back("T", TypeAttr(inputs[0].dtype));
  return OpWith(op, inputs, attrs, result.value_or(inputs[0].dtype));
}

TfOps::Node TfOps::OpWith(absl::string_view op, const Nodes& inputs, const Attrs& attrs, DType result) {
  std::vector<std::string> names;
  for (const Node& input : inputs) names.push_back(Visible(input));
  return {graph_.AddNode(op, NameOf(op), names, attrs), result, in_loop_};
}

TfOps::Node TfOps::Cast(const Node& x, DType dtype) {
  return OpWith("Cast", {x}, {{"SrcT", TypeAttr(x.dtype)}, {"DstT", TypeAttr(dtype)}}, dtype);
}

TfOps::Node TfOps::MatMul(const Node& a, const Node& b, bool transpose_b) {
  return Op("MatMul", {a, b}, {{"transpose_b", BoolAttr(transpose_b)}});
}

TfOps::Node TfOps::OfRows(absl::string_view op, const Node& x) {
  // The first versions took matrices only.
  const Node shape = Op("Shape", {x}, {{"out_type", TypeAttr(DType::kInt32)}}, DType::kInt32);
  return Op("Reshape", {Op(op, {Reshape(x, {-1, Dim(x, -1)})}), shape}, {{"Tshape", TypeAttr(DType::kInt32)}});
}

TfOps::Node TfOps::Reduce(absl::string_view op, const Node& x, int32_t axis, bool keep_dims) {
  const Attrs attrs = {{"Tidx", TypeAttr(DType::kInt32)}, {"keep_dims", BoolAttr(keep_dims)}};
  return x.dtype == DType::kBool ? OpWith(op, {x, Ints({axis})}, attrs, DType::kBool)
                                 : Op(op, {x, Ints({axis})}, attrs);
}

TfOps::Node TfOps::Concat(const Nodes& inputs, int32_t axis) {
  Nodes with_axis = inputs;
  with_axis.push_back(Int(axis));
  return Op("ConcatV2", with_axis,
            {{"N", IntAttr(static_cast<int64_t>(inputs.size()))}, {"Tidx", TypeAttr(DType::kInt32)}});
}

TfOps::Node TfOps::Gather(const Node& x, const Node& indices) {
  return OpWith(
      "GatherV2", {x, indices, Int(0)},
      {{"Tparams", TypeAttr(x.dtype)}, {"Tindices", TypeAttr(indices.dtype)}, {"Taxis", TypeAttr(DType::kInt32)}},
      x.dtype);
}

TfOps::Node TfOps::Transpose(const Node& x, std::vector<int32_t> perm) {
  return Op("Transpose", {x, Ints(std::move(perm))}, {{"Tperm", TypeAttr(DType::kInt32)}});
}

TfOps::Node TfOps::ExpandDims(const Node& x, int32_t axis) {
  return Op("ExpandDims", {x, Int(axis)}, {{"Tdim", TypeAttr(DType::kInt32)}});
}

TfOps::Node TfOps::Range(const Node& n) {
  return OpWith("Range", {Int(0), n, Int(1)}, {{"Tidx", TypeAttr(DType::kInt32)}}, DType::kInt32);
}

TfOps::Node TfOps::ShapeOf(const std::vector<Size>& dims) {
  if (std::none_of(dims.begin(), dims.end(), [](const Size& size) { return size.node.has_value(); })) {
    std::vector<int32_t> numbers;
    for (const Size& size : dims) numbers.push_back(static_cast<int32_t>(size.number));
    return Ints(std::move(numbers));
  }
  Nodes sizes;
  for (const Size& size : dims) sizes.push_back(size.node ? *size.node : Int(static_cast<int32_t>(size.number)));
  return Op("Pack", sizes, {{"N", IntAttr(static_cast<int64_t>(sizes.size()))}});
}

TfOps::Node TfOps::Fill(const Node& value, const std::vector<Size>& dims) {
  return OpWith("Fill", {ShapeOf(dims), value}, {{"T", TypeAttr(value.dtype)}}, value.dtype);
}

TfOps::Node TfOps::Reshape(const Node& x, const std::vector<Size>& dims) {
  return Op("Reshape", {x, ShapeOf(dims)}, {{"Tshape", TypeAttr(DType::kInt32)}});
}

TfOps::Node TfOps::Dim(const Node& x, int32_t axis) {
  const Node shape = Op("Shape", {x}, {{"out_type", TypeAttr(DType::kInt32)}}, DType::kInt32);
  return Op("StridedSlice", {shape, Ints({axis}), Ints({axis + 1}), Ints({1})},
            {{"Index", TypeAttr(DType::kInt32)}, {"shrink_axis_mask", IntAttr(1)}});
}

std::pair<TfOps::Node, TfOps::Node> TfOps::TopK(const Node& x, int32_t k) {
  const Node values = Op("TopKV2", {x, Int(k)});
  return {values, {absl::StrCat(values.name, ":1"), DType::kInt32, values.in_loop}};
}

TfOps::Nodes TfOps::While(const Nodes& initial, const std::function<Node(const Nodes&)>& condition,
                          const std::function<Nodes(const Nodes&)>& body) {
  OFFICIAL_CHECK(!in_loop_) << "a loop in a loop";
  // Where a variable of the loop comes back is known by its name before it is there.
  const auto next_name = [&](size_t i) { return absl::StrCat(scope_, "/next/", i); };
  Nodes merged, entered, state, last;
  for (const Node& start : initial) {
    entered.push_back({graph_.AddNode("Enter", NameOf("Enter"), {start.name},
                                      {{"T", TypeAttr(start.dtype)}, {"frame_name", StringAttr(scope_)}}),
                       start.dtype, true});
  }
  in_loop_ = true;
  for (size_t i = 0; i < initial.size(); ++i) {
    merged.push_back(
        Op("Merge", {entered[i], {next_name(i), initial[i].dtype, true}}, {{"N", IntAttr(2)}}, initial[i].dtype));
  }
  const Node goes_on = OpWith("LoopCond", {condition(merged)}, {}, DType::kBool);
  for (const Node& variable : merged) {
    const Node branches = Op("Switch", {variable, goes_on});
    last.push_back(branches);
    state.push_back(Op("Identity", {{absl::StrCat(branches.name, ":1"), branches.dtype, true}}));
  }
  const Nodes next = body(state);
  OFFICIAL_CHECK(next.size() == initial.size());
  for (size_t i = 0; i < next.size(); ++i) {
    OFFICIAL_CHECK(next[i].dtype == initial[i].dtype) << "variable " << i << " of the loop";
    const std::string name =
        graph_.AddNode("NextIteration", next_name(i), {Visible(next[i])}, {{"T", TypeAttr(next[i].dtype)}});
    OFFICIAL_CHECK(name == next_name(i)) << "two loops in " << scope_;
  }
  for (Node& node : last) node = Op("Exit", {node});
  for (Node& node : last) node.in_loop = false;
  in_loop_ = false;
  entered_.clear();
  return last;
}

}  // namespace official::exporting
