#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cpu/simd.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/conv/conv.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/reorder/reorder.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;

// Images [n, h, w, c] and filters [kh, kw, c, o].
struct Case {
  int64_t n, h, w, c, kh, kw, o;
  Conv2DParams params = {};
};
std::ostream& operator<<(std::ostream& os, const Case& s) {
  return os << Shape{s.n, s.h, s.w, s.c} << " * " << Shape{s.kh, s.kw, s.c, s.o} << ", stride "
            << s.params.stride.height << " " << s.params.stride.width << ", dilation " << s.params.dilation.height
            << " " << s.params.dilation.width;
}

struct Axis {
  int64_t output, before;
};
// TensorFlow's rule, written down once more.
Axis Resolve(int64_t input, int64_t window, int64_t stride, int64_t dilation, Padding padding, int64_t before,
             int64_t after) {
  const int64_t reach = (window - 1) * dilation + 1;
  if (padding != Padding::kSame) return {(before + input + after - reach) / stride + 1, before};
  const int64_t output = (input + stride - 1) / stride;
  return {output, std::max<int64_t>((output - 1) * stride + reach - input, 0) / 2};
}
Axis Rows(const Case& s) {
  const Conv2DParams& p = s.params;
  return Resolve(s.h, s.kh, p.stride.height, p.dilation.height, p.padding, p.border.top, p.border.bottom);
}
Axis Columns(const Case& s) {
  const Conv2DParams& p = s.params;
  return Resolve(s.w, s.kw, p.stride.width, p.dilation.width, p.padding, p.border.left, p.border.right);
}

// Calls f(image index, filter index, output index) for every product that a convolution sums.
template <typename F>
void ForProducts(const Case& s, F&& f) {
  const Axis rows = Rows(s), columns = Columns(s);
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t oy = 0; oy < rows.output; ++oy) {
      for (int64_t ox = 0; ox < columns.output; ++ox) {
        for (int64_t k = 0; k < s.kh; ++k) {
          for (int64_t l = 0; l < s.kw; ++l) {
            const int64_t y = oy * s.params.stride.height - rows.before + k * s.params.dilation.height;
            const int64_t x = ox * s.params.stride.width - columns.before + l * s.params.dilation.width;
            if (y < 0 || y >= s.h || x < 0 || x >= s.w) continue;
            for (int64_t c = 0; c < s.c; ++c) {
              for (int64_t o = 0; o < s.o; ++o) {
                f(((n * s.h + y) * s.w + x) * s.c + c, ((k * s.kw + l) * s.c + c) * s.o + o,
                  ((n * rows.output + oy) * columns.output + ox) * s.o + o);
              }
            }
          }
        }
      }
    }
  }
}

Shape Images(const Case& s) { return {s.n, s.h, s.w, s.c}; }
Shape Filters(const Case& s) { return {s.kh, s.kw, s.c, s.o}; }
Shape Output(const Case& s) { return {s.n, Rows(s).output, Columns(s).output, s.o}; }

Doubles Convolve(const Case& s, const Doubles& images, const Doubles& filters) {
  Doubles y(Output(s).num_elements());
  ForProducts(s, [&](int64_t i, int64_t f, int64_t o) { y[o] += images[i] * filters[f]; });
  return y;
}

Value Blocked(Value x) { return Reorder(x, Layout::kRowMajor, Layout::kChannelBlocked); }
std::vector<OpName> NeededFor(bool blocked) { return std::vector<OpName>(blocked ? 1 : 0, op::Reorder); }

testing::OpCase ForwardCase(const Case& s, bool blocked = false) {
  return {
      .op = op::Conv2D,
      .inputs = {testing::RandomTensor(Images(s), 1), testing::RandomTensor(Filters(s), 2)},
      .build =
          [=](absl::Span<const Value> in) {
            return std::vector<Value>{Conv2D(blocked ? Blocked(in[0]) : in[0], in[1], s.params)};
          },
      .reference = [=](const std::vector<Doubles>& in) { return std::vector<Doubles>{Convolve(s, in[0], in[1])}; },
      .needs = NeededFor(blocked),
  };
}

