// Layer normalization in StableHLO, alone and behind a residual sum.

#include <numeric>
#include <vector>

#include "utils/compute/ops/layer_norm/layer_norm.h"
#include "utils/compute/ops/packed/hlo_packed_rows.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// Tensors [..., C] with numbers for each row and for each column.
class RowsAndColumns {
 public:
  RowsAndColumns(HloBuilder& hlo, const Shape& shape) : hlo_(hlo), shape_(shape), outer_(shape.rank() - 1) {
    std::iota(outer_.begin(), outer_.end(), 0);
  }

  HloValue RepeatRow(const HloValue& per_row) const { return hlo_.BroadcastInDim(per_row, shape_, outer_); }
  HloValue RepeatColumn(const HloValue& per_column) const { return hlo_.Broadcast(per_column, shape_); }
  HloValue MeanOfRows(const HloValue& x) const {
    const HloValue sum = hlo_.Reduce("add", x, 0, {shape_.rank() - 1});
    return hlo_.Div(sum, hlo_.SplatLike(static_cast<double>(shape_.dim(-1)), sum));
  }
  HloValue SumOfColumns(const HloValue& x) const { return hlo_.Sum(x, outer_); }

 private:
  HloBuilder& hlo_;
  const Shape shape_;
  std::vector<int64_t> outer_;
};

struct Normalized {
  HloValue y, mean, inverse;
};

Normalized Normalize(HloBuilder& hlo, const Node& node, const HloValue& x, Value gamma, Value beta) {
  const RowsAndColumns of(hlo, x.shape());
  const HloValue mean = of.MeanOfRows(x), d = hlo.Sub(x, of.RepeatRow(mean));
  const HloValue variance = of.MeanOfRows(hlo.Mul(d, d));
  const HloValue epsilon = hlo.SplatLike(node.attrs().GetFloat("epsilon"), variance);
  const HloValue inverse = hlo.Div(hlo.SplatLike(1, variance), hlo.Unary("sqrt", hlo.Add(variance, epsilon)));
  const HloValue scaled = hlo.Mul(hlo.Mul(d, of.RepeatRow(inverse)), of.RepeatColumn(hlo.In(gamma)));
  return {hlo.Add(scaled, of.RepeatColumn(hlo.In(beta))), mean, inverse};
}

struct Gradients {
  HloValue dx, dgamma, dbeta;
};

// With g = dy * gamma and h the normalized x: dx = inverse * (g - mean(g) - h * mean(g * h))
Gradients GradientsOf(HloBuilder& hlo, const HloValue& x, const HloValue& gamma, const HloValue& mean,
                      const HloValue& inverse, const HloValue& dy) {
  const RowsAndColumns of(hlo, x.shape());
  const HloValue scale = of.RepeatRow(inverse), h = hlo.Mul(hlo.Sub(x, of.RepeatRow(mean)), scale);
  const HloValue g = hlo.Mul(dy, of.RepeatColumn(gamma));
  const HloValue mean_g = of.RepeatRow(of.MeanOfRows(g)), mean_gh = of.RepeatRow(of.MeanOfRows(hlo.Mul(g, h)));
  return {hlo.Mul(scale, hlo.Sub(hlo.Sub(g, mean_g), hlo.Mul(h, mean_gh))), of.SumOfColumns(hlo.Mul(dy, h)),
          of.SumOfColumns(dy)};
}

void EmitLayerNorm(const Node& node, HloBuilder& hlo) {
  namespace places = layer_norm;
  const Normalized normalized =
      Normalize(hlo, node, hlo.InFloat(node.input(places::kX)), node.input(places::kGamma), node.input(places::kBeta));
  hlo.Out(node, places::kY, normalized.y);
  hlo.Out(node, places::kMean, normalized.mean);
  hlo.Out(node, places::kInverseDeviation, normalized.inverse);
}

