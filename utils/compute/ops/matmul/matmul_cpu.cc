// CPU kernels of matrix multiplication: on oneDNN, but for the layers of dense.h and processors without AVX-512.

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/compute_in_float.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/ops/matmul/dense.h"
#include "utils/compute/ops/matmul/geometry.h"
#include "utils/compute/ops/matmul/matmul.h"
#include "utils/compute/ops/matmul/ordered_product.h"

namespace official::compute {
namespace {

using dnnl::memory;

constexpr char kOrdered[] = "sums in order, AVX2";

// [batch, rows, columns], of rank 2 without a batch.
memory::desc MatrixDesc(DType dtype, int64_t batch, int64_t rows, int64_t columns, bool transposed) {
  const memory::dim row = transposed ? 1 : columns, column = transposed ? rows : 1;
  if (batch == 1) return memory::desc({rows, columns}, OnednnType(dtype), memory::dims{row, column});
  return memory::desc({batch, rows, columns}, OnednnType(dtype), memory::dims{rows * columns, row, column});
}

// Of matrices as the geometry says, packed or within larger ones: `a_width` and `b_width` are the floats between two
// rows as they are stored.
OrderedProduct MakeOrderedProduct(const MatMulGeometry& g, int64_t a_width, int64_t b_width) {
  return {.batch = g.batch,
          .m = g.m,
          .n = g.n,
          .k = g.k,
          .a_batch_stride = g.m * g.k,
          .a_row_stride = g.transpose_a ? 1 : a_width,
          .a_column_stride = g.transpose_a ? a_width : 1,
          .b_batch_stride = g.k * g.n,
          .b_row_stride = g.transpose_b ? 1 : b_width,
          .b_column_stride = g.transpose_b ? b_width : 1,
          .num_threads = NumThreads()};
}

// x^T * dy, the gradient of weights, with the sum over the batch in parts (Graph::batch_parts): one product for each,
// then their sum. Of large weights some rows at a time, lest the products take several times the memory of the weights.
// Which rows does not depend on the batch, so that several devices and one make the same products. float32.
class WeightGradientInParts {
 public:
  WeightGradientInParts(const MatMulGeometry& g, int num_parts)
      : g_(g), num_parts_(num_parts), rows_(RowsAtATime(g)), last_rows_(g.m - (g.m - 1) / rows_ * rows_) {
    int64_t library_bytes = 0;
    for (int p = 0; p < num_parts; ++p) {
      const int64_t depth = ShareOf(g.k, p, num_parts).size();
      parts_.push_back({MakeProduct(rows_, depth, library_bytes), MakeProduct(last_rows_, depth, library_bytes)});
    }
    sums_at_ = scratch_.Add(num_parts > 1 ? num_parts * rows_ * g.n * static_cast<int64_t>(sizeof(float)) : 0);
    library_at_ = scratch_.Add(library_bytes);
  }

  // False for weights that are no more than what is computed at a time, with the batch in one part: one product is all.
  static bool IsWanted(const MatMulGeometry& g, int num_parts) { return num_parts > 1 || RowsAtATime(g) < g.m; }

  int64_t scratch_bytes() const { return scratch_.bytes(); }
  const std::string& algorithm() const { return algorithm_; }

  absl::Status Run(const KernelArgs& args) const {
    for (int64_t row = 0; row < g_.m; row += rows_) RETURN_IF_ERROR(RunRows(args, row, std::min(rows_, g_.m - row)));
    return absl::OkStatus();
  }

 private:
  // One product, of x and dy from a part's first example on.
  using Product = std::function<absl::Status(const float* x, const float* dy, float* y, void* scratch)>;
  struct Part {
    Product some_rows, last_rows;  // null without examples
  };

  static int64_t RowsAtATime(const MatMulGeometry& g) {
    constexpr int64_t kMostElements = int64_t{1} << 21;
    return std::clamp<int64_t>(kMostElements / g.n, 1, g.m);
  }

