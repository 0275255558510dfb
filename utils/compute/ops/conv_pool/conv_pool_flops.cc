#include "utils/compute/graph/node_cost.h"
#include "utils/compute/ops/conv_pool/geometry.h"

namespace official::compute {
namespace {

namespace forward = conv_pool;
namespace backprop = conv_pool_backprop;

// The convolution has four pixels for each of the pooled image, and each is the sum over a filter.
double Flops(const Value& pooled, const Value& filters) {
  const auto sums = static_cast<double>(4 * pooled.shape().num_elements());
  return 2 * sums * static_cast<double>(filters.shape().num_elements() / filters.shape().dim(3));
}

double ForwardFlops(const Node& node) { return Flops(node.output(forward::kPooled), node.input(forward::kFilters)); }

double BackpropFilterFlops(const Node& node) {
  return Flops(node.input(backprop::kPooledGradient), node.output(backprop::kFilterGradient));
}

double BackpropInputFlops(const Node& node) {
  return Flops(node.input(backprop::kPooledGradient), node.input(backprop::kFilters));
}

const bool registered[] = {
    RegisterFlops(op::FusedConv2DReluMaxPool, ForwardFlops),
    RegisterFlops(op::FusedConv2DReluMaxPoolBackpropFilter, BackpropFilterFlops),
    RegisterFlops(op::FusedConv2DReluMaxPoolBackpropInput, BackpropInputFlops),
};

}  // namespace
}  // namespace official::compute
