#include "utils/compute/ops/elementwise/op_table.h"

#include <algorithm>
#include <iterator>

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
    for (const char* name : {"Neg", "Abs", "Sign", "Square"}) table->push_back({name, name, 1, numeric});
    for (const char* name : {"Sqrt", "Rsqrt", "Exp", "Log", "Tanh", "Sigmoid", "Relu", "Sin", "Cos"}) {
      table->push_back({name, name, 1, floating});
    }
    for (const char* name : {"Add", "Sub", "Mul", "SquaredDifference", "Maximum", "Minimum", "Equal", "NotEqual",
                             "Less", "LessEqual", "Greater", "GreaterEqual"}) {
      table->push_back({name, name, 2, numeric});
    }
    for (const char* name : {"Div", "Pow", "ReluGrad", "TanhGrad", "SigmoidGrad"}) {
      table->push_back({name, name, 2, floating});
    }
    for (const char* name : {"LogicalAnd", "LogicalOr"}) table->push_back({name, name, 2, {kBool}});
    table->push_back({"LogicalNot", "LogicalNot", 1, {kBool}});
    table->push_back({"Select", "Select", 3, {kBool}});
    table->push_back({"BiasAdd", "Add", 2, floating});
    table->push_back({"Cast", "", 1, all});
    table->push_back({"BroadcastTo", "", 1, all});
    return table;
  }();
  return *ops;
}

const ElementwiseOp* FindElementwiseOp(absl::string_view name) {
  const std::vector<ElementwiseOp>& ops = ElementwiseOps();
  const auto it = std::find_if(ops.begin(), ops.end(), [&](const ElementwiseOp& op) { return name == op.name; });
  return it == ops.end() ? nullptr : &*it;
}

DType ComputeType(const Node& node) {
  if (node.Is("FusedElementwise")) return kFloat32;
  const DType input = node.input(node.Is("Select") ? 1 : 0).dtype();
  // Floats hold 24 bits: integers go to integers directly.
  if (node.Is("Cast")) return IsWholeNumber(input) && IsWholeNumber(node.output_types()[0].dtype) ? kInt64 : kFloat32;
  return input == kInt32 || input == kInt64 ? input : kFloat32;
}

}  // namespace official::compute
