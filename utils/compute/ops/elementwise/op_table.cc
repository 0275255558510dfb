#include "utils/compute/ops/elementwise/op_table.h"

#include <algorithm>
#include <iterator>

#include "utils/compute/ops/elementwise/elementwise.h"

namespace official::compute {
namespace {

using enum DType;

bool IsWholeNumber(DType dtype) { return dtype == kInt32 || dtype == kInt64 || dtype == kUInt8 || dtype == kBool; }

}  // namespace

const std::vector<ElementwiseOp>& ElementwiseOps() {
  static const auto* const ops = [] {
    // Whatever floats are stored as, they are computed as float32.
    const std::vector<DType> floating = StorageTypes();
    const std::vector<DType> numeric = StorageTypesAnd({kInt32, kInt64});
    const std::vector<DType> all = StorageTypesAnd({kInt32, kInt64, kUInt8, kBool});
    auto* table = new std::vector<ElementwiseOp>;
    for (const OpName name : {op::Neg, op::Abs, op::Sign, op::Square}) {
      table->push_back({name, name.text(), 1, numeric});
    }
    for (const OpName name :
         {op::Sqrt, op::Rsqrt, op::Exp, op::Log, op::Tanh, op::Sigmoid, op::Relu, op::Sin, op::Cos}) {
      table->push_back({name, name.text(), 1, floating});
    }
    for (const OpName name : {op::Add, op::Sub, op::Mul, op::SquaredDifference, op::Maximum, op::Minimum, op::Equal,
                              op::NotEqual, op::Less, op::LessEqual, op::Greater, op::GreaterEqual}) {
      table->push_back({name, name.text(), 2, numeric});
    }
    for (const OpName name : {op::Div, op::Pow, op::ReluGrad, op::TanhGrad, op::SigmoidGrad}) {
      table->push_back({name, name.text(), 2, floating});
    }
    for (const OpName name : {op::LogicalAnd, op::LogicalOr}) table->push_back({name, name.text(), 2, {kBool}});
    table->push_back({op::LogicalNot, op::LogicalNot.text(), 1, {kBool}});
    table->push_back({op::Select, op::Select.text(), 3, {kBool}});
    table->push_back({op::BiasAdd, op::Add.text(), 2, floating});
    table->push_back({op::Cast, "", 1, all});
    table->push_back({op::BroadcastTo, "", 1, all});
    return table;
  }();
  return *ops;
}

const ElementwiseOp* FindElementwiseOp(OpName op) {
  const std::vector<ElementwiseOp>& ops = ElementwiseOps();
  const auto it = std::find_if(ops.begin(), ops.end(), [&](const ElementwiseOp& other) { return other.name == op; });
  return it == ops.end() ? nullptr : &*it;
}

DType ComputeType(const Node& node) {
  if (node.Is(op::FusedElementwise)) return kFloat32;
  const DType input = node.input(node.Is(op::Select) ? 1 : 0).dtype();
  // Floats hold 24 bits: integers go to integers directly.
  if (node.Is(op::Cast)) return IsWholeNumber(input) && IsWholeNumber(node.output_types()[0].dtype) ? kInt64 : kFloat32;
  return input == kInt32 || input == kInt64 ? input : kFloat32;
}

}  // namespace official::compute
