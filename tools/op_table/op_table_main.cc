// op_table RECORD [EMULATED]: prints docs/ops.md, the table of all registered ops and kernels and of how they are
// tested. RECORD is what the op tests wrote (OP_TEST_RECORD in utils/compute/testing/op_test.h), EMULATED what those
// wrote that run on emulated GPUs. Exits with 1 if a kernel that computes, or a gradient, is tested nowhere; standard
// error names it.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/cuda_backend/cuda_backend.h"
#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_program.h"

namespace official::compute {
namespace {

constexpr char kHeader[] =
    R"(# Ops

Every op, the devices that have kernels for it, and the types of its first input, which choose the kernel. A number is
the tolerance that tests hold the kernel to: the largest difference from a plain float64 reference, relative to max(1,
|reference|). It is the op's own, or, where the kernel only runs as part of other ops' tests (most gradients), the
smallest of theirs. "=" stands for tests with expected values of their own. The last column tells in which types the
op's gradient is compared with central differences of the reference. Every kernel and every gradient is tested; a test
fails where one is not. A kernel for CUDA is "emulated" if the same tests hold it to the same tolerances on the host
(utils/compute/cuda_emulation): matmul_emulated_test is matmul_test there. It is "+" if no emulated test runs it. Where
there is a GPU, matmul_test runs both on it. Reorder has none, since it goes between memory layouts and CUDA kernels
have one only, nor has FusedBatchNormAgain, which costs GPUs more time than its memory is worth there.

The column StableHLO, in the rows for CPUs, names the types in which the op is written in StableHLO (*_hlo.cc), for the
devices of PJRT plugins; "all" is all types of the row. Fused ops need no form of their own there: their parts are
written, and the plugin's compiler fuses them.

What CPUs compute and GPUs refuse, with an error that says so: Attention with heads of more than 128 columns, or of more
than [a GPU's shared memory holds](manual/devices.md#several-devices), and DecodeAttention with more than 256;
CatchUpRows, ApplyDeferredAdam and SettleRows of more than 16 tables; CheckNumerics of more than 2^30 elements;
AssignScale of more than 64 variables; the ops of NeuMF for 2^31 samples, or with more columns before the rating than a
GPU's shared memory holds; broadcasts and moves of elements in more than 8 dimensions after adjacent ones are merged.
Cast of NaN, or of a number that the integer type cannot hold, gives on CPUs and GPUs different integers; TensorFlow
leaves open which.

Relu keeps NaN, as in TensorFlow, except where oneDNN computes it within another op, on CPUs: in FusedConv2D and, with
AVX-512, in FusedMatMul, unless a kernel of our own takes it, which is faster for up to 512 rows and large weights.
There NaN becomes 0, so the instruction set and the size of the batch decide whether NaN gets through a dense layer with
ReLU.

Made from the registered ops and kernels and from what the op tests ran, by `bazel run
//tools/op_table:update_op_table`.

)";

// What the tests did with the kernel of one type.
struct Tested {
  std::optional<double> forward, part;  // smallest tolerance
  bool run = false, gradient = false;
};

using Key = std::tuple<std::string, std::string, std::string>;  // op, device kind, type

std::map<Key, Tested> ReadRecord(std::istream& record) {
  std::map<Key, Tested> all;
  std::string op, device, type, what;
  double tolerance;
  const auto lower = [&](std::optional<double>& smallest) {
    smallest = std::min(tolerance, smallest.value_or(tolerance));
  };
  while (record >> op >> device >> type >> what >> tolerance) {
    Tested& tested = all[{op, device, type}];
    if (what == "forward") lower(tested.forward);
    if (what == "part") lower(tested.part);
    (what == "gradient" ? tested.gradient : tested.run) = true;
  }
  return all;
}

std::string Cell(const Tested& tested) {
  if (tested.forward) return absl::StrCat(*tested.forward);
  if (tested.part) return absl::StrCat(*tested.part);
  return tested.run ? "=" : "untested";
}

using Row = std::pair<std::string, std::string>;  // op, device kind

// What the column StableHLO says of an op with kernels for `row_types` that is written in StableHLO for `written`.
std::string HloCell(const std::set<DType>& row_types, const std::set<DType>& written) {
  if (row_types == written) return "all";
  return absl::StrJoin(written, ", ", [](std::string* out, DType type) { absl::StrAppend(out, DTypeName(type)); });
}

// The table is the same with and without a GPU: of CUDA kernels it says what emulated GPUs ran. What GPUs ran counts in
// `missing`, the descriptions of what no test ran.
void PrintRow(const Row& row, const std::set<DType>& row_types, const std::set<DType>& types, const std::string& hlo,
              std::map<Key, Tested>& tested, std::map<Key, Tested>& emulated, bool tested_here,
              std::vector<std::string>& missing) {
  const auto& [op, device] = row;
  std::cout << "| " << op << " | " << device << " |";
  std::vector<std::string> gradients, emulated_gradients;
  for (const DType type : types) {
    std::cout << " ";
    if (row_types.count(type) > 0) {
      const std::string name(DTypeName(type));
      const Tested& cell = tested[{op, device, name}];
      const Tested& emulated_cell = emulated[{op, device, name}];
      std::cout << (device == "cpu" ? Cell(cell) : emulated_cell.run ? "emulated" : "+") << " ";
      if (cell.gradient) gradients.push_back(name);
      if (emulated_cell.gradient) emulated_gradients.push_back(name);
      if (tested_here && !cell.run) missing.push_back(absl::StrCat(op, " on ", device, " in ", name));
    }
    std::cout << "|";
  }
  if (tested_here && FindOp(op)->gradient && gradients.empty()) {
    missing.push_back(absl::StrCat("the gradient of ", op, " on ", device));
  }
  if (device != "cpu") gradients = emulated_gradients;
  std::cout << " " << absl::StrJoin(gradients, ", ") << (gradients.empty() ? "| " : " | ") << hlo
            << (hlo.empty() ? "|\n" : " |\n");
}

int PrintTable(std::istream& record, std::istream& emulated_record) {
  std::map<Key, Tested> tested = ReadRecord(record), emulated = ReadRecord(emulated_record);
  std::set<std::string> tested_devices;
  for (const auto& [key, what] : tested) tested_devices.insert(std::get<1>(key));
  // Of each op and device, the types with kernels.
  std::map<Row, std::set<DType>> rows;
  std::set<DType> types;
  std::map<std::string, std::set<DType>> written;  // in StableHLO
  for (const KernelDef* kernel : KernelRegistry::Global().All()) {
    if (kernel->device_kind == kPjrtKind) {
      written[std::string(kernel->op.text())].insert(kernel->dtypes.begin(), kernel->dtypes.end());
      continue;
    }
    rows[{std::string(kernel->op.text()), kernel->device_kind}].insert(kernel->dtypes.begin(), kernel->dtypes.end());
    if (kernel->device_kind == "cpu") types.insert(kernel->dtypes.begin(), kernel->dtypes.end());
  }
  std::vector<std::string> missing;

  std::cout << kHeader << "| op | device |";
  for (const DType type : types) std::cout << " " << DTypeName(type) << " |";
  std::cout << " gradient | StableHLO |\n| --- | --- |";
  for (size_t i = 0; i < types.size(); ++i) std::cout << " --- |";
  std::cout << " --- | --- |\n";
  for (const auto& [row, row_types] : rows) {
    const std::string hlo = row.second == "cpu" ? HloCell(row_types, written[row.first]) : "";
    PrintRow(row, row_types, types, hlo, tested, emulated, tested_devices.count(row.second) > 0, missing);
  }
  std::vector<std::string> without_kernel, without_cuda;
  for (const OpDef* op : AllOps()) {
    const std::string name(op->name.text());
    const bool cpu = rows.count({name, "cpu"}) > 0, cuda = rows.count({name, "cuda"}) > 0;
    // A whole graph for a plugin is no op of a table.
    if (!cpu && !cuda && op->name != op::HloModule) without_kernel.push_back(name);
    if (cpu && !cuda) without_cuda.push_back(name);
  }
  std::cout << "\nNo kernels, since they compute nothing: " << absl::StrJoin(without_kernel, ", ") << ".\n";
  if (!without_cuda.empty()) std::cout << "\nOn the CPU only: " << absl::StrJoin(without_cuda, ", ") << ".\n";
  for (const std::string& what : missing) std::cerr << "no test runs " << what << "\n";
  return missing.empty() ? 0 : 1;
}

}  // namespace
}  // namespace official::compute

int main(int argc, char** argv) {
  std::ifstream record(argc >= 2 ? argv[1] : ""), emulated_record(argc == 3 ? argv[2] : "/dev/null");
  if (argc > 3 || !record || !emulated_record) {
    std::cerr << "usage: op_table RECORD [EMULATED], files that op tests wrote\n";
    return 2;
  }
  // Fails where the CUDA toolkit was absent: the table then has no row for CUDA.
  (void)official::compute::LoadCudaKernels();
  official::compute::AddHloEmittersToKernels();
  return official::compute::PrintTable(record, emulated_record);
}