Attrs WithShape(const Case& s, absl::string_view name, const Shape& shape) {
  Attrs attrs = WindowAttrs(s.params);
  attrs.Set(name, std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  return attrs;
}

// The two gradients as ops of their own, against their definition.
testing::OpCase InputGradientCase(const Case& s, bool blocked = false) {
  return {
      .op = op::Conv2DBackpropInput,
      .inputs = {testing::RandomTensor(Filters(s), 3), testing::RandomTensor(Output(s), 4)},
      .build =
          [=](absl::Span<const Value> in) {
            return std::vector<Value>{Apply(op::Conv2DBackpropInput, {in[0], blocked ? Blocked(in[1]) : in[1]},
                                            WithShape(s, "input_shape", Images(s)))};
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            Doubles dx(Images(s).num_elements());
            ForProducts(s, [&](int64_t i, int64_t f, int64_t o) { dx[i] += in[0][f] * in[1][o]; });
            return std::vector<Doubles>{dx};
          },
      .needs = NeededFor(blocked),
  };
}

testing::OpCase FilterGradientCase(const Case& s, bool with_bias, bool blocked = false) {
  const OpName op = with_bias ? op::FusedConv2DBackpropFilter : op::Conv2DBackpropFilter;
  return {
      .op = op,
      .inputs = {testing::RandomTensor(Images(s), 5), testing::RandomTensor(Output(s), 6)},
      .build =
          [=](absl::Span<const Value> in) {
            Node* const node =
                ApplyNode(op, {blocked ? Blocked(in[0]) : in[0], in[1]}, WithShape(s, "filter_shape", Filters(s)));
            std::vector<Value> outputs = {OutputOf(node, 0)};
            if (with_bias) outputs.push_back(OutputOf(node, 1));
            return outputs;
          },
      .reference =
          [=](const std::vector<Doubles>& in) {
            Doubles df(Filters(s).num_elements()), db(s.o);
            ForProducts(s, [&](int64_t i, int64_t f, int64_t o) { df[f] += in[0][i] * in[1][o]; });
            for (size_t o = 0; o < in[1].size(); ++o) db[o % s.o] += in[1][o];
            return with_bias ? std::vector<Doubles>{df, db} : std::vector<Doubles>{df};
          },
      .needs = NeededFor(blocked),
  };
}

testing::OpCase FusedCase(const Case& s, const std::string& activation, bool blocked = false) {
  testing::OpCase test = ForwardCase(s);
  test.op = op::FusedConv2D;
  test.needs = NeededFor(blocked);
  test.inputs.push_back(testing::RandomTensor({s.o}, 7));
  test.build = [=](absl::Span<const Value> in) {
    Attrs attrs = WindowAttrs(s.params);
    attrs.Set("activation", activation);
    return std::vector<Value>{Apply(op::FusedConv2D, {blocked ? Blocked(in[0]) : in[0], in[1], in[2]}, attrs)};
  };
  test.reference = [=](const std::vector<Doubles>& in) {
    Doubles y = Convolve(s, in[0], in[1]);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] += in[2][i % s.o];
      if (activation == "Relu") y[i] = std::max(y[i], 0.0);
    }
    return std::vector<Doubles>{y};
  };
  return test;
}

void CheckAll(const Case& s) {
  CAPTURE(s);
  testing::CheckForward(ForwardCase(s));
  testing::CheckForward(InputGradientCase(s));
  testing::CheckForward(FilterGradientCase(s, false));
  testing::CheckForward(FilterGradientCase(s, true));
  testing::CheckForward(FusedCase(s, ""));
  testing::CheckForward(FusedCase(s, "Relu"));
}

constexpr Padding kValid = Padding::kValid;