  Product MakeProduct(int64_t rows, int64_t depth, int64_t& scratch_bytes) {
    if (depth == 0) return nullptr;
    if (!HasAvx512()) {
      const OrderedProduct product =
          MakeOrderedProduct({.m = rows, .n = g_.n, .k = depth, .transpose_a = true}, g_.m, g_.n);
      scratch_bytes = std::max(scratch_bytes, product.scratch_bytes());
      algorithm_ = kOrdered;
      return [product](const float* x, const float* dy, float* y, void* scratch) {
        product.Run(x, dy, /*bias=*/nullptr, /*relu=*/false, y, scratch);
        return absl::OkStatus();
      };
    }
    const memory::desc a({rows, depth}, memory::data_type::f32, memory::dims{1, g_.m});
    const memory::desc b = MatrixDesc(DType::kFloat32, 1, depth, g_.n, false);
    const memory::desc y = MatrixDesc(DType::kFloat32, 1, rows, g_.n, false);
    const dnnl::matmul::primitive_desc pd({a, b, memory::desc(), y}, OnednnAttr(), OnednnEngine());
    scratch_bytes = std::max(scratch_bytes, static_cast<int64_t>(pd.scratchpad_desc().get_size()));
    algorithm_ = OnednnAlgorithm(pd);
    const OnednnPrimitive product(
        dnnl::matmul(pd),
        {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    return [product](const float* x, const float* dy, float* y, void* scratch) {
      return product.Run({x, dy, y, scratch});
    };
  }

  absl::Status RunRows(const KernelArgs& args, int64_t row, int64_t rows) const {
    const int64_t elements = rows * g_.n;
    float* const output = args.output<float>(matmul::kY) + row * g_.n;
    float* const sums = num_parts_ > 1 ? static_cast<float*>(ScratchAt(args, sums_at_)) : output;
    for (int p = 0; p < num_parts_; ++p) {
      const Product& product = rows == rows_ ? parts_[p].some_rows : parts_[p].last_rows;
      float* const sum = sums + p * elements;
      if (!product) {
        std::fill_n(sum, elements, 0.0f);
        continue;
      }
      const int64_t begin = ShareOf(g_.k, p, num_parts_).begin;
      RETURN_IF_ERROR(product(args.input<float>(matmul::kA) + begin * g_.m + row,
                              args.input<float>(matmul::kB) + begin * g_.n, sum, ScratchAt(args, library_at_)));
    }
    if (num_parts_ == 1) return absl::OkStatus();
    ParallelFor(elements, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        output[i] = TreeSum(0, num_parts_, [&](int64_t p) { return sums[p * elements + i]; });
      }
    });
    return absl::OkStatus();
  }

