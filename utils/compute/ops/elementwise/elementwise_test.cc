#include "utils/compute/ops/elementwise/elementwise.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <thread>

#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using testing::Doubles;
using testing::OpCase;
using testing::RandomInts;
using testing::RandomTensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Unary {
  OpName op;
  Value (*build)(Value);
  double (*exact)(double);
  double low = -3, high = 3;
};

const Unary kUnary[] = {
    {op::Neg, Neg, [](double x) { return -x; }},
    {op::Abs, Abs, [](double x) { return std::abs(x); }},
    {op::Square, Square, [](double x) { return x * x; }},
    {op::Sqrt, Sqrt, [](double x) { return std::sqrt(x); }, 0.5, 9},
    {op::Rsqrt, Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.5, 9},
    {op::Exp, Exp, [](double x) { return std::exp(x); }},
    {op::Log, Log, [](double x) { return std::log(x); }, 0.5, 9},
    {op::Tanh, Tanh, [](double x) { return std::tanh(x); }},
    {op::Sigmoid, Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {op::Relu, Relu, [](double x) { return x > 0 ? x : 0; }},
    {op::Sin, Sin, [](double x) { return std::sin(x); }},
    {op::Cos, Cos, [](double x) { return std::cos(x); }},
};

TEST_CASE("Functions of one input, values and gradients") {
  const Shape shape = GENERATE(Shape{}, Shape{1}, Shape{17}, Shape{3, 5}, Shape{0, 3});
  for (const Unary& f : kUnary) {
    const OpCase test{.op = f.op,
                      .inputs = {RandomTensor(shape, 11, f.low, f.high)},
                      .build = [&](absl::Span<const Value> in) { return std::vector<Value>{f.build(in[0])}; },
                      .reference =
                          [&](const std::vector<Doubles>& in) {
                            Doubles y;
                            for (const double x : in[0]) y.push_back(f.exact(x));
                            return std::vector<Doubles>{y};
                          }};
    testing::CheckForward(test);
    testing::CheckGradients(test);
  }
}

TEST_CASE("Values of many tiles") {
  const int64_t n = GENERATE(1023, 1025, 50001);
  for (const Unary& f : kUnary) {
    testing::CheckForward({.op = f.op,
                           .inputs = {RandomTensor({n}, 12, f.low, f.high)},
                           .build = [&](absl::Span<const Value> in) { return std::vector<Value>{f.build(in[0])}; },
                           .reference =
                               [&](const std::vector<Doubles>& in) {
                                 Doubles y;
                                 for (const double x : in[0]) y.push_back(f.exact(x));
                                 return std::vector<Doubles>{y};
                               }});
  }
}

// The number of the element of an input of `shape` that lies under element `i` of an output of `output`.
int64_t IndexUnder(int64_t i, const Shape& shape, const Shape& output) {
  int64_t index = 0;
  for (int d = 0; d < output.rank(); ++d) {
    const int64_t at = i / output.Product(d + 1, output.rank()) % output.dim(d);
    const int in = d - (output.rank() - shape.rank());
    if (in >= 0) index = index * shape.dim(in) + (shape.dim(in) == 1 ? 0 : at);
  }
  return index;
}

// Numbers in [0.5, 2) that bfloat16 holds and that differ from those of another `offset` in [0, 1 / 16).
Tensor GridTensor(const Shape& shape, uint64_t seed, double offset) {
  Tensor x = RandomInts(shape, seed, 24).CastTo(DType::kFloat32);
  for (float& v : x.flat<float>()) v = static_cast<float>(0.5 + v / 16 + offset);
  return x;
}

struct Binary {
  OpName op;
  Value (*build)(Value, Value);
  double (*exact)(double, double);
  bool differentiable = true;
};

const Binary kBinary[] = {
    {op::Add, Add, [](double a, double b) { return a + b; }},
    {op::Sub, Sub, [](double a, double b) { return a - b; }},
    {op::Mul, Mul, [](double a, double b) { return a * b; }},
    {op::Div, Div, [](double a, double b) { return a / b; }},
    {op::Pow, Pow, [](double a, double b) { return std::pow(a, b); }},
    {op::SquaredDifference, SquaredDifference, [](double a, double b) { return (a - b) * (a - b); }},
    {op::Maximum, Maximum, [](double a, double b) { return std::max(a, b); }},
    {op::Minimum, Minimum, [](double a, double b) { return std::min(a, b); }},
    {op::Equal, Equal, [](double a, double b) { return a == b ? 1.0 : 0.0; }, false},
    {op::NotEqual, NotEqual, [](double a, double b) { return a != b ? 1.0 : 0.0; }, false},
    {op::Less, Less, [](double a, double b) { return a < b ? 1.0 : 0.0; }, false},
    {op::LessEqual, LessEqual, [](double a, double b) { return a <= b ? 1.0 : 0.0; }, false},
    {op::Greater, Greater, [](double a, double b) { return a > b ? 1.0 : 0.0; }, false},
    {op::GreaterEqual, GreaterEqual, [](double a, double b) { return a >= b ? 1.0 : 0.0; }, false},
};

TEST_CASE("Functions of two inputs broadcast, values and gradients") {
  struct Shapes {
    Shape a, b, output;
  };
  const Shapes shapes = GENERATE(values<Shapes>({
      {{7}, {7}, {7}},
      {{3, 5}, {5}, {3, 5}},
      {{5}, {3, 5}, {3, 5}},
      {{3, 5}, {3, 1}, {3, 5}},
      {{2, 1, 4}, {3, 1}, {2, 3, 4}},
      {{}, {6}, {6}},
      {{17, 1}, {1, 3}, {17, 3}},
      {{1}, {}, {1}},
      {{2, 3, 1, 2}, {3, 4, 1}, {2, 3, 4, 2}},
      {{0, 3}, {3}, {0, 3}},
      {{0, 1}, {3}, {0, 3}},
  }));
  for (const Binary& f : kBinary) {
    const OpCase test{.op = f.op,
                      .inputs = {GridTensor(shapes.a, 21, 0), GridTensor(shapes.b, 22, 1.0 / 32)},
                      .build = [&](absl::Span<const Value> in) { return std::vector<Value>{f.build(in[0], in[1])}; },
                      .reference =
                          [&](const std::vector<Doubles>& in) {
                            Doubles y;
                            for (int64_t i = 0; i < shapes.output.num_elements(); ++i) {
                              y.push_back(f.exact(in[0][IndexUnder(i, shapes.a, shapes.output)],
                                                  in[1][IndexUnder(i, shapes.b, shapes.output)]));
                            }
                            return std::vector<Doubles>{y};
                          }};
    testing::CheckForward(test);
    if (f.differentiable) testing::CheckGradients(test);
  }
}

TEST_CASE("Broadcasting over many tiles") {
  const int64_t columns = GENERATE(3, 1023, 1024, 2500);
  const Shape output = {31, columns};
  for (const Shape& b : {Shape{}, Shape{columns}, Shape{31, 1}}) {
    testing::CheckForward({.op = op::Mul,
                           .inputs = {RandomTensor(output, 1), RandomTensor(b, 2)},
                           .build = [](absl::Span<const Value> in) { return std::vector<Value>{Mul(in[0], in[1])}; },
                           .reference =
                               [&](const std::vector<Doubles>& in) {
                                 Doubles y;
                                 for (int64_t i = 0; i < output.num_elements(); ++i) {
                                   y.push_back(in[0][i] * in[1][IndexUnder(i, b, output)]);
                                 }
                                 return std::vector<Doubles>{y};
                               }});
  }
}

TEST_CASE("BiasAdd and BroadcastTo, values and gradients") {
  const auto bias_add = [](const std::vector<Doubles>& in) {
    Doubles y = in[0];
    for (size_t i = 0; i < y.size(); ++i) y[i] += in[1][i % in[1].size()];
    return std::vector<Doubles>{y};
  };
  const OpCase bias{.op = op::BiasAdd,
                    .inputs = {RandomTensor({4, 3, 5}, 1), RandomTensor({5}, 2)},
                    .build = [](absl::Span<const Value> in) { return std::vector<Value>{BiasAdd(in[0], in[1])}; },
                    .reference = bias_add};
  testing::CheckForward(bias);
  testing::CheckGradients(bias);
  const Shape from = {3, 1}, to = {2, 3, 4};
  const OpCase broadcast{
      .op = op::BroadcastTo,
      .inputs = {RandomTensor(from, 1)},
      .build = [&](absl::Span<const Value> in) { return std::vector<Value>{BroadcastTo(in[0], to)}; },
      .reference =
          [&](const std::vector<Doubles>& in) {
            Doubles y;
            for (int64_t i = 0; i < to.num_elements(); ++i) {
              y.push_back(in[0][IndexUnder(i, from, to)]);
            }
            return std::vector<Doubles>{y};
          }};
  testing::CheckForward(broadcast);
  testing::CheckGradients(broadcast);
}

TEST_CASE("Select, values and gradients") {
  const Tensor condition = RandomInts({4, 5}, 3, 2).CastTo(DType::kBool);
  const OpCase test{.op = op::Select,
                    .inputs = {condition, RandomTensor({5}, 1), RandomTensor({4, 1}, 2)},
                    .build = [](absl::Span<const Value> in) { return std::vector<Value>{Select(in[0], in[1], in[2])}; },
                    .reference =
                        [](const std::vector<Doubles>& in) {
                          Doubles y;
                          for (int i = 0; i < 20; ++i) y.push_back(in[0][i] != 0 ? in[1][i % 5] : in[2][i / 5]);
                          return std::vector<Doubles>{y};
                        }};
  testing::CheckForward(test);
  testing::CheckGradients(test);
}

TEST_CASE("Logic") {
  const Tensor a = Tensor::Of<bool>({4}, {false, false, true, true}),
               b = Tensor::Of<bool>({4}, {false, true, false, true});
  for (const std::string& kind : testing::KindsUnderTest()) {
    CAPTURE(kind);
    const std::vector<Tensor> y = testing::RunOn(kind, {a, b}, [](absl::Span<const Value> in) {
      return std::vector<Value>{LogicalAnd(in[0], in[1]), LogicalOr(in[0], in[1]), LogicalNot(in[0])};
    });
    CHECK(testing::ToDoubles(y[0]) == Doubles{0, 0, 0, 1});
    CHECK(testing::ToDoubles(y[1]) == Doubles{0, 1, 1, 1});
    CHECK(testing::ToDoubles(y[2]) == Doubles{1, 1, 0, 0});
  }
}

void CheckValues(OpName op, const Tensor& x, const std::function<Value(Value)>& build,
                 const std::function<double(double)>& exact) {
  testing::CheckForward({.op = op,
                         .inputs = {x},
                         .build = [&](absl::Span<const Value> in) { return std::vector<Value>{build(in[0])}; },
                         .reference =
                             [&](const std::vector<Doubles>& in) {
                               Doubles y;
                               for (const double v : in[0]) y.push_back(exact(v));
                               return std::vector<Doubles>{y};
                             }});
}

// Whole numbers from -4 to 4.
Tensor WholeNumbers(const Shape& shape, uint64_t seed, DType dtype) {
  const Tensor x = RandomInts(shape, seed, 9);
  for (int32_t& v : x.flat<int32_t>()) v -= 4;
  return x.CastTo(dtype);
}

TEST_CASE("Functions of integers") {
  const DType dtype = GENERATE(DType::kInt32, DType::kInt64);
  const Tensor a = WholeNumbers({40, 30}, 1, dtype), b = WholeNumbers({40, 30}, 2, dtype);
  for (const Unary& f : kUnary) {
    if (KernelRegistry::Global().Find(f.op, "cpu", dtype) != nullptr) CheckValues(f.op, a, f.build, f.exact);
  }
  CheckValues(op::Sign, a, Sign, [](double x) { return static_cast<double>((x > 0) - (x < 0)); });
  for (const Binary& f : kBinary) {
    if (KernelRegistry::Global().Find(f.op, "cpu", dtype) == nullptr) continue;
    testing::CheckForward(
        {.op = f.op,
         .inputs = {a, b},
         .build = [&](absl::Span<const Value> in) { return std::vector<Value>{f.build(in[0], in[1])}; },
         .reference =
             [&](const std::vector<Doubles>& in) {
               Doubles y;
               for (size_t i = 0; i < in[0].size(); ++i) y.push_back(f.exact(in[0][i], in[1][i]));
               return std::vector<Doubles>{y};
             }});
  }
}

TEST_CASE("Integers are computed exactly") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  // Above 2^24 a float would lose units, above 2^32 an int32.
  const Tensor a = Tensor::Of<int64_t>({3}, {(int64_t{1} << 40) + 1, -7, 16777217});
  const Tensor b = Tensor::Of<int64_t>({}, {3});
  const std::vector<Tensor> y = testing::RunOn(kind, {a, b}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Add(in[0], in[1]),
                              Mul(in[0], in[1]),
                              Maximum(in[0], in[1]),
                              Less(in[0], in[1]),
                              Select(Less(in[0], in[1]), in[1], in[0]),
                              Abs(in[0])};
  });
  CHECK(y[0].data<int64_t>()[0] == (int64_t{1} << 40) + 4);
  CHECK(y[0].data<int64_t>()[1] == -4);
  CHECK(y[1].data<int64_t>()[2] == 50331651);
  CHECK(y[2].data<int64_t>()[1] == 3);
  CHECK(testing::ToDoubles(y[3]) == Doubles{0, 1, 0});
  CHECK(y[4].data<int64_t>()[0] == (int64_t{1} << 40) + 1);
  CHECK(y[5].data<int64_t>()[1] == 7);
  const Tensor square = testing::RunOn(kind, {Tensor::Of<int32_t>({2}, {46340, -5})},
                                       [](absl::Span<const Value> in) { return std::vector<Value>{Square(in[0])}; })[0];
  CHECK(square.data<int32_t>()[0] == 2147395600);
}