TEST_CASE("Convolution and its gradients over many shapes") {
  CheckAll({1, 1, 1, 1, 1, 1, 1});
  CheckAll({2, 6, 5, 1, 5, 5, 32});   // MNIST's first layer, small
  CheckAll({1, 7, 7, 32, 5, 5, 16});  // and its second
  CheckAll({2, 5, 6, 3, 3, 3, 16});   // CIFAR's first layer, small
  CheckAll({2, 5, 4, 17, 3, 3, 20});
  CheckAll({1, 9, 8, 20, 1, 1, 17});
  CheckAll({1, 4, 17, 3, 3, 1, 5});
  CheckAll({3, 7, 7, 16, 3, 3, 32, {.padding = kValid}});
}

TEST_CASE("Strides: SAME pads asymmetrically, explicit padding as given") {
  // 8 rows, stride 2, window 3: one row of padding, after the image.
  for (const int64_t channels : {3, 8, 12, 16}) CheckAll({1, 8, 8, channels, 3, 3, 16, {.stride = {2, 2}}});
  CheckAll({2, 7, 6, 16, 3, 3, 16, {.stride = {2, 1}}});
  for (const int64_t channels : {1, 3, 7, 16}) CheckAll({1, 9, 9, channels, 1, 1, 32, {.stride = {2, 2}}});
  for (const int64_t channels : {1, 3, 5}) CheckAll({2, 8, 8, channels, 1, 1, 16, {.stride = {1, 2}}});
  CheckAll({3, 12, 34, 12, 1, 1, 20, {.stride = {4, 2}}});
  CheckAll({4, 36, 58, 15, 1, 1, 7, {.stride = {1, 2}}});
  CheckAll({1, 9, 10, 3, 7, 7, 16, {.stride = {2, 2}, .padding = Padding::kExplicit, .border = {3, 3, 3, 3}}});
  CheckAll({1, 8, 8, 16, 3, 3, 17, {.stride = {2, 2}, .padding = Padding::kExplicit, .border = {1, 1, 1, 1}}});
  CheckAll({1, 8, 9, 4, 2, 2, 3, {.stride = {3, 3}, .padding = kValid}});  // pixels that no window reads
  CheckAll({1, 4, 4, 2, 3, 3, 2, {.padding = Padding::kExplicit, .border = {2, 0, 1, 3}}});
}

TEST_CASE("Dilated windows") {
  CheckAll({1, 9, 9, 3, 3, 3, 4, {.dilation = {2, 2}}});
  CheckAll({1, 8, 9, 16, 3, 3, 16, {.dilation = {1, 2}, .padding = kValid}});
  CheckAll({2, 15, 32, 24, 3, 3, 20, {.dilation = {2, 2}}});
}

TEST_CASE("Windows of one pixel with an odd number of filters") {
  CheckAll({2, 5, 6, 16, 1, 1, 3});
  CheckAll({1, 10, 12, 16, 1, 1, 17, {.stride = {2, 2}}});
}

TEST_CASE("Strides that are longer than the images or the windows") {
  CheckAll({1, 12, 1, 15, 2, 2, 9, {.stride = {2, 3}}});
  CheckAll({1, 7, 1, 3, 3, 3, 5, {.stride = {2, 2}}});
  CheckAll({1, 12, 1, 1, 3, 2, 8, {.stride = {2, 2}}});
  CheckAll({1, 26, 33, 32, 1, 3, 12, {.stride = {2, 2}}});
  CheckAll({1, 35, 9, 33, 3, 1, 20, {.stride = {1, 5}}});
  CheckAll({1, 12, 10, 16, 1, 1, 33, {.stride = {3, 3}, .padding = Padding::kExplicit, .border = {0, 1, 0, 0}}});
  // The padding on the left moves the last window as far from the image's end.
  const Conv2DParams moved = {
      .stride = {1, 5}, .dilation = {1, 2}, .padding = Padding::kExplicit, .border = {0, 0, 4, 0}};
  CheckAll({1, 2, 15, 12, 1, 3, 7, moved});
  // The last window lies in the padding.
  CheckAll({1, 6, 10, 8, 3, 3, 31, {.stride = {2, 2}, .padding = Padding::kExplicit, .border = {2, 3, 4, 0}}});
}

