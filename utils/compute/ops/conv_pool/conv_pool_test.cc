#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/conv_pool/geometry.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/pooling/pooling.h"
#include "utils/compute/ops/reorder/reorder.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using Build = std::function<std::vector<Value>(absl::Span<const Value>)>;
using Ops = std::vector<OpName>;

constexpr OpName kForward = op::FusedConv2DReluMaxPool;
constexpr OpName kBackpropFilter = op::FusedConv2DReluMaxPoolBackpropFilter;
constexpr OpName kBackpropInput = op::FusedConv2DReluMaxPoolBackpropInput;

// Images [n, h, w, c], filters [k, k, c, o].
struct Case {
  int64_t n, h, w, c, o, k;

  Shape images() const { return {n, h, w, c}; }
  Shape filters() const { return {k, k, c, o}; }
  Shape pooled() const { return {n, h / 2, w / 2, o}; }
};
std::ostream& operator<<(std::ostream& os, const Case& s) { return os << s.images() << " * " << s.filters(); }

// Tiles of several widths, one vector of output columns and two, several blocks of input channels, images as narrow as
// a window, fewer images than threads, and more pooled rows than a block of a GPU takes.
const std::vector<Case> kCases = {
    {2, 6, 10, 16, 16, 5}, {2, 14, 14, 32, 64, 5}, {3, 28, 28, 1, 32, 5}, {2, 16, 18, 48, 16, 3},
    {1, 4, 2, 1, 48, 3},   {3, 20, 34, 16, 32, 3}, {1, 2, 2, 16, 16, 5},  {150, 4, 2, 1, 16, 3},
};

// Calls f(oy, ox, iy, ix, ky, kx) for each product of an output and an input pixel.
template <typename F>
void ForTaps(const Case& s, int64_t oy, int64_t ox, F&& f) {
  for (int64_t ky = 0; ky < s.k; ++ky) {
    for (int64_t kx = 0; kx < s.k; ++kx) {
      const int64_t iy = oy + ky - s.k / 2, ix = ox + kx - s.k / 2;
      if (iy >= 0 && ix >= 0 && iy < s.h && ix < s.w) f(iy, ix, ky, kx);
    }
  }
}

// Calls f(i, n, py, px, o) for each pooled value i.
template <typename F>
void ForPooled(const Case& s, F&& f) {
  int64_t i = 0;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t py = 0; py < s.h / 2; ++py) {
      for (int64_t px = 0; px < s.w / 2; ++px) {
        for (int64_t o = 0; o < s.o; ++o) f(i++, n, py, px, o);
      }
    }
  }
}

std::vector<Doubles> Forward(const Case& s, const Doubles& images, const Doubles& filters, const Doubles& bias) {
  Doubles pooled, codes;
  ForPooled(s, [&](int64_t, int64_t n, int64_t py, int64_t px, int64_t o) {
    double best = -std::numeric_limits<double>::infinity(), code = 0;
    for (int64_t q = 0; q < 4; ++q) {
      double sum = bias[o];
      ForTaps(s, 2 * py + q / 2, 2 * px + q % 2, [&](int64_t iy, int64_t ix, int64_t ky, int64_t kx) {
        for (int64_t c = 0; c < s.c; ++c) {
          sum += images[((n * s.h + iy) * s.w + ix) * s.c + c] * filters[((ky * s.k + kx) * s.c + c) * s.o + o];
        }
      });
      if (sum > best) best = sum, code = static_cast<double>(q);
    }
    pooled.push_back(std::max(best, 0.0));
    codes.push_back(best > 0 ? code : 4);
  });
  return {pooled, codes};
}

// Gradients of images, filters and bias.
std::vector<Doubles> Backward(const Case& s, const Doubles& images, const Doubles& filters, const Doubles& codes,
                              const Doubles& dy) {
  Doubles d_images(s.images().num_elements()), d_filters(s.filters().num_elements()), d_bias(s.o);
  ForPooled(s, [&](int64_t i, int64_t n, int64_t py, int64_t px, int64_t o) {
    if (codes[i] == 4) return;
    const int64_t code = static_cast<int64_t>(codes[i]);
    d_bias[o] += dy[i];
    ForTaps(s, 2 * py + code / 2, 2 * px + code % 2, [&](int64_t iy, int64_t ix, int64_t ky, int64_t kx) {
      for (int64_t c = 0; c < s.c; ++c) {
        const int64_t image = ((n * s.h + iy) * s.w + ix) * s.c + c;
        const int64_t filter = ((ky * s.k + kx) * s.c + c) * s.o + o;
        if (!filters.empty()) d_images[image] += dy[i] * filters[filter];
        if (!images.empty()) d_filters[filter] += dy[i] * images[image];
      }
    });
  });
  return {d_images, d_filters, d_bias};
}