// As TensorFlow does: the low bits of the result.
TEMPLATE_TEST_CASE("Integers that overflow wrap around", "", int32_t, int64_t) {
  constexpr TestType kLowest = std::numeric_limits<TestType>::min(), kMost = std::numeric_limits<TestType>::max();
  const Tensor a = Tensor::Of<TestType>({3}, {kLowest, kMost, kMost / 2 + 1}),
               b = Tensor::Of<TestType>({3}, {-1, -1, 4});
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const std::vector<Tensor> y = testing::RunOn(kind, {a, b}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Neg(in[0]),
                              Abs(in[0]),
                              Square(in[0]),
                              Add(in[0], in[1]),
                              Sub(in[0], in[1]),
                              Mul(in[0], in[1]),
                              SquaredDifference(in[0], in[1])};
  });
  using Values = std::vector<TestType>;
  const auto values = [&](int i) { return Values(y[i].flat<TestType>().begin(), y[i].flat<TestType>().end()); };
  CHECK(values(0) == Values{kLowest, -kMost, kLowest / 2});
  CHECK(values(1) == Values{kLowest, kMost, kMost / 2 + 1});
  CHECK(values(2) == Values{0, 1, 0});
  CHECK(values(3) == Values{kMost, kMost - 1, kMost / 2 + 5});
  CHECK(values(4) == Values{kLowest + 1, kLowest, kMost / 2 - 3});
  CHECK(values(5) == Values{kLowest, -kMost, 0});
  CHECK(values(6) == Values{1, 0, 16});
}

