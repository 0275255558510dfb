#include "official/step_graphs/compiled_ops.h"

#include <cstdint>
#include <map>
#include <utility>

#include "utils/protos/hlo.pb.h"

namespace official::step_graphs {
namespace {

std::string ElementOf(const xla::ShapeProto& shape) {
  return xla::PrimitiveType_IsValid(shape.element_type()) && shape.element_type() != xla::PRIMITIVE_TYPE_INVALID
             ? xla::PrimitiveType_Name(shape.element_type())
             : "";
}

}  // namespace

absl::StatusOr<std::vector<CompiledOp>> CompiledOps(const std::string& hlo) {
  xla::HloModuleProtoWithConfig module;
  if (!module.ParseFromString(hlo) || module.hlo_module().computations().empty()) {
    return absl::InvalidArgumentError("not an HloModuleProtoWithConfig");
  }
  std::vector<CompiledOp> ops;
  for (const xla::HloComputationProto& computation : module.hlo_module().computations()) {
    std::map<int64_t, std::string> elements;  // by the id of the op
    for (const xla::HloInstructionProto& op : computation.instructions()) {
      elements[op.id()] = ElementOf(op.shape());
    }
    for (const xla::HloInstructionProto& op : computation.instructions()) {
      CompiledOp compiled{op.opcode(), op.custom_call_target(), {}};
      for (const int64_t id : op.operand_ids()) compiled.operands.push_back(elements[id]);
      ops.push_back(std::move(compiled));
    }
  }
  return ops;
}

}  // namespace official::step_graphs
