#include "utils/compute/ops/elementwise/fused_program.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/elementwise/op_table.h"

namespace official::compute {

std::string FusedProgram::ToString() const {
  return absl::StrJoin(instructions, ";", [](std::string* out, const Instruction& instruction) {
    absl::StrAppend(out, instruction.functor);
    for (const Operand operand : instruction.operands) {
      absl::StrAppend(out, IsInput(operand) ? " x" : " r", IsInput(operand) ? ~operand : operand);
    }
  });
}

FusedProgram FusedProgram::FromString(absl::string_view text) {
  FusedProgram program;
  for (const absl::string_view line : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    Instruction instruction{std::string(words[0]), {}};
    for (size_t i = 1; i < words.size(); ++i) {
      int number = 0;
      OFFICIAL_CHECK(absl::SimpleAtoi(words[i].substr(1), &number)) << text;
      instruction.operands.push_back(words[i][0] == 'x' ? ~number : number);
    }
    program.result = static_cast<int>(program.instructions.size());
    program.instructions.push_back(std::move(instruction));
  }
  return program;
}

std::optional<FusedProgram> ProgramOf(const Node& node) {
  if (node.Is(op::FusedElementwise)) return FusedProgram::FromString(node.attrs().Get<std::string>("program"));
  const ElementwiseOp* op = FindElementwiseOp(node.op().name);
  if (op == nullptr) return std::nullopt;
  FusedProgram program;
  if (op->functor.empty()) return program;
  FusedProgram::Instruction instruction{std::string(op->functor), {}};
  for (int i = 0; i < op->num_inputs; ++i) instruction.operands.push_back(~i);
  program.instructions.push_back(std::move(instruction));
  program.result = 0;
  return program;
}

}  // namespace official::compute