Tensor CastOn(const std::string& kind, const Tensor& x, DType dtype) {
  return testing::RunOn(kind, {x},
                        [&](absl::Span<const Value> in) { return std::vector<Value>{Cast(in[0], dtype)}; })[0];
}

TEST_CASE("Chains that start with any type, and BroadcastTo of any type") {
  const DType dtype = GENERATE(DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool);
  const Tensor x = RandomInts({7, 30}, 1, 2).CastTo(dtype);
  CheckValues(
      op::Cast, x, [](Value v) { return Exp(Cast(v, DType::kFloat32)); }, [](double v) { return std::exp(v); });
  CheckValues(
      op::BroadcastTo, x,
      [](Value v) {
        return BroadcastTo(v, {1, 7, 30});
      },
      [](double v) { return v; });
}

TEST_CASE("Gradients flow through Cast, and through ReluGrad for second derivatives") {
  testing::CheckGradients(
      {.op = op::Cast,
       .inputs = {RandomTensor({3, 4}, 1)},
       .build = [](absl::Span<const Value> in) { return std::vector<Value>{Square(Cast(in[0], DType::kFloat32))}; },
       .reference =
           [](const std::vector<Doubles>& in) {
             Doubles y;
             for (const double x : in[0]) y.push_back(x * x);
             return std::vector<Doubles>{y};
           }});
  const Tensor y = RandomTensor({3, 4}, 2);
  testing::CheckGradients({.op = op::ReluGrad,
                           .inputs = {RandomTensor({3, 4}, 1)},
                           .build =
                               [&](absl::Span<const Value> in) {
                                 const Value at = in[0].graph()->Constant(y.CastTo(in[0].dtype()));
                                 return std::vector<Value>{Apply(op::ReluGrad, {in[0], at})};
                               },
                           .reference =
                               [&](const std::vector<Doubles>& in) {
                                 Doubles dx = in[0];
                                 for (size_t i = 0; i < dx.size(); ++i) dx[i] *= y.data<float>()[i] > 0 ? 1 : 0;
                                 return std::vector<Doubles>{dx};
                               }});
}

