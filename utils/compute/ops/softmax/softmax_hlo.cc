// Softmax and cross entropy in StableHLO: rows in float32, whatever they are stored as.

#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/softmax/cross_entropy.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_rows.h"

namespace official::compute {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Reduces each row to a number.
HloValue ReduceRows(HloBuilder& hlo, const char* op, const HloValue& x, double init) {
  return hlo.Reduce(op, x, init, {x.shape().rank() - 1});
}

// A number for each row, in all columns of `shape`.
HloValue InColumns(HloBuilder& hlo, const HloValue& rows, const Shape& shape) {
  std::vector<int64_t> dims(rows.shape().rank());
  std::iota(dims.begin(), dims.end(), 0);
  return hlo.BroadcastInDim(rows, shape, dims);
}

// The logarithm of the sum of a row's exponentials in two parts: the largest element and the rest.
struct LogSum {
  HloValue max, rest;
};
LogSum LogSumOf(HloBuilder& hlo, const HloValue& x) {
  const HloValue max = ReduceRows(hlo, "maximum", x, -kInfinity);
  const HloValue shifted = hlo.Sub(x, InColumns(hlo, max, x.shape()));
  return {max, hlo.Unary("log", ReduceRows(hlo, "add", hlo.Unary("exponential", shifted), 0))};
}

void EmitSoftmax(const Node& node, HloBuilder& hlo) {
  const HloValue x = hlo.InFloat(node.input(0));
  const HloValue max = ReduceRows(hlo, "maximum", x, -kInfinity);
  const HloValue e = hlo.Unary("exponential", hlo.Sub(x, InColumns(hlo, max, x.shape())));
  hlo.Out(node, 0, hlo.Div(e, InColumns(hlo, ReduceRows(hlo, "add", e, 0), x.shape())));
}

void EmitLogSoftmax(const Node& node, HloBuilder& hlo) {
  const HloValue x = hlo.InFloat(node.input(0));
  const LogSum log_sum = LogSumOf(hlo, x);
  const HloValue shifted = hlo.Sub(x, InColumns(hlo, log_sum.max, x.shape()));
  hlo.Out(node, 0, hlo.Sub(shifted, InColumns(hlo, log_sum.rest, x.shape())));
}

void EmitLogSumExp(const Node& node, HloBuilder& hlo) {
  const LogSum log_sum = LogSumOf(hlo, hlo.InFloat(node.input(0)));
  hlo.Out(node, 0, hlo.Add(log_sum.rest, log_sum.max));
}

// dx = y * (dy - sum(y * dy))
void EmitSoftmaxGrad(const Node& node, HloBuilder& hlo) {
  const HloValue y = hlo.InFloat(node.input(softmax_grad::kY)), dy = hlo.InFloat(node.input(softmax_grad::kDy));
  const HloValue dot = InColumns(hlo, ReduceRows(hlo, "add", hlo.Mul(y, dy), 0), y.shape());
  hlo.Out(node, softmax_grad::kDx, hlo.Mul(y, hlo.Sub(dy, dot)));
}

// dx = dy - exp(y) * sum(dy)
void EmitLogSoftmaxGrad(const Node& node, HloBuilder& hlo) {
  const HloValue y = hlo.InFloat(node.input(softmax_grad::kY)), dy = hlo.InFloat(node.input(softmax_grad::kDy));
  const HloValue sum = InColumns(hlo, ReduceRows(hlo, "add", dy, 0), y.shape());
  hlo.Out(node, softmax_grad::kDx, hlo.Sub(dy, hlo.Mul(hlo.Unary("exponential", y), sum)));
}

// bool, as the logits: true at the label.
HloValue IsLabel(HloBuilder& hlo, const HloValue& labels, const Shape& logits) {
  const HloValue columns = hlo.Iota({labels.element(), logits}, logits.rank() - 1);
  return hlo.Compare("EQ", columns, InColumns(hlo, labels, logits));
}

// bool: true for the rows with this label, all false if no label is one of padding.
HloValue IsPadding(HloBuilder& hlo, const CrossEntropy& c, const HloValue& labels) {
  return c.padding_label < 0 ? hlo.Splat(0, {hlo::kI1, labels.shape()})
                             : hlo.Compare("EQ", labels, hlo.SplatLike(static_cast<double>(c.padding_label), labels));
}

// The first row whose label is outside the classes fails the run.
void CheckLabels(const Node& node, HloBuilder& hlo, const CrossEntropy& c, const HloValue& labels) {
  const HloValue flat = hlo.Reshape(labels, {c.rows.count});
  HloCheckNone(node, hlo, HloIsOutside(hlo, flat, c.classes), flat,
               absl::StrCat("label $0 of example $1 is outside [0, ", c.classes, ")"));
}

// The logits of the classes, the first elements of each row.
HloValue LogitsOf(HloBuilder& hlo, const CrossEntropy& c, Value logits) {
  const HloValue x = hlo.InFloat(logits);
  std::vector<int64_t> end(x.shape().dims().begin(), x.shape().dims().end());
  end.back() = c.classes;
  return c.classes == c.rows.size ? x : hlo.Slice(x, std::vector<int64_t>(end.size(), 0), end);
}

void EmitCrossEntropy(const Node& node, HloBuilder& hlo) {
  namespace places = sparse_softmax_cross_entropy;
  const CrossEntropy c(node);
  const HloValue x = LogitsOf(hlo, c, node.input(places::kLogits)), labels = hlo.In(node.input(places::kLabels));
  CheckLabels(node, hlo, c, labels);
  const LogSum parts = LogSumOf(hlo, x);
  const HloValue log_sum = hlo.Add(parts.rest, parts.max), zeros = hlo.SplatLike(0, log_sum);
  const HloValue at_label =
      ReduceRows(hlo, "add", hlo.Select(IsLabel(hlo, labels, x.shape()), x, hlo.SplatLike(0, x)), 0);
  // CrossEntropy::Loss, for all rows
  HloValue loss = hlo.Mul(hlo.Sub(log_sum, at_label), hlo.SplatLike(c.target - c.other_target, log_sum));
  loss = hlo.Sub(loss, hlo.SplatLike(c.entropy, loss));
  if (c.IsSmooth()) {
    const HloValue shifted = hlo.Sub(x, InColumns(hlo, parts.max, x.shape()));
    const HloValue all = hlo.Sub(ReduceRows(hlo, "add", shifted, 0),
                                 hlo.Mul(parts.rest, hlo.SplatLike(static_cast<double>(c.classes), log_sum)));
    loss = hlo.Sub(loss, hlo.Mul(all, hlo.SplatLike(c.other_target, all)));
  }
  const HloValue padding = IsPadding(hlo, c, labels);
  hlo.Out(node, places::kLosses, hlo.Select(padding, zeros, loss));
  hlo.Out(node, places::kLogSums, hlo.Select(padding, zeros, log_sum));
}

// (softmax - target) * dy
void EmitCrossEntropyGrad(const Node& node, HloBuilder& hlo) {
  namespace places = sparse_softmax_cross_entropy_grad;
  const CrossEntropy c(node);
  const HloValue x = LogitsOf(hlo, c, node.input(places::kLogits)), labels = hlo.In(node.input(places::kLabels));
  const Shape& shape = x.shape();
  const HloValue log_sum = InColumns(hlo, hlo.In(node.input(places::kLogSums)), shape);
  const HloValue target =
      hlo.Select(IsLabel(hlo, labels, shape), hlo.SplatLike(c.target, x), hlo.SplatLike(c.other_target, x));
  const HloValue dy = InColumns(hlo, hlo.In(node.input(places::kLossGradients)), shape);
  const HloValue dx = hlo.Mul(hlo.Sub(hlo.Unary("exponential", hlo.Sub(x, log_sum)), target), dy);
  const HloValue padding = InColumns(hlo, IsPadding(hlo, c, labels), shape);
  // What is behind the classes has no gradient.
  std::vector<int64_t> none(shape.rank(), 0), behind = none;
  behind.back() = c.rows.size - c.classes;
  hlo.Out(node, places::kLogitsGradient,
          hlo.Pad(hlo.Select(padding, hlo.SplatLike(0, dx), dx), hlo.Splat(0, {hlo::kF32, {}}), none, behind, none));
}

const bool registered[] = {
    RegisterHloEmitter({.op = op::Softmax, .dtypes = StorageTypes(), .emit = EmitSoftmax}),
    RegisterHloEmitter({.op = op::SoftmaxGrad, .dtypes = StorageTypes(), .emit = EmitSoftmaxGrad}),
    RegisterHloEmitter({.op = op::LogSoftmax, .dtypes = StorageTypes(), .emit = EmitLogSoftmax}),
    RegisterHloEmitter({.op = op::LogSoftmaxGrad, .dtypes = StorageTypes(), .emit = EmitLogSoftmaxGrad}),
    RegisterHloEmitter({.op = op::LogSumExp, .dtypes = StorageTypes(), .emit = EmitLogSumExp}),
    RegisterHloEmitter({.op = op::SparseSoftmaxCrossEntropy, .dtypes = StorageTypes(), .emit = EmitCrossEntropy}),
    RegisterHloEmitter(
        {.op = op::SparseSoftmaxCrossEntropyGrad, .dtypes = StorageTypes(), .emit = EmitCrossEntropyGrad}),
};

}  // namespace
}  // namespace official::compute
