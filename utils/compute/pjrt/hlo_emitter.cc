#include "utils/compute/pjrt/hlo_emitter.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"

namespace official::compute {
namespace {

std::map<std::string, HloEmitter>& Emitters() {
  static auto* const emitters = new std::map<std::string, HloEmitter>;
  return *emitters;
}

// True once AddHloEmittersToKernels was called: what is registered later is added at once.
bool& AreKernels() {
  static bool are_kernels = false;
  return are_kernels;
}

void AddToKernels(const HloEmitter& emitter) {
  RegisterKernel({.op = emitter.op, .device_kind = kPjrtKind, .dtypes = emitter.dtypes, .make = nullptr});
}

}  // namespace

bool RegisterHloEmitter(HloEmitter emitter, const char* file) {
  emitter.file = file;
  if (AreKernels()) AddToKernels(emitter);
  return Emitters().emplace(std::string(emitter.op.text()), std::move(emitter)).second;
}

std::vector<const HloEmitter*> AllHloEmitters() {
  std::vector<const HloEmitter*> all;
  for (const auto& [op, emitter] : Emitters()) all.push_back(&emitter);
  return all;
}

void AddHloEmittersToKernels() {
  if (std::exchange(AreKernels(), true)) return;
  for (const auto& [op, emitter] : Emitters()) AddToKernels(emitter);
}

const HloEmitter* FindHloEmitter(const Node& node) {
  const auto it = Emitters().find(std::string(node.op().name.text()));
  if (it == Emitters().end()) return nullptr;
  const std::vector<DType>& dtypes = it->second.dtypes;
  return std::find(dtypes.begin(), dtypes.end(), KeyType(node)) == dtypes.end() ? nullptr : &it->second;
}

}  // namespace official::compute
