// Emitters: how an op is written in StableHLO. They are to the device kind "pjrt" what kernels are to others, and stand
// beside them: softmax_hlo.cc in the folder of softmax.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/graph/graph.h"
#include "utils/compute/pjrt/hlo_builder.h"
#include "utils/compute/pjrt/pjrt_kind.h"

namespace official::compute {

struct HloEmitter {
  OpName op;
  std::vector<DType> dtypes;  // key types (KeyType in kernel.h) that it supports
  // Sets the outputs of the node, and assigns the variables that the node updates.
  std::function<void(const Node& node, HloBuilder& hlo)> emit;
  // The source file that registers it, from the workspace on.
  std::string file = {};
};

// Registers at static initialization: const bool registered = RegisterHloEmitter({.op = op::Relu, ...}).
bool RegisterHloEmitter(HloEmitter emitter, const char* file = __builtin_FILE());
// All that are registered, by the names of their ops.
std::vector<const HloEmitter*> AllHloEmitters();
// Makes each op with an emitter count as one with a kernel of the kind "pjrt"; the first call does the work. Programs
// that use no such devices are spared it.
void AddHloEmittersToKernels();
// Returns nullptr if there is none.
const HloEmitter* FindHloEmitter(const Node& node);

}  // namespace official::compute
