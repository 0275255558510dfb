#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"

namespace official::compute {

// Two sums over the devices, the second about the mean that the first one gives: no difference of large numbers.
BatchNormResult SyncBatchNorm(Value x, Value gamma, Value beta, Value weight, double epsilon) {
  if (!x || !weight) return {};
  Graph& graph = *x.graph();
  if (x.shape().rank() < 2) {
    graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("SyncBatchNorm: needs x [..., C] of rank 2 or more, got ", x.type().ToString())));
    return {};
  }
  const auto constant = [&](double value) { return graph.Constant(Tensor::Scalar(static_cast<float>(value))); };
  const auto sum = [](Value v) { return AllReduce({v}, /*num_packs=*/1)[0]; };
  const Value values = x.dtype() == DType::kFloat32 ? x : Cast(x, DType::kFloat32);
  std::vector<int64_t> axes(x.shape().rank() - 1);
  std::iota(axes.begin(), axes.end(), 0);
  const int64_t count = x.shape().num_elements() / std::max<int64_t>(1, x.shape().dim(-1));

  // Without examples the mean is no number, and the sum is 0.
  const auto mean_of = [&](Value v) { return count == 0 ? Sum(v, axes) : Mean(v, axes); };

  const Value mean = sum(Mul(mean_of(values), weight));
  const Value centered = Sub(values, mean);
  const Value variance = sum(Mul(mean_of(Square(centered)), weight));
  const Value y = Add(Mul(centered, Mul(gamma, Rsqrt(Add(variance, constant(epsilon))))), beta);
  // A device of weight 0 has no examples.
  const Value all = sum(Mul(constant(static_cast<double>(count)), Sign(weight)));
  const Value bessel = Div(all, Maximum(Sub(all, constant(1)), constant(1)));
  return {x.dtype() == DType::kFloat32 ? y : Cast(y, x.dtype()), mean, Mul(variance, bessel)};
}

}  // namespace official::compute