TEST_CASE("Casts") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = Tensor::Of<float>({5}, {-1.7f, 0, 0.5f, 1.7f, 100000.4f});
  CHECK(testing::ToDoubles(CastOn(kind, x, DType::kInt32)) == Doubles{-1, 0, 0, 1, 100000});
  CHECK(testing::ToDoubles(CastOn(kind, x, DType::kInt64)) == Doubles{-1, 0, 0, 1, 100000});
  CHECK(testing::ToDoubles(CastOn(kind, x, DType::kBool)) == Doubles{1, 0, 1, 1, 1});
  CHECK(testing::ToDoubles(CastOn(kind, x, DType::kBFloat16)) == Doubles{-1.703125, 0, 0.5, 1.703125, 99840});
  CHECK(testing::ToDoubles(CastOn(kind, x, DType::kFloat16)) == Doubles{-1.7001953125, 0, 0.5, 1.7001953125, INFINITY});
  CHECK(testing::ToDoubles(CastOn(kind, x.CastTo(DType::kBFloat16), DType::kFloat16)) ==
        Doubles{-1.703125, 0, 0.5, 1.703125, INFINITY});
  const Tensor half = Tensor::Of<float>({2}, {-1.7f, 65504}).CastTo(DType::kFloat16);
  CHECK(testing::ToDoubles(CastOn(kind, half, DType::kInt32)) == Doubles{-1, 65504});
  const Tensor bytes = Tensor::Of<uint8_t>({3}, {0, 7, 255});
  CHECK(testing::ToDoubles(CastOn(kind, bytes, DType::kFloat32)) == Doubles{0, 7, 255});
  CHECK(testing::ToDoubles(CastOn(kind, bytes, DType::kBool)) == Doubles{0, 1, 1});
  const Tensor large = Tensor::Of<int64_t>({2}, {(int64_t{1} << 31) - 1, -16777217});
  CHECK(CastOn(kind, large, DType::kInt32).data<int32_t>()[0] == 2147483647);
  CHECK(CastOn(kind, large, DType::kInt32).data<int32_t>()[1] == -16777217);
  CHECK(testing::ToDoubles(CastOn(kind, Tensor::Of<bool>({2}, {true, false}), DType::kInt64)) == Doubles{1, 0});
}

