#include "utils/compute/cpu/compute_in_float.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/convert.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/scratch.h"
#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

constexpr int64_t kGrain = 1 << 14;

bool IsNarrow(DType dtype) { return IsStorageType(dtype) && dtype != DType::kFloat32; }

// Where a value of the narrow kernel lies in scratch memory as float; offset -1: it is passed on as it is.
struct Converted {
  int64_t offset = -1, num_elements = 0;
  DType dtype = DType::kFloat32;  // of the narrow kernel
};

// `from` is of the narrow type.
void Widen(const Converted& value, const void* from, float* to) {
  WithStorageType(value.dtype, [&]<typename T>(T) {
    if constexpr (kIsNarrowFloat<T>) {
      ParallelFor(value.num_elements, kGrain, [&](int64_t begin, int64_t end) {
        ToFloats(static_cast<const T*>(from) + begin, to + begin, end - begin);
      });
    }
  });
}

void Narrow(const Converted& value, const float* from, void* to) {
  WithStorageType(value.dtype, [&]<typename T>(T) {
    if constexpr (kIsNarrowFloat<T>) {
      ParallelFor(value.num_elements, kGrain, [&](int64_t begin, int64_t end) {
        FromFloats(from + begin, static_cast<T*>(to) + begin, end - begin);
      });
    }
  });
}

}  // namespace

absl::StatusOr<Kernel> ComputeInFloat(const KernelSpec& spec, const KernelFactory& make) {
  ScratchPlan scratch;
  const auto place = [&](const TensorType& type) -> Converted {
    if (!IsNarrow(type.dtype)) return {};
    return {scratch.Add(type.shape.num_elements() * sizeof(float)), type.shape.num_elements(), type.dtype};
  };
  Graph graph;
  graph.set_batch_parts(spec.node.graph().batch_parts());
  std::vector<Value> float_inputs;
  std::vector<Converted> inputs, outputs;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    TensorType type = spec.input(i);
    inputs.push_back(place(type));
    if (IsNarrow(type.dtype)) type.dtype = DType::kFloat32;
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
          Widen(inputs[i], args.inputs[i], converted);
          in[i] = converted;
        }
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = outputs[i].offset < 0 ? args.outputs[i] : ScratchAt(args, outputs[i].offset);
        }
        RETURN_IF_ERROR(run({in, absl::MakeConstSpan(out), ScratchAt(args, inner_scratch)}));
        for (size_t i = 0; i < out.size(); ++i) {
          if (outputs[i].offset < 0) continue;
          Narrow(outputs[i], static_cast<const float*>(out[i]), args.outputs[i]);
        }
        return absl::OkStatus();
      },
      .scratch_bytes = scratch.bytes(),
      .algorithm = absl::StrCat("in float32", kernel.algorithm.empty() ? "" : ", ", kernel.algorithm)};
}

}  // namespace official::compute
