// The ops of a module that XLA has compiled, for tests that look for them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace official::step_graphs {

struct CompiledOp {
  std::string opcode;                 // HLO's: "convolution", "all-reduce"
  std::string custom_call_target;     // of a "custom-call"
  std::vector<std::string> operands;  // the element type of each, such as "BF16"; "" for what is no array of floats
};

// Returns the ops of all computations, also of those that were fused, from an HloModuleProtoWithConfig. InvalidArgument
// if it is none.
absl::StatusOr<std::vector<CompiledOp>> CompiledOps(const std::string& hlo);

}  // namespace official::step_graphs