TEST_CASE("Gradients pass through casts between floating types only") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const auto gradients = [&](DType through) {
    return testing::RunOn(kind, {Tensor::Of<float>({2}, {1.5f, 2})}, [&](absl::Span<const Value> in) {
      const Value y = Cast(Cast(in[0], through), DType::kFloat32);
      const std::vector<Value> dx = Gradients(Mul(y, in[0]), {in[0]});
      return dx;
    })[0];
  };
  CHECK(testing::ToDoubles(gradients(DType::kBFloat16)) == Doubles{3, 4});
  CHECK(testing::ToDoubles(gradients(DType::kFloat16)) == Doubles{3, 4});
  CHECK(testing::ToDoubles(gradients(DType::kInt32)) == Doubles{1, 2});
}

// The gradient of sum(f(a, b)) with respect to a and b.
std::vector<Doubles> GradientsOf(const std::string& kind, Value (*f)(Value, Value), const Tensor& a, const Tensor& b) {
  std::vector<Doubles> result;
  const auto gradients = [&](absl::Span<const Value> in) { return Gradients(f(in[0], in[1]), in); };
  for (const Tensor& t : testing::RunOn(kind, {a, b}, gradients)) {
    result.push_back(testing::ToDoubles(t));
  }
  return result;
}

// As TensorFlow 2.15 gives.
TEST_CASE("Gradients at the edges") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor a = Tensor::Of<float>({3}, {1, 2, 3}), b = Tensor::Of<float>({3}, {2, 2, 2});
  CHECK(GradientsOf(kind, Maximum, a, b) == std::vector<Doubles>{{0, 1, 1}, {1, 0, 0}});
  CHECK(GradientsOf(kind, Minimum, a, b) == std::vector<Doubles>{{1, 1, 0}, {0, 0, 1}});
  const auto pow = GradientsOf(kind, Pow, Tensor::Of<float>({3}, {0, 2, -2}), Tensor::Of<float>({3}, {2, 0, 2}));
  CHECK(pow[0] == Doubles{0, 0, -4});
  CHECK(pow[1][0] == 0);
  CHECK(pow[1][1] == Approx(0.6931472));
  CHECK(pow[1][2] == 0);
  const Tensor relu = testing::RunOn(kind, {Tensor::Of<float>({3}, {0, -1, kNaN})},
                                     [](absl::Span<const Value> in) { return Gradients(Relu(in[0]), {in[0]}); })[0];
  CHECK(testing::ToDoubles(relu) == Doubles{0, 0, 0});
}