Attrs FilterShape(const Case& s) { return Attrs{{"filter_shape", std::vector<int64_t>{s.k, s.k, s.c, s.o}}}; }

std::vector<Value> Outputs(OpName op, absl::Span<const Value> inputs, const Attrs& attrs = {}) {
  const Node* const node = ApplyNode(op, inputs, attrs);
  REQUIRE(node != nullptr);
  std::vector<Value> outputs;
  for (int i = 0; i < node->num_outputs(); ++i) outputs.push_back(node->output(i));
  return outputs;
}

TEST_CASE("The three ops compute what loops compute") {
  for (const Case& s : kCases) {
    CAPTURE(s);
    const Tensor images = testing::RandomTensor(s.images(), 1), filters = testing::RandomTensor(s.filters(), 2);
    // Filter gradients are sums over all pixels: smaller numbers keep them where the tolerance is meant for.
    const Tensor dy = testing::RandomTensor(s.pooled(), 3, -0.1, 0.1);
    const Tensor codes = testing::RandomInts(s.pooled(), 4, 5).CastTo(DType::kUInt8);
    testing::CheckForward({
        .op = kForward,
        .inputs = {images, filters, testing::RandomTensor({s.o}, 5)},
        .build = [](absl::Span<const Value> in) { return Outputs(kForward, in); },
        .reference = [&](const std::vector<Doubles>& in) { return Forward(s, in[0], in[1], in[2]); },
    });
    testing::CheckForward({
        .op = kBackpropFilter,
        .inputs = {images, codes, dy},
        .build = [&](absl::Span<const Value> in) { return Outputs(kBackpropFilter, in, FilterShape(s)); },
        .reference =
            [&](const std::vector<Doubles>& in) {
              const std::vector<Doubles> all = Backward(s, in[0], {}, in[1], in[2]);
              return std::vector<Doubles>{all[1], all[2]};
            },
    });
    if (s.c == 1) continue;
    testing::CheckForward({
        .op = kBackpropInput,
        .inputs = {filters, codes, dy},
        .build = [](absl::Span<const Value> in) { return Outputs(kBackpropInput, in); },
        .reference =
            [&](const std::vector<Doubles>& in) {
              return std::vector<Doubles>{Backward(s, {}, in[0], in[1], in[2])[0]};
            },
    });
  }
}

Value Layer(Value images, Value filters, Value bias, const Conv2DParams& conv = {}, const PoolParams& pool = {}) {
  return MaxPool(Relu(BiasAdd(Conv2D(images, filters, conv), bias)), pool);
}

std::vector<TensorType> TypesOf(const std::vector<Tensor>& tensors) {
  std::vector<TensorType> types;
  for (const Tensor& t : tensors) types.push_back(t.type());
  return types;
}

// The largest difference, relative to the largest magnitude of `want`; infinite unless the same are infinite and NaN.
double Difference(const Doubles& got, const Doubles& want) {
  REQUIRE(got.size() == want.size());
  double largest = 1e-30, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(want[i])) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, std::abs(got[i] - want[i]));
  }
  for (const double x : want) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  return difference / largest;
}

// The ops of the compiled program but Reorders, which stand where a plain convolution wants its images blocked.
Ops CompiledOps(const std::vector<TensorType>& types, const Build& build) {
  Ops ops = testing::CompiledOps(types, build);
  ops.erase(std::remove(ops.begin(), ops.end(), op::Reorder), ops.end());
  return ops;
}

// The ops of the compiled program, whose results must be those of the program without fusion.
Ops Fused(const std::vector<Tensor>& inputs, const Build& build) {
  for (const std::string& kind : testing::KindsUnderTest()) {
    const std::vector<Tensor> fused = testing::RunOn(kind, inputs, build);
    const std::vector<Tensor> plain = testing::RunOn(kind, inputs, build, {.fuse = false});
    for (size_t i = 0; i < fused.size(); ++i) {
      INFO(kind << ", output " << i);
      CHECK(Difference(testing::ToDoubles(fused[i]), testing::ToDoubles(plain[i])) < 1e-5);
    }
  }
  return CompiledOps(TypesOf(inputs), build);
}

std::vector<Value> GradientsOf(Value y, Value seed, const std::vector<Value>& xs) {
  const std::vector<Value> ys = {y}, seeds = {seed};
  return Gradients(ys, seeds, xs);
}