void EmitLayerNormGrad(const Node& node, HloBuilder& hlo) {
  namespace places = layer_norm_grad;
  const auto in = [&](places::Input place) { return hlo.InFloat(node.input(place)); };
  const Gradients gradients = GradientsOf(hlo, in(places::kX), in(places::kGamma), in(places::kMean),
                                          in(places::kInverseDeviation), in(places::kDy));
  hlo.Out(node, places::kDx, gradients.dx);
  hlo.Out(node, places::kGammaGradient, gradients.dgamma);
  hlo.Out(node, places::kBetaGradient, gradients.dbeta);
}

// x with its dropout.
HloValue Drop(const Node& node, HloBuilder& hlo, const HloPackedRows& rows, const HloValue& x, int random_state) {
  if (node.attrs().GetFloat("dropout_rate") == 0) return x;
  return hlo.Mul(x, rows.DropFactors(node.input(random_state), x.shape().dim(1)));
}

// The sum as it is stored, read again in float32: what is normalized.
HloValue Stored(HloBuilder& hlo, const HloValue& x, DType dtype) {
  return hlo.Convert(hlo.Convert(x, HloElement(dtype)), hlo::kF32);
}

void EmitResidualLayerNorm(const Node& node, HloBuilder& hlo) {
  namespace places = residual_layer_norm;
  const TensorType& type = node.output_types()[places::kSum];
  const HloPackedRows rows(node, hlo, places::kOffsets, type.shape.dim(0), "row");
  // What is in padding is not read: it may be no numbers.
  const HloValue x = rows.ClearPadding(hlo.InFloat(node.input(places::kX)));
  const HloValue sublayer = rows.ClearPadding(hlo.InFloat(node.input(places::kSublayer)));
  const HloValue dropped = Drop(node, hlo, rows, sublayer, places::kRandomState);
  const HloValue sum = Stored(hlo, hlo.Add(x, dropped), type.dtype);
  const Normalized normalized = Normalize(hlo, node, sum, node.input(places::kGamma), node.input(places::kBeta));
  hlo.Out(node, places::kSum, sum);
  hlo.Out(node, places::kNormalized, rows.ClearPadding(normalized.y));
  hlo.Out(node, places::kMean, rows.ClearPadding(normalized.mean));
  hlo.Out(node, places::kInverseDeviation, rows.ClearPadding(normalized.inverse));
}

void EmitResidualLayerNormGrad(const Node& node, HloBuilder& hlo) {
  namespace places = residual_layer_norm_grad;
  const TensorType& type = node.output_types()[places::kDx];
  const HloPackedRows rows(node, hlo, places::kOffsets, type.shape.dim(0), "row");
  const auto in = [&](int place) { return hlo.InFloat(node.input(place)); };
  const HloValue dy = rows.ClearPadding(in(places::kNormalizedGradient));
  const Gradients gradients =
      GradientsOf(hlo, rows.ClearPadding(in(places::kSum)), in(places::kGamma), rows.ClearPadding(in(places::kMean)),
                  rows.ClearPadding(in(places::kInverseDeviation)), dy);
  HloValue dx = gradients.dx;
  if (node.attrs().GetBool("adds")) dx = hlo.Add(dx, rows.ClearPadding(in(node.num_inputs() - 1)));
  dx = Stored(hlo, dx, type.dtype);
  hlo.Out(node, places::kDx, dx);
  hlo.Out(node, places::kSublayerGradient, Drop(node, hlo, rows, dx, places::kRandomState));
  hlo.Out(node, places::kGammaGradient, gradients.dgamma);
  hlo.Out(node, places::kBetaGradient, gradients.dbeta);
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::LayerNorm, .dtypes = StorageTypes(), .emit = EmitLayerNorm}),
    RegisterHloEmitter({.op = op::LayerNormGrad, .dtypes = StorageTypes(), .emit = EmitLayerNormGrad}),
    RegisterHloEmitter({.op = op::ResidualLayerNorm, .dtypes = StorageTypes(), .emit = EmitResidualLayerNorm}),
    RegisterHloEmitter({.op = op::ResidualLayerNormGrad, .dtypes = StorageTypes(), .emit = EmitResidualLayerNormGrad}),
};

}  // namespace
}  // namespace official::compute
