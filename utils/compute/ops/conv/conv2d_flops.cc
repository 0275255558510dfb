#include "utils/compute/graph/node_cost.h"
#include "utils/compute/ops/conv/conv.h"

namespace official::compute {
namespace {

namespace backprop_input = conv2d_backprop_input;
namespace backprop_filter = conv2d_backprop_filter;

// Each pixel of `result` is the sum over a filter.
double Flops(const Value& result, const Value& filters) {
  const auto sums = static_cast<double>(result.shape().num_elements());
  return 2 * sums * static_cast<double>(filters.shape().num_elements() / filters.shape().dim(3));
}

double ForwardFlops(const Node& node) { return Flops(node.output(0), node.input(conv2d::kFilters)); }

double BackpropInputFlops(const Node& node) {
  return Flops(node.input(backprop_input::kDy), node.input(backprop_input::kFilters));
}

double BackpropFilterFlops(const Node& node) {
  return Flops(node.input(backprop_filter::kDy), node.output(backprop_filter::kFilterGradient));
}

const bool registered[] = {
    RegisterFlops(op::Conv2D, ForwardFlops),
    RegisterFlops(op::FusedConv2D, ForwardFlops),
    RegisterFlops(op::Conv2DBackpropInput, BackpropInputFlops),
    RegisterFlops(op::Conv2DBackpropFilter, BackpropFilterFlops),
    RegisterFlops(op::FusedConv2DBackpropFilter, BackpropFilterFlops),
};

}  // namespace
}  // namespace official::compute
