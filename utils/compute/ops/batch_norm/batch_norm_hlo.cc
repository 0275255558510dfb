// Batch normalization in StableHLO, also with what programs merge with it: a residual, a ReLU, an addend of the
// gradient.

#include <algorithm>
#include <string>
#include <vector>

#include "utils/compute/ops/batch_norm/batch_norm.h"
#include "utils/compute/pjrt/hlo_emitter.h"

namespace official::compute {
namespace {

// Images [..., C] and numbers for each channel, [C].
class Channels {
 public:
  Channels(HloBuilder& hlo, const Shape& shape) : hlo_(hlo), shape_(shape) {
    for (int i = 0; i < shape.rank() - 1; ++i) rows_.push_back(i);
  }

  double count() const { return static_cast<double>(shape_.Product(0, shape_.rank() - 1)); }
  HloValue Sum(const HloValue& x) { return hlo_.Sum(x, rows_); }
  HloValue Mean(const HloValue& x) {
    const HloValue sum = Sum(x);
    return hlo_.Div(sum, hlo_.SplatLike(std::max(count(), 1.0), sum));  // 0 without elements
  }
  HloValue Repeat(const HloValue& per_channel) { return hlo_.Broadcast(per_channel, shape_); }

 private:
  HloBuilder& hlo_;
  const Shape& shape_;
  std::vector<int64_t> rows_;
};

HloValue InverseDeviation(HloBuilder& hlo, const Node& node, const HloValue& variance) {
  const HloValue epsilon = hlo.SplatLike(node.attrs().GetFloat("epsilon"), variance);
  return hlo.Div(hlo.SplatLike(1, variance), hlo.Unary("sqrt", hlo.Add(variance, epsilon)));
}

// (x - mean) * inverse * gamma + beta
HloValue Normalize(HloBuilder& hlo, Channels& channels, const HloValue& x, const HloValue& mean,
                   const HloValue& inverse, const HloValue& gamma, const HloValue& beta) {
  const HloValue scale = channels.Repeat(hlo.Mul(inverse, gamma));
  return hlo.Add(hlo.Mul(hlo.Sub(x, channels.Repeat(mean)), scale), channels.Repeat(beta));
}

// activation(y + residual), the last input if the node has more than `residual`
HloValue Activate(HloBuilder& hlo, const Node& node, HloValue y, int residual) {
  if (node.num_inputs() > residual) y = hlo.Add(y, hlo.InFloat(node.input(residual)));
  if (node.attrs().Get<std::string>("activation") != "Relu") return y;
  const HloValue zero = hlo.SplatLike(0, y);
  return hlo.Select(hlo.Compare("LT", y, zero), zero, y);  // NaN stays NaN
}

void EmitTraining(const Node& node, HloBuilder& hlo) {
  namespace places = fused_batch_norm;
  const HloValue x = hlo.InFloat(node.input(places::kX));
  Channels channels(hlo, node.input(places::kX).shape());
  const HloValue mean = channels.Mean(x), centered = hlo.Sub(x, channels.Repeat(mean));
  const HloValue variance = channels.Mean(hlo.Mul(centered, centered));
  const HloValue inverse = InverseDeviation(hlo, node, variance);
  const double n = channels.count();
  const HloValue y =
      Normalize(hlo, channels, x, mean, inverse, hlo.In(node.input(places::kGamma)), hlo.In(node.input(places::kBeta)));
  hlo.Out(node, places::kY, Activate(hlo, node, y, places::kResidual));
  hlo.Out(node, places::kMean, mean);
  hlo.Out(node, places::kVariance, hlo.Mul(variance, hlo.SplatLike(n / std::max(n - 1, 1.0), variance)));
  hlo.Out(node, places::kInverseDeviation, inverse);
}

void EmitInference(const Node& node, HloBuilder& hlo) {
  namespace places = fused_batch_norm_inference;
  Channels channels(hlo, node.input(places::kX).shape());
  const auto in = [&](places::Input place) { return hlo.In(node.input(place)); };
  const HloValue inverse = InverseDeviation(hlo, node, in(places::kVariance));
  const HloValue y = Normalize(hlo, channels, hlo.InFloat(node.input(places::kX)), in(places::kMean), inverse,
                               in(places::kGamma), in(places::kBeta));
  hlo.Out(node, 0, Activate(hlo, node, y, places::kResidual));
}

// With h the normalized x: dx = gamma * inverse * (dy - mean(dy) - h * mean(dy * h)), dgamma = sum(dy * h),
// dbeta = sum(dy). With beta, dy counts where the normalization's result was positive.
void EmitGradient(const Node& node, HloBuilder& hlo) {
  namespace places = fused_batch_norm_grad;
  Channels channels(hlo, node.input(places::kX).shape());
  const auto in = [&](places::Input place) { return hlo.In(node.input(place)); };
  const places::OptionalInputs optional = places::OptionalInputsOf(node);
  HloValue dy = hlo.InFloat(node.input(places::kDy));
  const HloValue x = hlo.InFloat(node.input(places::kX)), inverse = in(places::kInverseDeviation);
  if (optional.beta) {
    const HloValue y = Normalize(hlo, channels, x, in(places::kMean), inverse, in(places::kGamma), in(places::kBeta));
    dy = hlo.Select(hlo.Compare("GT", y, hlo.SplatLike(0, y)), dy, hlo.SplatLike(0, dy));
  }
  const HloValue h = hlo.Mul(hlo.Sub(x, channels.Repeat(in(places::kMean))), channels.Repeat(inverse));
  const HloValue dgamma = channels.Sum(hlo.Mul(dy, h)), dbeta = channels.Sum(dy);
  const HloValue count = hlo.SplatLike(std::max(channels.count(), 1.0), dbeta);
  const HloValue mean_part = channels.Repeat(hlo.Div(dbeta, count));
  const HloValue h_part = hlo.Mul(h, channels.Repeat(hlo.Div(dgamma, count)));
  const HloValue scale = channels.Repeat(hlo.Mul(inverse, in(places::kGamma)));
  const HloValue dx = hlo.Mul(scale, hlo.Sub(hlo.Sub(dy, mean_part), h_part));
  hlo.Out(node, places::kDx, optional.addend ? hlo.Add(dx, hlo.InFloat(node.input(*optional.addend))) : dx);
  hlo.Out(node, places::kGammaGradient, dgamma);
  hlo.Out(node, places::kBetaGradient, dbeta);
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::FusedBatchNorm, .dtypes = StorageTypes(), .emit = EmitTraining}),
    RegisterHloEmitter({.op = op::FusedBatchNormInference, .dtypes = StorageTypes(), .emit = EmitInference}),
    RegisterHloEmitter({.op = op::FusedBatchNormGrad, .dtypes = StorageTypes(), .emit = EmitGradient}),
};

}  // namespace
}  // namespace official::compute