TEST_CASE("Gradients that the graph makes") {
  for (const Case& s : {Case{1, 4, 3, 2, 3, 3, 2}, Case{2, 5, 4, 1, 2, 3, 3, {.stride = {2, 2}}}}) {
    CAPTURE(s);
    testing::CheckGradients(ForwardCase(s));
    testing::CheckGradients(InputGradientCase(s));
    testing::CheckGradients(FilterGradientCase(s, false));
  }
}

TEST_CASE("Images that come blocked give the same") {
  for (const Case& s : {Case{2, 7, 6, 16, 3, 3, 32}, Case{1, 8, 8, 32, 5, 5, 16, {.stride = {2, 2}}}}) {
    CAPTURE(s);
    testing::CheckForward(ForwardCase(s, true));
    testing::CheckForward(InputGradientCase(s, true));
    testing::CheckForward(FilterGradientCase(s, false, true));
    testing::CheckForward(FilterGradientCase(s, true, true));
    testing::CheckForward(FusedCase(s, "Relu", true));
  }
  // Channels that do not divide by 16 go back to row-major.
  testing::CheckForward(ForwardCase({1, 5, 5, 16, 3, 3, 20}, true));
}

TEST_CASE("Winograd gives the same within its rounding") {
  if (!HasAvx512()) return;
  const DType dtype = GENERATE(DType::kFloat32, DType::kBFloat16);
  CAPTURE(dtype);
  const auto check = [&](testing::OpCase test, Attrs attrs) {
    attrs.Set("algorithm", std::string("winograd"));
    std::vector<Tensor> inputs;
    std::vector<Doubles> exact;
    for (const Tensor& t : test.inputs) {
      inputs.push_back(t.CastTo(dtype));
      exact.push_back(testing::ToDoubles(inputs.back()));
    }
    const Doubles want = test.reference(exact)[0];
    const Doubles got = testing::ToDoubles(testing::RunOnCpu(
        inputs, [&](absl::Span<const Value> in) { return std::vector<Value>{Apply(test.op, in, attrs)}; })[0]);
    double difference = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(got[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    CAPTURE(test.op);
    CHECK(difference <= (dtype == DType::kFloat32 ? 2e-5 : 4e-3) * largest);
    CHECK(difference > 0);
  };
  const auto check_all = [&](const Case& s) {
    CAPTURE(s);
    check(ForwardCase(s), WindowAttrs(s.params));
    check(InputGradientCase(s), WithShape(s, "input_shape", Images(s)));
    check(FilterGradientCase(s, false), WithShape(s, "filter_shape", Filters(s)));
  };
  check_all({2, 9, 10, 32, 3, 3, 48});
  check_all({1, 1, 1, 16, 3, 3, 16});
  check_all({3, 16, 4, 48, 3, 3, 16});
  check_all({5, 8, 8, 16, 3, 3, 32});
  check_all({1, 7, 6, 16, 3, 3, 16, {.padding = kValid}});
  check_all({1, 4, 5, 16, 3, 3, 16, {.padding = Padding::kExplicit, .border = {2, 0, 1, 2}}});
}

// Of these images and output gradients, in their type.
Doubles FilterGradient(const Case& s, const std::vector<Tensor>& inputs, const std::string& algorithm) {
  Attrs attrs = WithShape(s, "filter_shape", Filters(s));
  attrs.Set("algorithm", algorithm);
  return testing::ToDoubles(testing::RunOnCpu(inputs, [&](absl::Span<const Value> in) {
    return std::vector<Value>{Apply(op::Conv2DBackpropFilter, in, attrs)};
  })[0]);
}

TEST_CASE("What belongs to one image does not depend on the number of threads, which divide the batch") {
  const Case s{11, 24, 24, 16, 3, 3, 32};  // enough work for six parts, the last of which has fewer images
  const int before = NumThreads();
  for (const testing::OpCase& test : {ForwardCase(s), FusedCase(s, "Relu"), InputGradientCase(s)}) {
    CAPTURE(test.op.text());
    SetNumThreads(2);
    testing::CheckForward(test);
    std::vector<Doubles> results;
    for (const int threads : {1, 2, 3, 4, 8}) {
      SetNumThreads(threads);
      results.push_back(testing::ToDoubles(testing::RunOnCpu(test.inputs, test.build)[0]));
      CHECK(results.back() == results[0]);
    }
  }
  SetNumThreads(before);
}

TEST_CASE("Gradients of filters do not depend on the number of threads") {
  const auto [algorithm, dtype, window, out] =
      GENERATE(table<std::string, DType, int64_t, int64_t>({{"direct", DType::kFloat32, 1, 32},
                                                            {"direct", DType::kFloat32, 3, 32},
                                                            {"winograd", DType::kFloat32, 3, 32},
                                                            {"winograd", DType::kBFloat16, 3, 32},
                                                            {"direct", DType::kBFloat16, 3, 32},
                                                            {"direct", DType::kBFloat16, 3, 64}}));
  if (!HasAvx512() && (algorithm == "winograd" || dtype != DType::kFloat32)) return;
  const Case s{9, 12, 13, 16, window, window, out};
  CAPTURE(algorithm, dtype, window, out);
  std::vector<Tensor> inputs;
  for (const Tensor& t : FilterGradientCase(s, false).inputs) inputs.push_back(t.CastTo(dtype));
  const int before = NumThreads();
  std::vector<Doubles> results;
  for (const int threads : {1, 2, 3, 4}) {
    SetNumThreads(threads);
    results.push_back(FilterGradient(s, inputs, algorithm));
    CHECK(results.back() == results[0]);
  }
  SetNumThreads(before);
}

TEST_CASE("Gradients of filters in bfloat16 are sums in float, rounded once") {
  if (!OnednnComputesIn(DType::kBFloat16)) return;
  const Case s = GENERATE(values<Case>({
      {1, 1, 1, 16, 1, 1, 16},
      {2, 9, 10, 32, 3, 3, 48},
      {5, 7, 7, 48, 1, 1, 64},  // an odd number of pixels
      {3, 21, 20, 16, 3, 2, 32, {.stride = {2, 1}}},
      {2, 13, 12, 16, 3, 3, 16, {.dilation = {2, 3}}},
      {2, 8, 9, 16, 1, 1, 16, {.stride = {2, 2}}},
      {1, 4, 5, 16, 3, 3, 16, {.padding = Padding::kExplicit, .border = {2, 0, 1, 2}}},
      {9, 65, 65, 16, 1, 1, 16},  // more pixels than are packed at a time
      // Enough columns for our kernel with AMX.
      {2, 9, 10, 32, 3, 3, 64},
      {3, 30, 29, 48, 3, 3, 80},
      {3, 21, 20, 16, 3, 2, 80, {.stride = {2, 1}}},
      {2, 13, 12, 32, 3, 5, 64, {.dilation = {2, 3}}},
      {2, 11, 9, 32, 4, 2, 64, {.padding = kValid}},
      {1, 4, 5, 16, 3, 3, 64, {.padding = Padding::kExplicit, .border = {2, 0, 1, 2}}},
      {1, 3, 500, 16, 3, 3, 64},  // too long rows for shifts
  }));
  CAPTURE(s);
  // Small integers: sums of their products are exact in float.
  std::vector<Tensor> inputs;
  std::vector<Doubles> exact;
  for (const Shape& shape : {Images(s), Output(s)}) {
    Tensor numbers = testing::RandomInts(shape, inputs.size(), 9).CastTo(DType::kFloat32);
    for (int64_t i = 0; i < numbers.num_elements(); ++i) numbers.data<float>()[i] -= 4;
    inputs.push_back(numbers.CastTo(DType::kBFloat16));
    exact.push_back(testing::ToDoubles(numbers));
  }
  const Doubles want = FilterGradientCase(s, false).reference(exact)[0];
  const Doubles got = FilterGradient(s, inputs, "direct");
  for (size_t i = 0; i < want.size(); ++i) {
    REQUIRE(got[i] == static_cast<float>(BFloat16(static_cast<float>(want[i]))));
  }
}

TEST_CASE("Algorithms are chosen by timing, where there are two, and the choice decides") {
  if (!HasAvx512()) return;
  Graph graph;
  const DType f = DType::kFloat32;
  const Value images = graph.Input("images", {f, {2, 8, 8, 16}}), filters = graph.Input("filters", {f, {3, 3, 16, 16}});
  const Value y = Conv2D(images, filters), strided = Conv2D(images, filters, {.stride = {2, 2}});
  const std::vector<Tensor> feeds = {testing::RandomTensor(images.shape(), 1),
                                     testing::RandomTensor(filters.shape(), 2)};
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  AlgorithmChoices choices;
  const auto run = [&](AlgorithmChoices* with) {
    const GraphRoots roots{{images, filters}, {y, strided}, {}};
    return testing::ToDoubles(Evaluate(graph, roots, feeds, *device, {.choices = with}).value()[0]);
  };
  run(&choices);
  CHECK(choices.TakeNew().count == 1);
  const std::string text = choices.ToText();
  CHECK_THAT(text, Catch::Contains("\nConv2D float32[2,8,8,16] float32[3,3,16,16] ") && Catch::Contains(" on cpu\t"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);  // a comment and one convolution

  const std::string key = text.substr(text.find('\n') + 1, text.find('\t') - text.find('\n') - 1);
  REQUIRE(choices.Parse(key + "\tdirect").ok());
  const Doubles direct = run(&choices);
  CHECK(direct == run(nullptr));
  REQUIRE(choices.Parse(key + "\twinograd").ok());
  CHECK(direct != run(&choices));
  CHECK(choices.TakeNew().count == 0);
}

TEST_CASE("A choice counts for batches so large that the product of all sizes overflows") {
  if (!HasAvx512()) return;
  Graph graph;
  const DType f = DType::kFloat32;
  const Value images = graph.Input("images", {f, {int64_t{1} << 45, 8, 8, 16}});
  const Value y = Conv2D(images, graph.Input("filters", {f, {3, 3, 16, 16}}));
  const Node& node = *y.node();
  AlgorithmChoices choices;
  REQUIRE(choices
              .Parse("Conv2D " + images.type().ToString() + " float32[3,3,16,16] " + node.attrs().ToString() +
                     " on cpu\twinograd")
              .ok());
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  const KernelDef* const def = KernelRegistry::Global().Find(op::Conv2D, "cpu", f);
  const std::vector<Layout> inputs(2, Layout::kRowMajor), outputs(1, Layout::kRowMajor);
  CHECK(def->make(KernelSpec{node, *device, inputs, outputs, &choices})->algorithm == "Winograd F(4, 3), AVX-512");
}

TEST_CASE("A timed run says what each kernel computed, and by which algorithm") {
  if (!HasAvx512()) return;
  Graph graph;
  const Value images = graph.Input("images", {DType::kFloat32, {2, 8, 8, 16}});
  const Value filters = graph.Input("filters", {DType::kFloat32, {3, 3, 16, 16}});
  const Value y = Conv2D(images, filters);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  const std::vector<Tensor> feeds = {testing::RandomTensor(images.shape(), 1),
                                     testing::RandomTensor(filters.shape(), 2)};
  const auto algorithm = [&](const std::string& choice) {
    AlgorithmChoices choices;
    const std::string key = "Conv2D float32[2,8,8,16] float32[3,3,16,16] " + y.node()->attrs().ToString() + " on cpu";
    REQUIRE(choices.Parse(key + "\t" + choice).ok());
    auto program = Program::Compile(graph, {{images, filters}, {y}, {}}, *device, variables, {.choices = &choices});
    std::vector<KernelTiming> timings;
    REQUIRE((*program)->Run(feeds, {.timings = &timings}).ok());
    const auto conv = std::find_if(timings.begin(), timings.end(), [](const auto& t) { return t.op == "Conv2D"; });
    REQUIRE(conv != timings.end());
    CHECK(conv->result == "float32[2,8,8,16] blocked");
    return conv->algorithm;
  };
  CHECK_THAT(algorithm("direct"), Catch::StartsWith("oneDNN "));
  CHECK(algorithm("winograd") == "Winograd F(4, 3), AVX-512");
}

// The algorithms of a convolution of bfloat16 and of its gradients.
std::vector<std::string> Algorithms(const Case& s, AlgorithmChoices* choices = nullptr) {
  const DType dtype = DType::kBFloat16;
  Graph graph;
  const Value images = graph.Input("images", {dtype, Images(s)});
  const Value filters = graph.Input("filters", {dtype, Filters(s)});
  const Value y = Conv2D(images, filters, s.params);
  const Value dy = graph.Input("dy", y.type());
  const std::vector<Value> ys = {y}, seeds = {dy}, xs = {images, filters};
  std::vector<Value> fetches = Gradients(ys, seeds, xs);
  fetches.push_back(y);
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  auto program =
      Program::Compile(graph, {{images, filters, dy}, fetches, {}}, *device, variables, {.choices = choices});
  REQUIRE(program.ok());
  std::vector<Tensor> feeds;
  for (const Value& v : {images, filters, dy}) feeds.push_back(testing::RandomTensor(v.shape(), 1).CastTo(dtype));
  std::vector<KernelTiming> timings;
  REQUIRE((*program)->Run(feeds, {.timings = &timings}).ok());
  std::vector<std::string> algorithms;
  for (const KernelTiming& t : timings) {
    if (!t.algorithm.empty()) algorithms.push_back(t.op + ": " + t.algorithm);
  }
  return algorithms;
}

// ResNet's convolutions, with fewer pixels.
std::vector<Case> ConvolutionsOfResNet() {
  return {{2, 8, 8, 64, 1, 1, 64},
          {2, 8, 8, 64, 3, 3, 64},
          {2, 8, 8, 128, 3, 3, 128, {.stride = {2, 2}}},
          {2, 8, 8, 256, 1, 1, 512, {.stride = {2, 2}}},
          {2, 8, 8, 16, 3, 3, 16},
          {2, 8, 8, 16, 3, 3, 32, {.stride = {2, 2}}},
          {2, 4, 4, 512, 3, 3, 512}};
}

TEST_CASE("With AMX all convolutions of bfloat16 are products of its tiles, of row-major images") {
  if (!OnednnHasAmx()) return;
  for (const Case& s : ConvolutionsOfResNet()) {
    CAPTURE(s);
    AlgorithmChoices choices;
    const std::vector<std::string> algorithms = Algorithms(s, &choices);
    CHECK(algorithms.size() == 3);
    for (const std::string& algorithm : algorithms) {
      CHECK_THAT(algorithm, Catch::Contains("amx", Catch::CaseSensitive::No));
    }
    CHECK(choices.TakeNew().count == 0);
  }
}

TEST_CASE("What oneDNN computes wrongly in bfloat16 is computed in float, and none of ResNet's convolutions") {
  if (!OnednnComputesIn(DType::kBFloat16)) return;
  const auto in_float = [](const Case& s) {
    std::vector<std::string> ops;
    for (const std::string& algorithm : Algorithms(s)) {
      if (absl::StrContains(algorithm, "in float32")) ops.push_back(algorithm.substr(0, algorithm.find(':')));
    }
    return ops;
  };
  for (const Case& s : ConvolutionsOfResNet()) CHECK(in_float(s).empty());
  CHECK(in_float({1, 16, 16, 3, 7, 7, 64, {.stride = {2, 2}, .padding = Padding::kExplicit, .border = {3, 3, 3, 3}}})
            .empty());
  using Ops = std::vector<std::string>;
  CHECK(in_float({1, 9, 9, 24, 3, 3, 20, {.dilation = {2, 1}}}) == Ops{"Conv2DBackpropFilter"});
  CHECK(in_float({1, 4, 4, 16, 1, 1, 3}) == (OnednnHasAmx() ? Ops{} : Ops{"Conv2DBackpropInput"}));
  CHECK(in_float({1, 9, 9, 16, 1, 3, 16, {.stride = {2, 2}}}) == (OnednnHasAmx() ? Ops{"Conv2D"} : Ops{}));
}

TEST_CASE("What is chosen by timing computes the same, and is chosen once") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  Graph graph;
  const Value x = graph.Input("x", {DType::kFloat32, {2, 8, 9, 16}});
  const Value w = graph.Input("w", {DType::kFloat32, {3, 3, 16, 32}});
  const Value y = Conv2D(x, w, {.stride = {2, 1}});
  const std::vector<Tensor> feeds = {testing::RandomTensor(x.shape(), 1), testing::RandomTensor(w.shape(), 2)};
  const auto run = [&](AlgorithmChoices* choices) {
    return testing::ToDoubles(Evaluate(graph, {{x, w}, {y}, {}}, feeds, *device, {.choices = choices}).value()[0]);
  };
  AlgorithmChoices choices;
  const Doubles plain = run(nullptr), timed = run(&choices);
  for (size_t i = 0; i < plain.size(); ++i) REQUIRE(timed[i] == Approx(plain[i]).margin(1e-3));
  choices.TakeNew();
  CHECK(run(&choices) == timed);
  CHECK(choices.TakeNew().count == 0);
}

TEST_CASE("An empty batch has no output and a zero filter gradient") {
  const Case s{0, 4, 4, 3, 3, 3, 2};
  CheckAll(s);
}

TEST_CASE("Convolutions that do not fit say so") {
  const auto error = [](TensorType images, TensorType filters, const Conv2DParams& params = {}) {
    return std::string(testing::BuildStatus({images, filters}, [&](absl::Span<const Value> in) {
                         return std::vector<Value>{Conv2D(in[0], in[1], params)};
                       }).message());
  };
  const DType f = DType::kFloat32;
  CHECK_THAT(error({f, {1, 4, 4, 3}}, {f, {3, 3, 4, 8}}),
             Catch::Contains("Conv2D: images have 3 channels, the filters take 4") &&
                 Catch::Contains("float32[1,4,4,3], float32[3,3,4,8]"));
  CHECK_THAT(error({f, {4, 4, 3}}, {f, {3, 3, 3, 8}}), Catch::Contains("[N, H, W, C]"));
  CHECK_THAT(error({f, {1, 4, 4, 3}}, {f, {3, 3, 3}}), Catch::Contains("filters must be"));
  CHECK_THAT(error({f, {1, 4, 4, 3}}, {DType::kBFloat16, {3, 3, 3, 8}}), Catch::Contains("one floating type"));
  CHECK_THAT(error({f, {1, 4, 4, 3}}, {f, {5, 5, 3, 8}}, {.padding = kValid}),
             Catch::Contains("reaches over 5 does not fit into 4"));
  CHECK_THAT(error({f, {1, 4, 4, 3}}, {f, {5, 5, 3, 8}}, {.stride = {0, 1}}), Catch::Contains("stride 0"));
}

}  // namespace
}  // namespace official::compute