// Inputs of a layer: images, filters, bias, output gradient.
std::vector<Tensor> LayerInputs(const Case& s) {
  return {testing::RandomTensor(s.images(), 1), testing::RandomTensor(s.filters(), 2, -0.2, 0.2),
          testing::RandomTensor({s.o}, 3), testing::RandomTensor(s.pooled(), 4)};
}

TEST_CASE("A layer and its gradients are three kernels") {
  for (const Case& s : kCases) {
    CAPTURE(s);
    const std::vector<Tensor> inputs = LayerInputs(s);
    CHECK(Fused(inputs, [](auto in) { return std::vector<Value>{Layer(in[0], in[1], in[2])}; }) == Ops{kForward});
    const Ops ops = Fused(inputs, [](auto in) {
      const Value y = Layer(in[0], in[1], in[2]);
      std::vector<Value> result = GradientsOf(y, in[3], {in[1], in[2]});
      result.push_back(y);
      return result;
    });
    CHECK(ops == Ops{kForward, kBackpropFilter});
    if (s.c == 1) continue;
    CHECK(Fused(inputs, [](auto in) {
            return GradientsOf(Layer(in[0], in[1], in[2]), in[3], {in[0], in[1], in[2]});
          }).size() == 3);
    CHECK(Fused(inputs, [](auto in) { return GradientsOf(Layer(in[0], in[1], in[2]), in[3], {in[0]}); }) ==
          Ops{kForward, kBackpropInput});
    CHECK(Fused(inputs, [](auto in) { return GradientsOf(Layer(in[0], in[1], in[2]), in[3], {in[1]}); }) ==
          Ops{kForward, kBackpropFilter});
  }
}

TEST_CASE("Two layers, one after the other") {
  const Case first{3, 12, 8, 1, 32, 5}, second{3, 6, 4, 32, 16, 5};
  std::vector<Tensor> inputs = LayerInputs(first);
  for (const Tensor& t : LayerInputs(second)) inputs.push_back(t);
  const Ops ops = Fused(inputs, [](auto in) {
    const Value y = Layer(Layer(in[0], in[1], in[2]), in[5], in[6]);
    return GradientsOf(y, in[7], {in[1], in[2], in[5], in[6]});
  });
  CHECK(std::count(ops.begin(), ops.end(), kForward) == 2);
  CHECK(std::count(ops.begin(), ops.end(), kBackpropFilter) == 2);
  CHECK(std::count(ops.begin(), ops.end(), kBackpropInput) == 1);
  CHECK(ops.size() == 5);
}

TEST_CASE("Explicit padding that is SAME's, and a pool with SAME padding, are the same layer") {
  const std::vector<Tensor> inputs = LayerInputs({1, 6, 6, 16, 16, 3});
  CHECK(Fused(inputs, [](auto in) {
          return std::vector<Value>{Layer(in[0], in[1], in[2], {.padding = Padding::kExplicit, .border = {1, 1, 1, 1}},
                                          {.padding = Padding::kSame})};
        }) == Ops{kForward});
}

bool Contains(const Ops& ops, OpName op) { return std::find(ops.begin(), ops.end(), op) != ops.end(); }

TEST_CASE("Layers that the kernels do not take stay as they are") {
  struct Misfit {
    Case shape;
    Conv2DParams conv = {};
    PoolParams pool = {};
  };
  const Case fits{1, 8, 8, 16, 16, 3};
  for (const Misfit& m : std::vector<Misfit>{
           {{1, 8, 8, 3, 16, 3}},                                            // channels in
           {{1, 8, 8, 16, 24, 3}},                                           // channels out
           {{1, 8, 8, 16, 16, 7}},                                           // kernel
           {{1, 7, 8, 16, 16, 3}},                                           // odd height
           {{1, 8, 9, 16, 16, 3}},                                           // odd width
           {{0, 8, 8, 16, 16, 3}},                                           // no images
           {{1, 2, 2, 192, 160, 3}},                                         // more than 1 MB of filters
           {fits, {.stride = {2, 2}}},                                       //
           {fits, {.dilation = {2, 2}}},                                     //
           {fits, {.padding = Padding::kValid}},                             //
           {fits, {.padding = Padding::kExplicit, .border = {2, 0, 1, 1}}},  // not centred
           {fits, {}, {.window = {3, 3}}},                                   //
           {fits, {}, {.stride = {1, 1}}},                                   //
           {fits, {}, {.padding = Padding::kExplicit, .border = {1, 1, 0, 0}}},
       }) {
    CAPTURE(m.shape);
    std::vector<Tensor> inputs = LayerInputs(m.shape);
    inputs.pop_back();
    const Ops ops = Fused(inputs, [&](auto in) {
      const Value y = Layer(in[0], in[1], in[2], m.conv, m.pool);
      return GradientsOf(y, Relu(y), {in[0], in[1], in[2]});
    });
    CHECK(Contains(ops, op::FusedConv2D));
    CHECK(Contains(ops, op::MaxPoolGrad));
  }
}