  MatMulGeometry g_;
  int num_parts_;
  int64_t rows_, last_rows_;  // at a time, and those that are left over at the end
  std::vector<Part> parts_;
  std::string algorithm_;
  ScratchPlan scratch_;
  int64_t sums_at_, library_at_;
};

// The parts of a product for AMX, where oneDNN's sums would else depend on the number of threads; 0 for others. They
// are by their work, which keeps a core busy for some 30 us.
int PartsForAmx(const MatMulGeometry& g, DType dtype) {
  if (dtype != DType::kBFloat16 || !OnednnHasAmx()) return 0;
  constexpr int64_t kProductsOfPart = 16'000'000, kMostParts = 64;
  return static_cast<int>(std::clamp<int64_t>(g.batch * g.m * g.n * g.k / kProductsOfPart, 1, kMostParts));
}

absl::StatusOr<Kernel> MakeMatMul(const KernelSpec& spec) {
  namespace places = matmul;
  const MatMulGeometry g = MatMulGeometryOf(spec.node);
  const int64_t output_bytes = spec.output(places::kY).num_bytes();
  const bool has_bias = spec.node.num_inputs() > places::kBias;
  if (output_bytes == 0 || (g.k == 0 && !has_bias)) {
    return Kernel{[output_bytes](const KernelArgs& args) {
      std::memset(args.outputs[places::kY], 0, output_bytes);
      return absl::OkStatus();
    }};
  }
  if (std::optional<Kernel> dense = MakeDenseForward(spec, g)) return *std::move(dense);
  if (std::optional<Kernel> dense = MakeDenseWeightGradient(spec, g)) return *std::move(dense);
  const DType dtype = spec.input(places::kA).dtype;
  const int num_parts = spec.node.graph().batch_parts();
  if (dtype == DType::kFloat32 && g.batch == 1 && g.transpose_a && !g.transpose_b && !has_bias &&
      WeightGradientInParts::IsWanted(g, num_parts)) {
    const WeightGradientInParts product(g, num_parts);
    return Kernel{.run = [=](const KernelArgs& args) { return product.Run(args); },
                  .scratch_bytes = product.scratch_bytes(),
                  .algorithm = absl::StrCat(num_parts, " parts of the batch, each ", product.algorithm())};
  }
  if (dtype == DType::kFloat32 && !HasAvx512()) {
    const OrderedProduct product = MakeOrderedProduct(g, g.transpose_a ? g.m : g.k, g.transpose_b ? g.k : g.n);
    const bool relu = has_bias && spec.attrs().Get<std::string>("activation") == "Relu";
    return Kernel{.run =
                      [=](const KernelArgs& args) {
                        product.Run(args.input<float>(places::kA), args.input<float>(places::kB),
                                    has_bias ? args.input<float>(places::kBias) : nullptr, relu,
                                    args.output<float>(places::kY), args.scratch);
                        return absl::OkStatus();
                      },
                  .scratch_bytes = product.scratch_bytes(),
                  .algorithm = kOrdered};
  }
  const memory::desc a = MatrixDesc(dtype, g.batch, g.m, g.k, g.transpose_a);
  const memory::desc b = MatrixDesc(dtype, g.batch, g.k, g.n, g.transpose_b);
  const memory::desc y = MatrixDesc(dtype, g.batch, g.m, g.n, false);
  const memory::desc bias =
      has_bias ? memory::desc({1, g.n}, OnednnType(dtype), memory::format_tag::ab) : memory::desc();
  dnnl::primitive_attr attr = OnednnAttr();
  if (has_bias && spec.attrs().Get<std::string>("activation") == "Relu") {
    dnnl::post_ops relu;
    relu.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);  // makes 0 of NaN
    attr.set_post_ops(relu);
  }
  const int parts = PartsForAmx(g, dtype);
  const OnednnParts divided(parts);
  const dnnl::matmul::primitive_desc pd({a, b, bias, y}, attr, OnednnEngine());
  std::vector<OnednnPrimitive::Argument> arguments{
      {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, y}, {DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}};
  if (has_bias) arguments.push_back({DNNL_ARG_BIAS, bias});
  const OnednnPrimitive matmul(dnnl::matmul(pd), arguments);
  return Kernel{.run = [=](const KernelArgs& args) -> absl::Status {
                  const void* const addresses[] = {args.inputs[places::kA], args.inputs[places::kB],
                                                   args.outputs[places::kY], args.scratch,
                                                   has_bias ? args.inputs[places::kBias] : nullptr};
                  const OnednnParts divided(parts);
                  return matmul.Run(absl::MakeConstSpan(addresses, has_bias ? 5 : 4));
                },
                .scratch_bytes = static_cast<int64_t>(pd.scratchpad_desc().get_size()),
                .algorithm = OnednnAlgorithm(pd)};
}

bool RegisterMatMul(OpName op) {
  const KernelFactory factory = [op](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
    return CatchOnednn(op.text(), [&] { return MakeMatMul(spec); });
  };
  return RegisterKernel({
      .op = op,
      .device_kind = "cpu",
      .dtypes = StorageTypes(),
      .make = [factory](const KernelSpec& spec) -> absl::StatusOr<Kernel> {
        if (OnednnComputesIn(spec.input(matmul::kA).dtype)) return factory(spec);
        const MatMulGeometry g = MatMulGeometryOf(spec.node);
        if (std::optional<Kernel> dense = MakeDenseForward(spec, g)) return *std::move(dense);
        if (std::optional<Kernel> dense = MakeDenseWeightGradient(spec, g)) return *std::move(dense);
        return ComputeInFloat(spec, factory);
      },
  });
}

const bool registered[] = {RegisterMatMul(op::MatMul), RegisterMatMul(op::FusedMatMul)};

}  // namespace
}  // namespace official::compute
