#include "utils/compute/ops/pooling/pooling.h"

#include <catch2/catch.hpp>
#include <limits>

#include "utils/compute/graph/op_def.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/reorder/reorder.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

struct Case {
  Shape images;
  PoolParams params;
};

struct Axis {
  int64_t output, before;
};
// TensorFlow's rule, written down once more.
Axis Resolve(int64_t input, int64_t window, int64_t stride, Padding padding, int64_t before, int64_t after) {
  if (padding != Padding::kSame) return {(before + input + after - window) / stride + 1, before};
  const int64_t output = (input + stride - 1) / stride;
  return {output, std::max<int64_t>((output - 1) * stride + window - input, 0) / 2};
}

struct Pooled {
  Doubles max, code, mean;
};

Pooled Pool(const Case& test, const Doubles& x) {
  const PoolParams& p = test.params;
  const int64_t n = test.images.dim(0), h = test.images.dim(1), w = test.images.dim(2), channels = test.images.dim(3);
  const Axis rows = Resolve(h, p.window.height, p.stride.height, p.padding, p.border.top, p.border.bottom);
  const Axis columns = Resolve(w, p.window.width, p.stride.width, p.padding, p.border.left, p.border.right);
  Pooled result;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t oy = 0; oy < rows.output; ++oy) {
      for (int64_t ox = 0; ox < columns.output; ++ox) {
        for (int64_t c = 0; c < channels; ++c) {
          double max = -std::numeric_limits<double>::infinity(), sum = 0;
          int64_t code = -1, count = 0;
          for (int64_t k = 0; k < p.window.height; ++k) {
            for (int64_t l = 0; l < p.window.width; ++l) {
              const int64_t y = oy * p.stride.height - rows.before + k, xx = ox * p.stride.width - columns.before + l;
              if (y < 0 || y >= h || xx < 0 || xx >= w) continue;
              const double value = x[((i * h + y) * w + xx) * channels + c];
              sum += value;
              ++count;
              if (value > max) {
                max = value;
                code = k * p.window.width + l;
              }
            }
          }
          result.max.push_back(max);
          result.code.push_back(static_cast<double>(code));
          result.mean.push_back(sum / static_cast<double>(count));
        }
      }
    }
  }
  return result;
}

Value Blocked(Value x) { return Reorder(x, Layout::kRowMajor, Layout::kChannelBlocked); }
std::vector<OpName> NeededFor(bool blocked) { return std::vector<OpName>(blocked ? 1 : 0, op::Reorder); }

// `distinct` inputs differ by more than a finite difference's step, so that no maximum moves.
Tensor Distinct(const Shape& shape) {
  Tensor x(DType::kFloat32, shape);
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<float>()[i] = static_cast<float>(i * 7919 % 251) / 16 - 8;
  return x;
}

testing::OpCase MaxCase(const Case& test, bool blocked = false) {
  return {
      .op = op::MaxPool,
      .inputs = {Distinct(test.images)},
      .build =
          [=](absl::Span<const Value> in) {
            const Value y = MaxPool(blocked ? Blocked(in[0]) : in[0], test.params);
            return std::vector<Value>{y, y.node()->output(max_pool::kCodes)};
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            const Pooled pooled = Pool(test, in[0]);
            return std::vector<Doubles>{pooled.max, pooled.code};
          },
      .needs = NeededFor(blocked),
  };
}

testing::OpCase AvgCase(const Case& test, bool blocked = false) {
  return {
      .op = op::AvgPool,
      .inputs = {testing::RandomTensor(test.images, 5)},
      .build =
          [=](absl::Span<const Value> in) {
            return std::vector<Value>{AvgPool(blocked ? Blocked(in[0]) : in[0], test.params)};
          },
      .reference = [=](const std::vector<Doubles>& in) { return std::vector<Doubles>{Pool(test, in[0]).mean}; },
      .needs = NeededFor(blocked),
  };
}

const std::vector<Case> kCases = {
    {{2, 4, 6, 3}, {.padding = Padding::kSame}},
    {{1, 5, 7, 1}, {.padding = Padding::kSame}},   // SAME with a rest: windows of one row or column at the end
    {{2, 5, 7, 2}, {.padding = Padding::kValid}},  // the last row and column are in no window
    {{1, 6, 6, 5}, {.window = {3, 3}, .padding = Padding::kSame}},  // overlapping, odd row after the image
    {{1, 7, 5, 2}, {.window = {3, 2}, .stride = {1, 2}, .padding = Padding::kSame}},
    {{1, 5, 5, 3}, {.window = {3, 3}, .padding = Padding::kExplicit, .border = {1, 1, 1, 1}}},
    {{1, 7, 7, 1}, {.window = {2, 2}, .stride = {3, 3}}},  // gaps between windows
    {{1, 1, 1, 17}, {.window = {2, 2}, .padding = Padding::kSame}},
    {{2, 6, 5, 8}, {.window = {3, 3}, .padding = Padding::kSame}},
    {{1, 4, 6, 12}, {.padding = Padding::kSame}},
    {{0, 4, 4, 3}, {}},  // no images, no output
};