TEST_CASE("Values that others read stay") {
  const std::vector<Tensor> inputs = LayerInputs({1, 8, 8, 16, 16, 3});
  // The activation before the pool.
  CHECK(Fused(inputs, [](auto in) {
          const Value y = Relu(BiasAdd(Conv2D(in[0], in[1]), in[2]));
          return std::vector<Value>{y, MaxPool(y)};
        }) == Ops{op::FusedConv2D, op::MaxPool});
  // No ReLU.
  CHECK(Fused(inputs, [](auto in) { return std::vector<Value>{MaxPool(BiasAdd(Conv2D(in[0], in[1]), in[2]))}; }) ==
        Ops{op::FusedConv2D, op::MaxPool});
  // MaxPool's codes are 0 .. 3 also where the ReLU has cut.
  CHECK(Fused(inputs, [](auto in) {
          const Value y = Layer(in[0], in[1], in[2]);
          return std::vector<Value>{Cast(y.node()->output(max_pool::kCodes), DType::kFloat32)};
        }).front() == op::FusedConv2D);
  // The gradient with respect to the activation is not zero where the ReLU has cut.
  CHECK(Contains(Fused(inputs,
                       [](auto in) {
                         const Value x = Relu(BiasAdd(Conv2D(in[0], in[1]), in[2])), y = MaxPool(x);
                         const std::vector<Value> d = GradientsOf(y, in[3], {x, in[1]});
                         return std::vector<Value>{d[0], d[1], y};
                       }),
                 op::FusedConv2D));
}

TEST_CASE("On the CPU layers of bfloat16 are fused, too, and differ from others by their rounding") {
  const DType dtype = DType::kBFloat16;
  std::vector<Tensor> inputs;
  for (const Tensor& t : LayerInputs({2, 6, 10, 16, 16, 5})) inputs.push_back(t.CastTo(dtype));
  const Build build = [](auto in) {
    const Value y = Layer(in[0], in[1], in[2]);
    std::vector<Value> result = GradientsOf(y, in[3], {in[0], in[1], in[2]});
    result.push_back(y);
    return result;
  };
  CHECK(CompiledOps(TypesOf(inputs), build) == Ops{kForward, kBackpropFilter, kBackpropInput});
  const std::vector<Tensor> narrow = testing::RunOnCpu(inputs, build);
  for (Tensor& t : inputs) t = t.CastTo(DType::kFloat32);
  const std::vector<Tensor> wide = testing::RunOnCpu(inputs, build);
  for (size_t i = 0; i < wide.size(); ++i) {
    CHECK(narrow[i].dtype() == dtype);
    CHECK(Difference(testing::ToDoubles(narrow[i]), testing::ToDoubles(wide[i])) < 1.0 / 256);
  }
}