TEST_CASE("NaN goes through Relu, Maximum and Minimum as in TensorFlow") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const Tensor x = Tensor::Of<float>({3}, {kNaN, -1, 1}), y = Tensor::Of<float>({3}, {1, kNaN, 2});
  const std::vector<Tensor> out = testing::RunOn(kind, {x, y}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Relu(in[0]), Maximum(in[0], in[1]), Minimum(in[0], in[1]), Equal(in[0], in[0])};
  });
  CHECK(std::isnan(out[0].data<float>()[0]));
  CHECK(out[0].data<float>()[1] == 0);
  for (const int at : {0, 1}) {
    CHECK(std::isnan(out[1].data<float>()[at]));
    CHECK(std::isnan(out[2].data<float>()[at]));
  }
  CHECK(testing::ToDoubles(out[3]) == Doubles{0, 1, 1});
}

TEST_CASE("A cast to a smaller type and back rounds") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  const DType dtype = GENERATE(DType::kBFloat16, DType::kFloat16);
  // Half has 1e-7 among its denormals.
  const Tensor x = Tensor::Of<float>({4}, {1.0009765625f * 1.001f, -3.14159f, 65504, 1e-7f});
  const Tensor y = testing::RunOn(kind, {x}, [&](absl::Span<const Value> in) {
    return std::vector<Value>{Cast(Cast(in[0], dtype), DType::kFloat32)};
  })[0];
  for (int i = 0; i < 4; ++i) {
    const float v = x.data<float>()[i];
    CHECK(y.data<float>()[i] ==
          (dtype == DType::kFloat16 ? static_cast<float>(Half(v)) : static_cast<float>(BFloat16(v))));
  }
}

