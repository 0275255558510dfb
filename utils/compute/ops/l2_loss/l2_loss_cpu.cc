// CPU kernel of L2Loss: the inputs are cut into pieces of a size of their own, whose sums are added in order.

#include <algorithm>
#include <vector>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/l2_loss/l2_loss.h"

namespace official::compute {
namespace {

constexpr int64_t kPiece = 16384;  // elements
constexpr int64_t kBlock = 1024;   // elements that are added in float

struct Piece {
  int input;
  int64_t begin, size;
};

inline double SumOfSquares(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    float block = 0;
#pragma omp simd reduction(+ : block)
    for (int64_t i = begin; i < end; ++i) block += x[i] * x[i];
    sum += block;
  }
  return sum;
}

absl::StatusOr<Kernel> Make(const KernelSpec& spec) {
  std::vector<Piece> pieces;
  for (int i = 0; i < spec.node.num_inputs(); ++i) {
    const int64_t size = spec.input(i).shape.num_elements();
    for (int64_t begin = 0; begin < size; begin += kPiece) pieces.push_back({i, begin, std::min(kPiece, size - begin)});
  }
  const auto scratch_bytes = static_cast<int64_t>(pieces.size() * sizeof(double));
  return Kernel{.run =
                    [pieces = std::move(pieces)](const KernelArgs& args) {
                      double* const sums = static_cast<double*>(args.scratch);
                      ParallelFor(pieces.size(), 1, [&](int64_t begin, int64_t end) {
                        WithSimd([&] {
                          for (int64_t i = begin; i < end; ++i) {
                            const Piece& piece = pieces[i];
                            sums[i] = SumOfSquares(args.input<float>(piece.input) + piece.begin, piece.size);
                          }
                        });
                      });
                      double sum = 0;
                      for (size_t i = 0; i < pieces.size(); ++i) sum += sums[i];
                      *args.output<float>(0) = static_cast<float>(sum / 2);
                      return absl::OkStatus();
                    },
                .scratch_bytes = scratch_bytes};
}

const bool registered =
    RegisterKernel({.op = op::L2Loss, .device_kind = "cpu", .dtypes = {DType::kFloat32}, .make = Make});

}  // namespace
}  // namespace official::compute
