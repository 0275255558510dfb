// CPU kernels of matrix multiplication: on oneDNN, but for the layers of dense.h.

#include <algorithm>
#include <cstring>
#include <vector>

#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/compute_in_float.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/matmul/dense.h"
#include "utils/compute/ops/matmul/geometry.h"

namespace official::compute {
namespace {

using dnnl::memory;

// [batch, rows, columns], of rank 2 without a batch.
memory::desc MatrixDesc(DType dtype, int64_t batch, int64_t rows, int64_t columns, bool transposed) {
  const memory::dim row = transposed ? 1 : columns, column = transposed ? rows : 1;
  if (batch == 1) return memory::desc({rows, columns}, OnednnType(dtype), memory::dims{row, column});
  return memory::desc({batch, rows, columns}, OnednnType(dtype), memory::dims{rows * columns, row, column});
}

// x^T * dy, the gradient of weights, with the sum over the batch in parts (Graph::batch_parts): one product for each,
// then their sum. float32.
Kernel MakeWeightGradientInParts(const MatMulGeometry& g, int num_parts) {
  struct Part {
    Share share;
    OnednnPrimitive multiply;  // empty without examples
  };
  const int64_t elements = g.m * g.n;
  std::vector<Part> parts;
  ScratchPlan scratch;
  int64_t library_bytes = 0;
  for (int p = 0; p < num_parts; ++p) {
    Part& part = parts.emplace_back(Part{ShareOf(g.k, p, num_parts), OnednnPrimitive()});
    if (part.share.size() == 0) continue;
    const memory::desc a = MatrixDesc(DType::kFloat32, 1, g.m, part.share.size(), true);
    const memory::desc b = MatrixDesc(DType::kFloat32, 1, part.share.size(), g.n, false);
    const memory::desc y = MatrixDesc(DType::kFloat32, 1, g.m, g.n, false);
    const dnnl::matmul::primitive_desc pd({a, b, memory::desc(), y}, OnednnAttr(), OnednnEngine());
    part.multiply = OnednnPrimitive(
        dnnl::matmul(pd),
        {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    library_bytes = std::max(library_bytes, static_cast<int64_t>(pd.scratchpad_desc().get_size()));
  }
  const int64_t sums_at = scratch.Add(num_parts * elements * sizeof(float)), library_at = scratch.Add(library_bytes);
  const auto run = [=](const KernelArgs& args) -> absl::Status {
    float* const sums = static_cast<float*>(ScratchAt(args, sums_at));
    for (int p = 0; p < num_parts; ++p) {
      float* const sum = sums + p * elements;
      const Share share = parts[p].share;
      if (!parts[p].multiply) {
        std::fill_n(sum, elements, 0.0f);
        continue;
      }
      RETURN_IF_ERROR(
          parts[p].multiply.Run({args.input<float>(0) + share.begin * g.m, args.input<float>(1) + share.begin * g.n,
                                 sum, ScratchAt(args, library_at)}));
    }
    float* const output = args.output<float>(0);
    ParallelFor(elements, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        output[i] = TreeSum(0, num_parts, [&](int64_t p) { return sums[p * elements + i]; });
      }
    });
    return absl::OkStatus();
  };
  return Kernel{.run = run, .scratch_bytes = scratch.bytes()};
}

absl::StatusOr<Kernel> MakeMatMul(const KernelSpec& spec) {
  const MatMulGeometry g = MatMulGeometryOf(spec.node);
  const int64_t output_bytes = spec.output(0).num_bytes();
  const bool has_bias = spec.node.num_inputs() == 3;
  if (output_bytes == 0 || (g.k == 0 && !has_bias)) {
    return Kernel{[output_bytes](const KernelArgs& args) {
      std::memset(args.outputs[0], 0, output_bytes);
      return absl::OkStatus();
    }};
  }
  if (std::optional<Kernel> dense = MakeDenseForward(spec, g)) return *std::move(dense);
  if (std::optional<Kernel> dense = MakeDenseWeightGradient(spec, g)) return *std::move(dense);
  const DType dtype = spec.input(0).dtype;
  const int num_parts = spec.node.graph().batch_parts();
  if (num_parts > 1 && dtype == DType::kFloat32 && g.batch == 1 && g.transpose_a && !g.transpose_b && !has_bias) {
    return MakeWeightGradientInParts(g, num_parts);
  }
  const memory::desc a = MatrixDesc(dtype, g.batch, g.m, g.k, g.transpose_a);
  const memory::desc b = MatrixDesc(dtype, g.batch, g.k, g.n, g.transpose_b);
  const memory::desc y = MatrixDesc(dtype, g.batch, g.m, g.n, false);
  const memory::desc bias =
      has_bias ? memory::desc({1, g.n}, OnednnType(dtype), memory::format_tag::ab) : memory::desc();
  dnnl::primitive_attr attr = OnednnAttr();
  if (has_bias && spec.attrs().Get<std::string>("activation") == "Relu") {
    dnnl::post_ops relu;
    relu.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(relu);
  }
  const dnnl::matmul::primitive_desc pd({a, b, bias, y}, attr, OnednnEngine());
  std::vector<OnednnPrimitive::Argument> arguments{
      {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}};
  if (has_bias) arguments.push_back({DNNL_ARG_BIAS, bias});
  const OnednnPrimitive matmul(dnnl::matmul(pd), arguments);
  return Kernel{.run = [=](const KernelArgs& args) -> absl::Status {
                  const void* const addresses[] = {args.inputs[0], args.inputs[1], args.outputs[0], args.scratch,
                                                   has_bias ? args.inputs[2] : nullptr};
                  return matmul.Run(absl::MakeConstSpan(addresses, has_bias ? 5 : 4));
                },
                .scratch_bytes = static_cast<int64_t>(pd.scratchpad_desc().get_size())};
}

bool RegisterMatMul(const char* op) {
  const KernelFactory factory = [op](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    return CatchOnednn(op, [&] { return MakeMatMul(spec); });
  };
  return RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = [factory](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        return OnednnComputesIn(spec.input(0).dtype) ? factory(spec) : ComputeInFloat(spec, factory);
      },
  });
}

const bool registered[] = {RegisterMatMul("MatMul"), RegisterMatMul("FusedMatMul")};

}  // namespace
}  // namespace official::compute
