#include "utils/compute/ops/elementwise/elementwise.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/op_table.h"

namespace official::compute {
namespace {

bool Contains(const std::vector<DType>& dtypes, DType dtype) {
  return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
}

// The shape of all inputs broadcast together.
absl::StatusOr<Shape> BroadcastInputs(const InferContext& c) {
  Shape shape = c.shape(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    absl::StatusOr<Shape> both = BroadcastShape(shape, c.shape(i));
    if (!both.ok()) return c.Error(both.status().message());
    shape = *std::move(both);
  }
  return shape;
}

absl::StatusOr<DType> OutputType(const InferContext& c, const ElementwiseOp& op) {
  if (c.op == op::Cast) {
    const DType dtype = c.attrs.Get<DType>("dtype");
    if (!Contains(op.key_types, dtype)) return c.Error(absl::StrCat("cannot cast to ", DTypeName(dtype)));
    return dtype;
  }
  if (c.op == op::Select) {
    if (c.dtype(select::kIfTrue) != c.dtype(select::kIfFalse)) return c.Error("needs two alternatives of one type");
    if (!Contains(FindElementwiseOp(op::Cast)->key_types, c.dtype(select::kIfTrue))) {
      return c.Error(absl::StrCat("takes no ", DTypeName(c.dtype(select::kIfTrue))));
    }
    return c.dtype(select::kIfTrue);
  }
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.dtype(i) != c.dtype(0)) return c.Error("needs inputs of one type");
  }
  const bool compares = c.op == op::Equal || c.op == op::NotEqual || c.op == op::Less || c.op == op::LessEqual ||
                        c.op == op::Greater || c.op == op::GreaterEqual;
  return compares ? DType::kBool : c.dtype(0);
}

absl::StatusOr<std::vector<TensorType>> InferElementwise(const InferContext& c) {
  const ElementwiseOp& op = *FindElementwiseOp(c.op);
  if (c.num_inputs() != op.num_inputs) {
    return c.Error(absl::StrCat("needs ", op.num_inputs, op.num_inputs == 1 ? " input" : " inputs"));
  }
  if (!Contains(op.key_types, c.dtype(0))) return c.Error(absl::StrCat("takes no ", DTypeName(c.dtype(0))));
  ASSIGN_OR_RETURN(const DType dtype, OutputType(c, op));
  if (c.op == op::BiasAdd &&
      (c.shape(bias_add::kX).rank() < 1 || c.shape(bias_add::kBias) != Shape{c.shape(bias_add::kX).dim(-1)})) {
    return c.Error("needs one bias for each element of the last dimension");
  }
  ASSIGN_OR_RETURN(Shape shape, BroadcastInputs(c));
  if (c.op == op::BroadcastTo) {
    const Shape wanted(c.attrs.GetInts("shape"));
    const absl::StatusOr<Shape> both = BroadcastShape(shape, wanted);
    if (!both.ok() || *both != wanted) return c.Error(absl::StrCat("cannot broadcast to ", wanted.ToString()));
    shape = wanted;
  }
  return std::vector<TensorType>{{dtype, std::move(shape)}};
}

const bool registered = [] {
  for (const ElementwiseOp& op : ElementwiseOps()) {
    OpDef def{.name = op.name, .infer = InferElementwise, .broadcasts = true, .tolerance = {2e-6, 2e-2}};
    if (HasElementwiseGradient(op.name)) def.gradient = ElementwiseGradient;
    RegisterOp(std::move(def));
  }
  return true;
}();

}  // namespace

Value Neg(Value x) { return Apply(op::Neg, {x}); }
Value Abs(Value x) { return Apply(op::Abs, {x}); }
Value Sign(Value x) { return Apply(op::Sign, {x}); }
Value Square(Value x) { return Apply(op::Square, {x}); }
Value Sqrt(Value x) { return Apply(op::Sqrt, {x}); }
Value Rsqrt(Value x) { return Apply(op::Rsqrt, {x}); }
Value Exp(Value x) { return Apply(op::Exp, {x}); }
Value Log(Value x) { return Apply(op::Log, {x}); }
Value Tanh(Value x) { return Apply(op::Tanh, {x}); }
Value Sigmoid(Value x) { return Apply(op::Sigmoid, {x}); }
Value Relu(Value x) { return Apply(op::Relu, {x}); }
Value Sin(Value x) { return Apply(op::Sin, {x}); }
Value Cos(Value x) { return Apply(op::Cos, {x}); }

Value Add(Value a, Value b) { return Apply(op::Add, {a, b}); }
Value Sub(Value a, Value b) { return Apply(op::Sub, {a, b}); }
Value Mul(Value a, Value b) { return Apply(op::Mul, {a, b}); }
Value Div(Value a, Value b) { return Apply(op::Div, {a, b}); }
Value Pow(Value a, Value b) { return Apply(op::Pow, {a, b}); }
Value SquaredDifference(Value a, Value b) { return Apply(op::SquaredDifference, {a, b}); }
Value Maximum(Value a, Value b) { return Apply(op::Maximum, {a, b}); }
Value Minimum(Value a, Value b) { return Apply(op::Minimum, {a, b}); }

Value Equal(Value a, Value b) { return Apply(op::Equal, {a, b}); }
Value NotEqual(Value a, Value b) { return Apply(op::NotEqual, {a, b}); }
Value Less(Value a, Value b) { return Apply(op::Less, {a, b}); }
Value LessEqual(Value a, Value b) { return Apply(op::LessEqual, {a, b}); }
Value Greater(Value a, Value b) { return Apply(op::Greater, {a, b}); }
Value GreaterEqual(Value a, Value b) { return Apply(op::GreaterEqual, {a, b}); }

Value LogicalNot(Value x) { return Apply(op::LogicalNot, {x}); }
Value LogicalAnd(Value a, Value b) { return Apply(op::LogicalAnd, {a, b}); }
Value LogicalOr(Value a, Value b) { return Apply(op::LogicalOr, {a, b}); }

Value Select(Value condition, Value if_true, Value if_false) {
  return Apply(op::Select, {condition, if_true, if_false});
}

Value Cast(Value x, DType dtype) { return x && x.dtype() == dtype ? x : Apply(op::Cast, {x}, Attrs{{"dtype", dtype}}); }

Value BroadcastTo(Value x, const Shape& shape) {
  return Apply(op::BroadcastTo, {x}, Attrs{{"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())}});
}

Value BiasAdd(Value x, Value bias) { return Apply(op::BiasAdd, {x, bias}); }

}  // namespace official::compute