TEST_CASE("A pool of what is not a convolution stays as it is") {
  const std::vector<TensorType> images = {{DType::kFloat32, {1, 8, 8, 16}}};
  CHECK(testing::CompiledOps(images, [](auto in) { return std::vector<Value>{MaxPool(in[0])}; }) == Ops{op::MaxPool});
  CHECK(testing::CompiledOps(images, [](auto in) { return std::vector<Value>{MaxPool(Abs(in[0]))}; }) ==
        Ops{op::Abs, op::MaxPool});
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// One image; a filter that copies channel 0 of it to all outputs.
std::vector<Tensor> CopyingLayer(const Case& s) {
  std::vector<Tensor> inputs = LayerInputs(s);
  std::fill_n(inputs[1].data<float>(), inputs[1].num_elements(), 0.0f);
  std::fill_n(inputs[2].data<float>(), inputs[2].num_elements(), 0.0f);
  const int64_t center = s.k * s.k / 2 * s.c * s.o;
  for (int64_t o = 0; o < s.o; ++o) inputs[1].data<float>()[center + o] = 1.0f;
  return inputs;
}

TEST_CASE("NaN and infinities go through the pool as through MaxPool") {
  // 0 * NaN spreads each number to the 3x3 pixels around it. Of the windows there, some are NaN in all pixels or in the
  // first, so that NaN comes out; in others it loses every comparison.
  for (const int64_t channels : {1, 16}) {
    const Case s{1, 16, 16, channels, 16, 3};
    std::vector<Tensor> inputs = CopyingLayer(s);
    float* const image = inputs[0].data<float>();
    const auto pixel = [&](int64_t y, int64_t x) -> float& { return image[(y * s.w + x) * s.c]; };
    pixel(1, 1) = kNan;
    pixel(6, 7) = kNan;
    pixel(11, 10) = kInfinity;
    pixel(14, 3) = -kInfinity;
    CHECK(Fused(inputs, [](auto in) { return std::vector<Value>{Layer(in[0], in[1], in[2])}; }) == Ops{kForward});
    const Doubles y = testing::ToDoubles(
        testing::RunOnCpu(inputs, [](auto in) { return std::vector<Value>{Layer(in[0], in[1], in[2])}; })[0]);
    CHECK(std::isnan(y[0]));
  }
}

TEST_CASE("What is not finite is not lost with the zeros that are left out") {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t channels : {1, 32}) {
      CAPTURE(bad, channels);
      const Case s{3, 6, 8, channels, 16, 3};
      const Tensor codes = testing::RandomInts(s.pooled(), 4, 5).CastTo(DType::kUInt8);
      const Tensor dy = testing::RandomTensor(s.pooled(), 3);
      Tensor images = testing::RandomTensor(s.images(), 1);
      // Channel `channel` of the last image.
      const int64_t channel = channels - 1;
      images.data<float>()[((2 * s.h + 3) * s.w + 4) * s.c + channel] = bad;
      const Doubles d_filters = testing::ToDoubles(testing::RunOnCpu(
          {images, codes, dy}, [&](auto in) { return Outputs(kBackpropFilter, in, FilterShape(s)); })[0]);
      for (size_t i = 0; i < d_filters.size(); ++i) {
        CHECK(std::isnan(d_filters[i]) == (static_cast<int64_t>(i) / s.o % s.c == channel));
      }
      if (channels == 1) continue;
      Tensor filters = testing::RandomTensor(s.filters(), 2);
      filters.data<float>()[(4 * s.c + channel) * s.o + 5] = bad;
      const Doubles d_images = testing::ToDoubles(
          testing::RunOnCpu({filters, codes, dy}, [&](auto in) { return Outputs(kBackpropInput, in); })[0]);
      for (size_t i = 0; i < d_images.size(); ++i) {
        CHECK(std::isnan(d_images[i]) == (static_cast<int64_t>(i) % s.c == channel));
      }
    }
  }
}

TEST_CASE("Results do not depend on the order in which threads finish") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  INFO(kind);
  const std::vector<Tensor> inputs = LayerInputs({7, 8, 8, 16, 32, 5});
  const auto run = [&] {
    return testing::ToDoubles(testing::RunOn(
        kind, inputs, [](auto in) { return GradientsOf(Layer(in[0], in[1], in[2]), in[3], {in[1]}); })[0]);
  };
  const Doubles first = run();
  for (int i = 0; i < 10; ++i) CHECK(run() == first);
}

TEST_CASE("Inputs that do not fit say so") {
  const auto error = [](const std::vector<TensorType>& inputs, OpName op) {
    return std::string(testing::BuildStatus(inputs, [&](absl::Span<const Value> in) {
                         const Case s{1, 8, 8, 16, 16, 3};
                         return std::vector<Value>{Apply(op, in, FilterShape(s))};
                       }).message());
  };
  const DType f = DType::kFloat32, u = DType::kUInt8;
  const TensorType images{f, {1, 8, 8, 16}}, filters{f, {3, 3, 16, 16}}, pooled{f, {1, 4, 4, 16}};
  CHECK_THAT(error({{f, {1, 7, 8, 16}}, filters, {f, {16}}}, kForward),
             Catch::Contains("does not support images [1,7,8"));
  CHECK_THAT(error({images, filters, {f, {15}}}, kForward), Catch::Contains("one number per filter"));
  CHECK_THAT(error({images, {DType::kBFloat16, {3, 3, 16, 16}}, {f, {16}}}, kForward),
             Catch::Contains("the images' type"));
  CHECK_THAT(error({images, pooled, pooled}, kBackpropFilter),
             Catch::Contains("codes and gradient must have the shape [1,4,4,16] and types uint8 and float32"));
  CHECK_THAT(error({filters, {u, {1, 4, 4, 32}}, pooled}, kBackpropInput), Catch::Contains("codes and gradient"));
}

}  // namespace
}  // namespace official::compute
