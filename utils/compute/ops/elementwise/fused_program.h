// The program of a FusedElementwise node: instructions on the elements of its inputs. Every op of this family is such a
// program, of one instruction or of none, so kernels have one way to run them all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute {

struct FusedProgram {
  // At most so many of each, so that a kernel's tiles stay in the first-level cache.
  static constexpr int kMaxInputs = 8;
  static constexpr int kMaxInstructions = 16;

  // An operand is the result of an earlier instruction, or input i as ~i.
  using Operand = int;
  static bool IsInput(Operand operand) { return operand < 0; }

  struct Instruction {
    std::string functor;  // of math.h
    std::vector<Operand> operands;
  };
  std::vector<Instruction> instructions;
  // What the node's output is: usually the last instruction's result.
  Operand result = ~0;

  // "Mul x0 x1;Relu r0": inputs x, results r. The result is that of the last instruction, or x0 if there are none.
  std::string ToString() const;
  static FusedProgram FromString(absl::string_view text);
};

// What a node of this family computes; nullopt for other nodes.
std::optional<FusedProgram> ProgramOf(const Node& node);

}  // namespace official::compute
