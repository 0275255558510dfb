// Elementwise ops, named and defined as TensorFlow's. Several inputs broadcast by NumPy's rule; gradients are summed
// back to the shape of each input. Unless noted otherwise inputs have one type, float32, bfloat16 or half (computed in
// float), or, if the comment says "integers", int32 or int64 too, and the result has that type.
//
// A program merges chains of these ops into one node, FusedElementwise, which computes the same bits. On devices for
// which a launch costs much, it groups nodes that do the same to many tensors into one, GroupedElementwise.
#pragma once

#include "utils/compute/graph/graph.h"

namespace official::compute::op {

inline constexpr OpName Neg("Neg");
inline constexpr OpName Abs("Abs");
inline constexpr OpName Sign("Sign");
inline constexpr OpName Square("Square");
inline constexpr OpName Sqrt("Sqrt");
inline constexpr OpName Rsqrt("Rsqrt");
inline constexpr OpName Exp("Exp");
inline constexpr OpName Log("Log");
inline constexpr OpName Tanh("Tanh");
inline constexpr OpName Sigmoid("Sigmoid");
inline constexpr OpName Relu("Relu");
inline constexpr OpName Sin("Sin");
inline constexpr OpName Cos("Cos");
inline constexpr OpName Add("Add");
inline constexpr OpName Sub("Sub");
inline constexpr OpName Mul("Mul");
inline constexpr OpName Div("Div");
inline constexpr OpName Pow("Pow");
inline constexpr OpName SquaredDifference("SquaredDifference");
inline constexpr OpName Maximum("Maximum");
inline constexpr OpName Minimum("Minimum");
inline constexpr OpName Equal("Equal");
inline constexpr OpName NotEqual("NotEqual");
inline constexpr OpName Less("Less");
inline constexpr OpName LessEqual("LessEqual");
inline constexpr OpName Greater("Greater");
inline constexpr OpName GreaterEqual("GreaterEqual");
inline constexpr OpName LogicalAnd("LogicalAnd");
inline constexpr OpName LogicalOr("LogicalOr");
inline constexpr OpName LogicalNot("LogicalNot");
inline constexpr OpName Select("Select");
inline constexpr OpName BiasAdd("BiasAdd");
inline constexpr OpName BroadcastTo("BroadcastTo");
inline constexpr OpName Cast("Cast");
inline constexpr OpName ReluGrad("ReluGrad");
inline constexpr OpName TanhGrad("TanhGrad");
inline constexpr OpName SigmoidGrad("SigmoidGrad");
inline constexpr OpName FusedElementwise("FusedElementwise");
// Attributes: "program", the FusedProgram of each member; "dtype" of the outputs; "members", their number, M; "slots",
// the program's inputs in the order of the node's: first those that each member has of its own, each as M inputs in the
// shape of the member's output, then the scalars that all members share.
inline constexpr OpName GroupedElementwise("GroupedElementwise");

}  // namespace official::compute::op

// The inputs of Select.
namespace official::compute::select {
enum Input : int { kCondition, kIfTrue, kIfFalse };
}  // namespace official::compute::select

// The inputs of BiasAdd.
namespace official::compute::bias_add {
enum Input : int { kX, kBias };
}  // namespace official::compute::bias_add

namespace official::compute::grouped_elementwise {
inline constexpr int kMaxMemberInputs = 3;  // that each member has of its own
}  // namespace official::compute::grouped_elementwise

// The inputs of ReluGrad. y is the result of Relu.
namespace official::compute::relu_grad {
enum Input : int { kDy, kY };
}  // namespace official::compute::relu_grad

namespace official::compute {

Value Neg(Value x);     // integers
Value Abs(Value x);     // integers
Value Sign(Value x);    // integers
Value Square(Value x);  // integers
Value Sqrt(Value x);
Value Rsqrt(Value x);
Value Exp(Value x);
Value Log(Value x);
Value Tanh(Value x);
Value Sigmoid(Value x);
Value Relu(Value x);  // NaN stays NaN, but not in all fused ops of CPUs: docs/ops.md
Value Sin(Value x);
Value Cos(Value x);

Value Add(Value a, Value b);  // integers
Value Sub(Value a, Value b);  // integers
Value Mul(Value a, Value b);  // integers
Value Div(Value a, Value b);
Value Pow(Value a, Value b);
Value SquaredDifference(Value a, Value b);  // integers
// The result is NaN if one operand is. The gradient of equal operands goes to `a`.
Value Maximum(Value a, Value b);  // integers
Value Minimum(Value a, Value b);  // integers

// Comparisons with bool results.
Value Equal(Value a, Value b);         // integers
Value NotEqual(Value a, Value b);      // integers
Value Less(Value a, Value b);          // integers
Value LessEqual(Value a, Value b);     // integers
Value Greater(Value a, Value b);       // integers
Value GreaterEqual(Value a, Value b);  // integers

// Ops with bool operands and results.
Value LogicalNot(Value x);
Value LogicalAnd(Value a, Value b);
Value LogicalOr(Value a, Value b);

// if_true where `condition` (bool) is true, else if_false; these two have one type, one of those that Cast supports.
Value Select(Value condition, Value if_true, Value if_false);

// x as float32, bfloat16, half, int32, int64, uint8 or bool: a float loses its fraction, bool is x != 0. The gradient
// flows between floating types only.
Value Cast(Value x, DType dtype);

// x repeated along the dimensions that it does not have or in which its size is 1; any type that Cast supports.
Value BroadcastTo(Value x, const Shape& shape);

// x [..., C] + bias [C]. This is an op of its own so that convolutions and matrix products find it and add the bias
// themselves.
Value BiasAdd(Value x, Value bias);

}  // namespace official::compute