TEST_CASE("Denormal results are zero on any number of threads") {
  const int num_threads = GENERATE(1, 2);
  const int64_t n = GENERATE(1, 100000);
  Tensor result;
  // A fresh thread, whose settings no earlier test has touched.
  std::thread([&] {
    const auto device = MakeDevice("cpu", {.num_threads = num_threads}).value();
    Graph graph;
    const Value x = graph.Input("x", {DType::kFloat32, {n}});
    const Value y = Mul(x, graph.Constant(Tensor::Scalar(1e-30f)));
    Tensor feed(DType::kFloat32, {n});
    std::fill_n(feed.data<float>(), n, 1e-10f);
    result = Evaluate(graph, {{x}, {y}, {}}, {feed}, *device).value()[0];
  }).join();
  const absl::Span<const float> y = result.flat<float>();
  CHECK(std::count(y.begin(), y.end(), 0.0f) == n);
}

// A row of 3000 float32 has as many bytes as the 4 rows of bools it is compared in, so they may share memory.
TEST_CASE("A broadcast input survives the writing of the output") {
  const std::string kind = GENERATE(from_range(testing::KindsUnderTest()));
  Tensor row(DType::kFloat32, {3000});
  for (int i = 0; i < 3000; ++i) row.data<float>()[i] = 2999.5f - static_cast<float>(i);
  const Tensor column = Tensor::Of<float>({4, 1}, {0, 1000, 2000, 3000});
  const Tensor y = testing::RunOn(kind, {row, column}, [](absl::Span<const Value> in) {
    return std::vector<Value>{Less(Neg(Neg(in[0])), in[1])};
  })[0];
  for (int r = 0; r < 4; ++r) {
    const absl::Span<bool> less = y.flat<bool>().subspan(r * 3000, 3000);
    CHECK(std::count(less.begin(), less.end() - r * 1000, true) == 0);
    CHECK(std::count(less.end() - r * 1000, less.end(), true) == r * 1000);
  }
}

std::string BuildError(const std::vector<TensorType>& inputs,
                       const std::function<Value(absl::Span<const Value>)>& build) {
  return std::string(testing::BuildStatus(inputs, [&](absl::Span<const Value> in) {
                       return std::vector<Value>{build(in)};
                     }).message());
}

TEST_CASE("What does not fit is refused while building") {
  const TensorType f = {DType::kFloat32, {2, 3}}, g = {DType::kFloat32, {4}}, i = {DType::kInt32, {2, 3}};
  const TensorType b = {DType::kBFloat16, {3}}, d = {DType::kFloat64, {3}};
  CHECK(BuildError({f, g}, [](auto in) { return Add(in[0], in[1]); }) ==
        "Add: shapes [2,3] and [4] do not broadcast; inputs are float32[2,3], float32[4]");
  CHECK(BuildError({f, b}, [](auto in) { return Mul(in[0], in[1]); }) ==
        "Mul: needs inputs of one type; inputs are float32[2,3], bfloat16[3]");
  CHECK(BuildError({i}, [](auto in) { return Exp(in[0]); }) == "Exp: takes no int32; inputs are int32[2,3]");
  CHECK(BuildError({f}, [](auto in) { return LogicalNot(in[0]); }) ==
        "LogicalNot: takes no float32; inputs are float32[2,3]");
  CHECK(BuildError({f}, [](auto in) { return Apply(op::Sub, {in[0]}); }) ==
        "Sub: needs 2 inputs; inputs are float32[2,3]");
  CHECK(BuildError({d}, [](auto in) { return Cast(in[0], DType::kFloat32); }) ==
        "Cast: takes no float64; inputs are float64[3]");
  CHECK(BuildError({f}, [](auto in) { return Cast(in[0], DType::kFloat64); }) ==
        "Cast: cannot cast to float64; inputs are float32[2,3]");
  CHECK(BuildError({f, g}, [](auto in) { return BiasAdd(in[0], in[1]); }) ==
        "BiasAdd: needs one bias for each element of the last dimension; inputs are float32[2,3], float32[4]");
  CHECK(BuildError({g}, [](auto in) { return BroadcastTo(in[0], {2}); }) ==
        "BroadcastTo: cannot broadcast to [2]; inputs are float32[4]");
  CHECK(BuildError({f, f, f}, [](auto in) { return Select(in[0], in[1], in[2]); }) ==
        "Select: takes no float32; inputs are float32[2,3], float32[2,3], float32[2,3]");
}

}  // namespace
}  // namespace official::compute
