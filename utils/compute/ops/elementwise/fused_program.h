// The program of a FusedElementwise node: instructions on the elements of its inputs. Every op of this family is such a
// program, of one instruction or of none, so kernels have one way to run them all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "utils/compute/graph/graph.h"

namespace official::compute {

struct FusedProgram {
  // The largest numbers of inputs and instructions, so that a kernel's tiles stay in the L1 cache.
  static constexpr int kMaxInputs = 8;
  static constexpr int kMaxInstructions = 16;

  // An operand is the result of an earlier instruction, or input i as ~i.
  using Operand = int;
  static bool IsInput(Operand operand) { return operand < 0; }

  struct Instruction {
    std::string functor;  // a functor of math.h
    std::vector<Operand> operands;
  };
  std::vector<Instruction> instructions;
  // The node's output: usually the last instruction's result.
  Operand result = ~0;

  // Returns text such as "Mul x0 x1;Relu r0": inputs x, results r. The result is that of the last instruction, or x0 if
  // there are none.
  std::string ToString() const;
  static FusedProgram FromString(absl::string_view text);
};

// The program that computes a node of this family; nullopt for other nodes.
std::optional<FusedProgram> ProgramOf(const Node& node);

}  // namespace official::compute