TEST_CASE("MaxPool gives the largest value, where it was, and its gradient there") {
  for (const Case& test : kCases) {
    CAPTURE(test.images);
    testing::CheckForward(MaxCase(test));
    testing::CheckGradients(MaxCase(test));
  }
}

TEST_CASE("AvgPool gives the mean of what is inside the image") {
  for (const Case& test : kCases) {
    CAPTURE(test.images);
    testing::CheckForward(AvgCase(test));
    testing::CheckGradients(AvgCase(test));
  }
}

TEST_CASE("Pooling takes blocked images") {
  const Case same{{2, 4, 5, 32}, {.window = {3, 3}, .padding = Padding::kSame}};
  testing::CheckForward(MaxCase(same, true));
  testing::CheckForward(AvgCase(same, true));
  const Case small{{1, 3, 4, 16}, {.padding = Padding::kSame}};
  testing::CheckGradients(MaxCase(small, true));
  testing::CheckGradients(AvgCase(small, true));
}

TEST_CASE("Many images and channels are split over threads without a seam") {
  const Case test{{9, 14, 15, 33}, {.padding = Padding::kSame}};
  testing::CheckForward(MaxCase(test));
}

TEST_CASE("The first of equal maxima takes the gradient, as in TensorFlow") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  const auto build = [](absl::Span<const Value> in) {
    const Value pooled = MaxPool(in[0]);
    const std::vector<Value> dy = {in[1], Value()};
    return pooled.node()->op().gradient(*pooled.node(), dy);
  };
  const Tensor zeros(DType::kFloat32, {1, 2, 2, 1}), five = Tensor::Of<float>({1, 1, 1, 1}, {5});
  const std::vector<Tensor> y = testing::RunOn(kind, {zeros, five}, build);
  CHECK(testing::ToDoubles(y[0]) == Doubles{5, 0, 0, 0});
}

TEST_CASE("The ReLU in front of a pool takes its gradient on the pooled images") {
  const Shape images{2, 6, 7, 3};
  for (const PoolParams& params : {PoolParams{}, PoolParams{.window = {3, 3}, .padding = Padding::kSame}}) {
    const auto build = [&](absl::Span<const Value> in) {
      const std::vector<Value> y = {MaxPool(Relu(in[0]), params)};
      const std::vector<Value> seeds = {Square(Add(y[0], in[0].graph()->Constant(Tensor::Scalar(1.0f))))};
      return Gradients(y, seeds, in);
    };
    const Tensor x = testing::RandomTensor(images, 8);
    const std::vector<OpName> ops = testing::CompiledOps({x.type()}, build);
    CHECK(ops.back() == op::MaxPoolGrad);
    CHECK(std::find(ops.begin(), ops.end(), op::MaxPool) != ops.end());
    // Nothing is rounded otherwise.
    for (const std::string& kind : testing::KindsUnderTest()) {
      INFO(kind);
      CHECK(testing::ToDoubles(testing::RunOn(kind, {x}, build)[0]) ==
            testing::ToDoubles(testing::RunOn(kind, {x}, build, {.fuse = false})[0]));
    }
  }
  // Another y than the one that was pooled: nothing may move.
  const std::vector<OpName> ops =
      testing::CompiledOps({{DType::kFloat32, images}, {DType::kFloat32, images}}, [](absl::Span<const Value> in) {
        const std::vector<Value> y = {MaxPool(in[0])}, seeds = {y[0]}, xs = {in[0]};
        return std::vector<Value>{Apply(op::ReluGrad, {Gradients(y, seeds, xs)[0], in[1]})};
      });
  CHECK(ops.back() == op::ReluGrad);
}

TEST_CASE("Pools that cannot be say why") {
  const auto error = [](Shape images, const PoolParams& params) {
    return std::string(testing::BuildStatus({{DType::kFloat32, images}}, [&](absl::Span<const Value> in) {
                         return std::vector<Value>{MaxPool(in[0], params)};
                       }).message());
  };
  CHECK_THAT(error({2, 3}, {}), Catch::Contains("MaxPool") && Catch::Contains("[N, H, W, C]"));
  CHECK_THAT(error({1, 1, 4, 1}, {}), Catch::Contains("does not fit"));
  CHECK_THAT(error({1, 99, 99, 1}, {.window = {17, 16}}), Catch::Contains("exceeds 256"));
  CHECK_THAT(error({1, 9, 9, 1}, {.padding = Padding::kExplicit, .border = {2, 0, 0, 0}}),
             Catch::Contains("must be below the window"));
}

}  // namespace
}  // namespace official::compute
