#include "utils/compute/cpu/compute_in_float.h"

#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

constexpr int64_t kGrain = 1 << 14;

void ToFloat(const BFloat16* from, float* to, int64_t n) {
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    WithSimd([&] {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[i]);
    });
  });
}

void FromFloat(const float* from, BFloat16* to, int64_t n) {
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    WithSimd([&] {
      for (int64_t i = begin; i < end; ++i) to[i] = BFloat16(from[i]);
    });
  });
}

// Where a value of the bfloat16 kernel lies in scratch memory as float; offset -1: it is passed on as it is.
struct Converted {
  int64_t offset = -1, num_elements = 0;
};

}  // namespace

absl::StatusOr<Kernel> ComputeInFloat(const KernelSpec& spec, const KernelFactory& make) {
  ScratchPlan scratch;
  const auto place = [&](const TensorType& type) -> Converted {
    if (type.dtype != DType::kBFloat16) return {};
    return {scratch.Add(type.shape.num_elements() * sizeof(float)), type.shape.num_elements()};
  };
  Graph graph;
  std::vector<Value> float_inputs;
  std::vector<Converted> inputs, outputs;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    TensorType type = spec.input(i);
    inputs.push_back(place(type));
    if (type.dtype == DType::kBFloat16) type.dtype = DType::kFloat32;
    float_inputs.push_back(graph.Input(absl::StrCat("input", i), type));
  }
  for (int i = 0; i < spec.node.num_outputs(); ++i) outputs.push_back(place(spec.output(i)));
  const Node* node = graph.AddNode(spec.node.op().name, float_inputs, spec.attrs());
  if (node == nullptr) return graph.status();
  ASSIGN_OR_RETURN(Kernel kernel,
                   make(KernelSpec{*node, spec.device, spec.input_layouts, spec.output_layouts, spec.choices}));
  const int64_t inner_scratch = scratch.Add(kernel.scratch_bytes);

  return Kernel{
      .run = [inputs, outputs, inner_scratch, run = std::move(kernel.run), in = std::vector<const void*>(inputs.size()),
              out = std::vector<void*>(outputs.size())](const KernelArgs& args) mutable -> absl::Status {
        for (size_t i = 0; i < in.size(); ++i) {
          in[i] = args.inputs[i];
          if (inputs[i].offset < 0) continue;
          float* const converted = static_cast<float*>(ScratchAt(args, inputs[i].offset));
          ToFloat(args.input<BFloat16>(i), converted, inputs[i].num_elements);
          in[i] = converted;
        }
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = outputs[i].offset < 0 ? args.outputs[i] : ScratchAt(args, outputs[i].offset);
        }
        RETURN_IF_ERROR(run({in, absl::MakeConstSpan(out), ScratchAt(args, inner_scratch)}));
        for (size_t i = 0; i < out.size(); ++i) {
          if (outputs[i].offset < 0) continue;
          FromFloat(static_cast<const float*>(out[i]), args.output<BFloat16>(i), outputs[i].num_elements);
        }
        return absl::OkStatus();
      },
      .scratch_bytes = scratch.bytes()};
}

}  // namespace official::compute
