#include "utils/compute/ops/optimizer/optimizer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using Update = std::function<std::vector<Node*>(Value lr, absl::Span<const VariableGradient>)>;

// A test case calls it once and runs once for each kind of device.
std::string EachKind() { return GENERATE(from_range(testing::KindsUnderTest())); }

// Minimizes sum(v * v) from v = [1, 2] for `steps` updates and returns v after each.
std::vector<std::vector<float>> Minimize(const Update& update, float lr, int steps) {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  const Value rate = graph.Input("learning_rate", {DType::kFloat32, {}});
  const Value v = graph.Variable({"v", {DType::kFloat32, {2}}, Initializer::Ones()});
  const Value gradient = Gradients(Mul(v, v), {v})[0];
  const std::vector<Node*> targets = update(rate, {{v, gradient}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  REQUIRE(variables.Write("v", Tensor::Of<float>({2}, {1, 2})).ok());
  const auto program = Program::Compile(graph, {{rate}, {}, targets}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  std::vector<std::vector<float>> trace;
  for (int i = 0; i < steps; ++i) {
    REQUIRE(program->Run({Tensor::Scalar(lr)}).ok());
    const Tensor now = variables.Read("v").value();
    trace.push_back({now.flat<float>().begin(), now.flat<float>().end()});
  }
  return trace;
}

void CheckTrace(const std::vector<std::vector<float>>& got, const std::vector<std::vector<double>>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t s = 0; s < got.size(); ++s) {
    CHECK(got[s][0] == Approx(want[s][0]).epsilon(1e-6));
    CHECK(got[s][1] == Approx(want[s][1]).epsilon(1e-6));
  }
}

// Seen in TensorFlow 1.10.1 on v = [1, 2], loss sum(v^2).
TEST_CASE("Momentum(0.1, 0.9) follows TensorFlow") {
  CheckTrace(Minimize([](Value lr, absl::Span<const VariableGradient> v) { return Momentum(lr, v, {}); }, 0.1f, 3),
             {{.8, 1.6}, {.46, .92}, {.062, .124}});
}

// Seen in TensorFlow 2.15.1's tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), on a CPU.
TEST_CASE("Momentum has the bits of TensorFlow's CPU kernel") {
  const std::vector<float> gradient = {0x1.59b316p+0f, -0x1.961168p-2f, 0x1.82a954p-3f,  -0x1.5bb9a6p-6f,
                                       0x1.37eb3ap-1f, -0x1.75aaa4p-2f, -0x1.380982p-3f, 0x1.f065acp-3f};
  Graph graph;
  const Value rate = graph.Constant(Tensor::Scalar(0.1f));
  const Value v = graph.Variable({"v", {DType::kFloat32, {8}}, Initializer::Zeros()});
  const std::vector<Node*> update = Momentum(rate, {{v, graph.Constant(Tensor::Of<float>({8}, gradient))}}, {});
  const std::unique_ptr<Device> device = MakeDevice("cpu").value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  REQUIRE(variables
              .Write("v", Tensor::Of<float>({8}, {-0x1.de0cap-3f, -0x1.05edd2p-2f, 0x1.ec8b56p-1f, -0x1.2e734cp+0f,
                                                  0x1.79e0ap-1f, -0x1.195648p+0f, -0x1.533decp-2f, -0x1.ae528p-1f}))
              .ok());
  REQUIRE(variables
              .Write("v/Momentum",
                     Tensor::Of<float>({8}, {0x1.72e00ep+0f, 0x1.22ecd4p-1f, 0x1.374302p+1f, 0x1.48a944p-1f,
                                             0x1.b0a2e4p-1f, 0x1.ae6dfcp-1f, -0x1.3695cap-1f, -0x1.1ed626p-4f}))
              .ok());
  REQUIRE(Program::Compile(graph, {{}, {}, update}, *device, variables).value()->Run({}).ok());
  const Tensor v_after = variables.Read("v").value(), a_after = variables.Read("v/Momentum").value();
  const std::vector<float> v_seen = {-0x1.fed1cep-2f, -0x1.11b04ep-2f, 0x1.72d2d2p-1f,  -0x1.3cb262p+0f,
                                     0x1.33bf9p-1f,   -0x1.235d5ep+0f, -0x1.0bbc16p-2f, -0x1.b7815ap-1f};
  const std::vector<float> a_seen = {0x1.53be5ep+1f, 0x1.d6638p-4f,  0x1.304d4ap+1f,  0x1.1cedbcp-1f,
                                     0x1.5ea55p+0f,  0x1.911b54p-2f, -0x1.65892ep-1f, 0x1.6f521cp-3f};
  for (int i = 0; i < 8; ++i) {
    CHECK(v_after.data<float>()[i] == v_seen[i]);
    CHECK(a_after.data<float>()[i] == a_seen[i]);
  }
}

TEST_CASE("Adam moves by the learning rate at first, as in TensorFlow") {
  CheckTrace(Minimize([](Value lr, absl::Span<const VariableGradient> v) { return Adam(lr, v, {}); }, 1e-4f, 3),
             {{1 - 1e-4, 2 - 1e-4}, {1 - 2e-4, 2 - 2e-4}, {1 - 3e-4, 2 - 3e-4}});
}

// Seen in TensorFlow 2.15.1's tf.compat.v1.train.AdamOptimizer, with the betas and epsilon of the official transformer.
TEST_CASE("Adam follows TensorFlow") {
  CheckTrace(Minimize(
                 [](Value lr, absl::Span<const VariableGradient> v) {
                   return Adam(lr, v, {.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-9});
                 },
                 0.1f, 4),
             {{.9, 1.9}, {.80036199, 1.80014193}, {.70139706, 1.70053196}, {.60348129, 1.60128570}});
}

// By hand: a = 2, v = 1 - .1 * (2 + .9 * 2) = .62; a = 1.8 + 1.24 = 3.04, v = .62 - .1 * (1.24 + .9 * 3.04) = .2224.
TEST_CASE("Nesterov momentum looks ahead") {
  CheckTrace(Minimize(
                 [](Value lr, absl::Span<const VariableGradient> v) {
                   return Momentum(lr, v, {0.9, true});
                 },
                 0.1f, 2),
             {{.62, 1.24}, {.2224, .4448}});
}

TEST_CASE("Gradient descent") { CheckTrace(Minimize(GradientDescent, 0.1f, 2), {{.8, 1.6}, {.64, 1.28}}); }

// Sizes around the ranges of elements that threads take, and one without elements.
TEST_CASE("Many variables in one update get what each gets alone") {
  const auto [name, update] =
      GENERATE(std::pair<const char*, Update>{"GradientDescent", GradientDescent},
               std::pair<const char*, Update>{
                   "Momentum", [](Value lr, absl::Span<const VariableGradient> v) { return Momentum(lr, v, {}); }},
               std::pair<const char*, Update>{
                   "Adam", [](Value lr, absl::Span<const VariableGradient> v) { return Adam(lr, v, {}); }});
  const std::string kind = EachKind();
  INFO(name << " on " << kind);
  const std::vector<int64_t> sizes = {1, 20000, 0, 7, 50000, 16};
  // The variables after two updates, made by one node or by one per variable.
  const auto train = [&, &update = update](bool together) {
    Graph graph;
    const Value rate = graph.Constant(Tensor::Scalar(0.01f));
    std::vector<VariableGradient> all;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const TensorType type{DType::kFloat32, {sizes[i]}};
      const Value v = graph.Variable({"v" + std::to_string(i), type, Initializer::Normal(1)});
      all.push_back({v, graph.Constant(testing::RandomTensor(type.shape, i))});
    }
    std::vector<std::vector<Node*>> groups;
    if (together) {
      groups.push_back(update(rate, all));
    } else {
      for (const VariableGradient& one : all) groups.push_back(update(rate, {one}));
    }
    // Adam's powers of beta belong to all variables: they advance once.
    std::vector<Node*> targets;
    for (size_t k = 0; k < groups.size(); ++k) {
      for (Node* node : groups[k]) {
        if (k + 1 == groups.size() || !node->Is(op::AssignScale)) targets.push_back(node);
      }
    }
    const std::unique_ptr<Device> device = MakeDevice(kind).value();
    VariableStore variables(*device);
    REQUIRE(variables.Create(graph, 1).ok());
    const auto program = Program::Compile(graph, {{}, {}, targets}, *device, variables).value();
    testing::RecordKernels(*program, kind);
    for (int i = 0; i < 2; ++i) REQUIRE(program->Run({}).ok());
    std::vector<float> values;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Tensor now = variables.Read("v" + std::to_string(i)).value();
      values.insert(values.end(), now.flat<float>().begin(), now.flat<float>().end());
    }
    return values;
  };
  CHECK(train(true) == train(false));
}

using UpdateFunction = std::function<std::vector<Node*>(const UpdateInputs&, absl::Span<const VariableGradient>)>;

// The optimizers by name, each in the forms that have a rule of their own.
std::vector<std::pair<const char*, UpdateFunction>> Updates() {
  using Gradients = absl::Span<const VariableGradient>;
  return {{"GradientDescent", GradientDescent},
          {"Momentum", [](const UpdateInputs& in, Gradients v) { return Momentum(in, v, {}); }},
          {"Nesterov", [](const UpdateInputs& in, Gradients v) { return Momentum(in, v, {.nesterov = true}); }},
          {"Adam", [](const UpdateInputs& in, Gradients v) { return Adam(in, v, {}); }}};
}

// Two updates: one that does not apply, of gradients that would spoil everything, and one that does, of gradients times
// the loss scale.
TEST_CASE("A guarded update divides by the loss scale, and leaves all as it is where it does not apply") {
  const auto [name, update] = GENERATE(from_range(Updates()));
  const std::string kind = EachKind();
  INFO(name << " on " << kind);
  // All variables, slots and powers after the updates. The scale is a power of two, so that nothing is rounded.
  const auto train = [&, &update = update](bool guarded) {
    Graph graph;
    const Value g = graph.Input("g", {DType::kFloat32, {4, 3}}), scale = graph.Input("scale", {DType::kFloat32, {}});
    const Value apply = graph.Input("apply", {DType::kBool, {}});
    const Value v = graph.Variable({"v", {DType::kFloat32, {4, 3}}, Initializer::Normal(1)});
    const Value table = graph.Variable({"table", {DType::kFloat32, {5, 3}}, Initializer::Normal(1)});
    const Value ids = graph.Constant(Tensor::Of<int32_t>({4}, {1, 3, 1, 4}));
    UpdateInputs inputs(graph.Constant(Tensor::Scalar(0.01f)));
    if (guarded) inputs.loss_scale = scale, inputs.apply = apply;
    const std::vector<Node*> targets = update(inputs, {{v, g}, {table, IndexedSlices(ids, g, table.shape())}});
    const std::unique_ptr<Device> device = MakeDevice(kind).value();
    VariableStore variables(*device);
    REQUIRE(variables.Create(graph, 1).ok());
    GraphRoots roots{.feeds = {g}, .fetches = {}, .targets = targets};
    if (guarded) roots.feeds = {g, scale, apply};
    const auto program = Program::Compile(graph, roots, *device, variables).value();
    testing::RecordKernels(*program, kind);
    const Tensor gradient = testing::RandomTensor({4, 3}, 1);
    Tensor scaled = gradient.Clone(), infinite = gradient.Clone();
    for (float& x : scaled.flat<float>()) x *= 1024;
    for (float& x : infinite.flat<float>()) x = INFINITY;
    if (guarded) {
      REQUIRE(program->Run({infinite, Tensor::Scalar(1024.0f), Tensor::Scalar(false)}).ok());
      REQUIRE(program->Run({scaled, Tensor::Scalar(1024.0f), Tensor::Scalar(true)}).ok());
    } else {
      REQUIRE(program->Run({gradient}).ok());
    }
    std::vector<float> values;
    for (const VariableSpec& spec : variables.specs()) {
      const Tensor now = variables.Read(spec.name).value();
      values.insert(values.end(), now.flat<float>().begin(), now.flat<float>().end());
    }
    return values;
  };
  CHECK(train(true) == train(false));
}

// Half the elements of the gradients, and of the sums of rows of the table, are larger than 1.
TEST_CASE("An update clips the elements of gradients after it has taken off the loss scale") {
  const auto [name, update] = GENERATE(from_range(Updates()));
  const std::string kind = EachKind();
  INFO(name << " on " << kind);
  // All variables and slots after an update by 64 times the gradient, clipped by the update, or by the gradient that
  // is clipped here.
  const auto train = [&, &update = update](bool by_update) {
    Graph graph;
    const Value g = graph.Input("g", {DType::kFloat32, {37}}), rows = graph.Input("rows", {DType::kFloat32, {4, 3}});
    const Value v = graph.Variable({"v", g.type(), Initializer::Normal(1)});
    const Value table = graph.Variable({"table", {DType::kFloat32, {5, 3}}, Initializer::Normal(1)});
    const Value ids = graph.Constant(Tensor::Of<int32_t>({4}, {1, 3, 1, 4}));
    UpdateInputs inputs(graph.Constant(Tensor::Scalar(0.01f)));
    if (by_update) {
      inputs.loss_scale = graph.Constant(Tensor::Scalar(64.0f));
      inputs.apply = graph.Constant(Tensor::Scalar(true));
      inputs.clip_value = 1;
    }
    const std::vector<Node*> targets = update(inputs, {{v, g}, {table, IndexedSlices(ids, rows, table.shape())}});
    const std::unique_ptr<Device> device = MakeDevice(kind).value();
    VariableStore variables(*device);
    REQUIRE(variables.Create(graph, 1).ok());
    const GraphRoots roots{.feeds = {g, rows}, .fetches = {}, .targets = targets};
    const auto program = Program::Compile(graph, roots, *device, variables).value();
    testing::RecordKernels(*program, kind);
    Tensor of_v = testing::RandomTensor({37}, 1), of_rows = testing::RandomTensor({4, 3}, 2);
    for (float& x : of_v.flat<float>()) x *= 2;
    // Rows 0 and 2 are of the same row of the table: each is below 1, their sum above.
    for (int c = 0; c < 3; ++c) {
      for (int r = 0; r < 4; ++r)
        of_rows.data<float>()[3 * r + c] = r % 2 == 0 ? 0.75f : -0.25f * static_cast<float>(c);
    }
    if (by_update) {
      for (Tensor* t : {&of_v, &of_rows}) {
        for (float& x : t->flat<float>()) x *= 64;
      }
    } else {
      for (float& x : of_v.flat<float>()) x = std::min(1.0f, std::max(-1.0f, x));
      for (int c = 0; c < 3; ++c) of_rows.data<float>()[c] = of_rows.data<float>()[6 + c] = 0.5f;
    }
    REQUIRE(program->Run({of_v, of_rows}).ok());
    std::vector<float> values;
    for (const VariableSpec& spec : variables.specs()) {
      const Tensor now = variables.Read(spec.name).value();
      values.insert(values.end(), now.flat<float>().begin(), now.flat<float>().end());
    }
    return values;
  };
  CHECK(train(true) == train(false));
}

// A table of 5 rows, of which each step reads three; the loss is the sum of squares of what is read.
TEST_CASE("Adam adds up the gradients of a row that is read twice, and continues to move a row that is not read") {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  const Value rate = graph.Constant(Tensor::Scalar(0.1f));
  const Value ids = graph.Input("ids", {DType::kInt32, {3}});
  const Value table = graph.Variable({"table", {DType::kFloat32, {5, 3}}, Initializer::Ones()});
  const Value read = Gather(table, ids);
  const std::vector<Node*> targets = Adam(rate, {{table, Gradients(Mul(read, read), {table})[0]}}, {});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{ids}, {}, targets}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  REQUIRE(program->Run({Tensor::Of<int32_t>({3}, {1, 3, 1})}).ok());
  REQUIRE(program->Run({Tensor::Of<int32_t>({3}, {4, 3, 4})}).ok());
  const Tensor now = variables.Read("table").value();
  const double alpha = 0.1 * std::sqrt(1 - 0.998001) / (1 - 0.81);  // of step 2
  // Row 0, never read.
  CHECK(now.data<float>()[0] == 1);
  // Row 1, read in step 1: by hand m = .4 and v = .016, of (2 + 2)^2, which moves it to .9. In step 2 m = .36 and
  // v = .015984.
  CHECK(now.data<float>()[3] == Approx(0.9 - alpha * 0.36 / std::sqrt(0.015984)).epsilon(1e-5));
  // Row 4, read in step 2, with the m and v that row 1 has in step 1.
  CHECK(now.data<float>()[12] == Approx(1 - alpha * 0.4 / std::sqrt(0.016)).epsilon(1e-5));
}

TEST_CASE("Moving averages go a part of the way to the value") {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  const auto average = [&](const char* name, int64_t size) {
    return graph.Variable({name, {DType::kFloat32, {size}}, Initializer::Ones(), /*trainable=*/false});
  };
  const Value a = average("a", 2), b = average("b", 20000);
  const Value to_a = graph.Constant(Tensor::Of<float>({2}, {3, -1}));
  const Value to_b = graph.Constant(testing::RandomTensor({20000}, 1));
  const bool guarded = GENERATE(false, true);
  const Value apply = graph.Input("apply", {DType::kBool, {}});
  Node* const update = UpdateMovingAverages({{a, to_a}, {b, to_b}}, 0.75, guarded ? apply : Value());
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{apply}, {}, {update}}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  for (int i = 0; i < 2; ++i) REQUIRE(program->Run({Tensor::Scalar(true)}).ok());
  if (guarded) REQUIRE(program->Run({Tensor::Scalar(false)}).ok());
  // 1 -> 1.5 -> 1.875 and 1 -> 0.5 -> 0.125.
  CHECK(variables.Read("a")->flat<float>()[0] == 1.875f);
  CHECK(variables.Read("a")->flat<float>()[1] == 0.125f);
  const float last = testing::RandomTensor({20000}, 1).flat<float>()[19999];
  CHECK(variables.Read("b")->flat<float>()[19999] == Approx(0.5625f + 0.4375f * last).epsilon(1e-6));
}

// Seen in TensorFlow 2.15.1's tf.compat.v1.layers.batch_normalization, whose batches had these means.
TEST_CASE("Moving averages have TensorFlow's bits") {
  struct Seen {
    double momentum;
    std::vector<float> before, value, after;
  };
  const Seen seen = GENERATE(Seen{0.997,
                                  {-0x1.9a96c2p-1f, -0x1.53093p+0f, -0x1.fca504p-3f, 0x1.ae8932p-2f, 0x1.22d3f2p+0f,
                                   0x1.c15b8p-4f, -0x1.1af496p-1f, -0x1.91cebcp-1f},
                                  {0x1.7f5b9cp+0f, 0x1.a28124p+1f, 0x1.1750b2p-1f, -0x1.3bbb6ep+1f, -0x1.eaa1bcp+0f,
                                   0x1.999adap+1f, 0x1.9f80d4p-2f, -0x1.bb6d3p+1f},
                                  {-0x1.970e94p-1f, -0x1.4f81fap+0f, -0x1.f7c45p-3f, 0x1.a5aaacp-2f, 0x1.207bc8p+0f,
                                   0x1.e754eap-4f, -0x1.197bb8p-1f, -0x1.95ec5cp-1f}},
                             Seen{0.9,
                                  {-0x1.365c28p-5f, -0x1.37a45p-2f, -0x1.0c44eap+0f, -0x1.95b2ecp-2f, -0x1.176154p+0f,
                                   -0x1.5aeef6p+0f, 0x1.cc5c76p-3f, -0x1.1bfe5cp+0f},
                                  {0x1.2b9886p+1f, 0x1.6ee494p+0f, -0x1.ff70eap+1f, 0x1.16a8f4p-1f, -0x1.1a0a1ap+1f,
                                   0x1.0ece04p-4f, 0x1.656eecp-4f, -0x1.fd09bcp+1f},
                                  {0x1.9985bap-3f, -0x1.0b70ep-3f, -0x1.57bb02p+0f, -0x1.3565a2p-2f, -0x1.33d99ep+0f,
                                   -0x1.368c2cp+0f, 0x1.b0325cp-3f, -0x1.6566ep+0f}});
  const std::string kind = EachKind();
  INFO(kind << ", momentum " << seen.momentum);
  Graph graph;
  const Value average = graph.Variable({"average", {DType::kFloat32, {8}}, Initializer::Zeros(), /*trainable=*/false});
  const Value value = graph.Input("value", {DType::kFloat32, {8}});
  Node* const update = UpdateMovingAverages({{average, value}}, seen.momentum);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  REQUIRE(variables.Write("average", Tensor::Of<float>({8}, seen.before)).ok());
  const auto program = Program::Compile(graph, {{value}, {}, {update}}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  REQUIRE(program->Run({Tensor::Of<float>({8}, seen.value)}).ok());
  const Tensor after = variables.Read("average").value();
  for (int i = 0; i < 8; ++i) CHECK(after.data<float>()[i] == seen.after[i]);
}

TEST_CASE("Accumulate sums what several runs compute") {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  const Value add = graph.Input("add", {DType::kBool, {}}), x = graph.Input("x", {DType::kFloat32, {40000}});
  const auto sum = [&](const char* name, std::vector<int64_t> shape) {
    return graph.Variable({name, {DType::kFloat32, Shape(shape)}, Initializer::Constant(NAN), /*trainable=*/false});
  };
  const Value a = sum("a", {40000}), b = sum("b", {});
  Node* accumulate = Accumulate(add, {{a, x}, {b, graph.Constant(Tensor::Scalar(0.5f))}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{add, x}, {}, {accumulate}}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  const Tensor first = testing::RandomTensor({40000}, 1), second = testing::RandomTensor({40000}, 2);
  for (int round = 0; round < 2; ++round) {
    REQUIRE(program->Run({Tensor::Scalar(false), first}).ok());
    REQUIRE(program->Run({Tensor::Scalar(true), second}).ok());
  }
  CHECK(variables.Read("b")->scalar<float>() == 1);
  const Tensor sums = variables.Read("a").value();
  for (int i = 0; i < 40000; ++i) {
    if (sums.data<float>()[i] == first.data<float>()[i] + second.data<float>()[i]) continue;
    FAIL_CHECK("element " << i);
  }
  CHECK(Accumulate(add, {{a, b}}) == nullptr);
  CHECK_FALSE(graph.status().ok());
}

TEST_CASE("AssignAdd counts steps") {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  const Value step = graph.Variable({"global_step", {DType::kInt64, {}}, Initializer::Zeros(), false});
  Node* add = AssignAdd({{step, graph.Constant(Tensor::Scalar<int64_t>(1))}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{}, {step}, {add}}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  for (int i = 0; i < 3; ++i) REQUIRE(program->Run({}).ok());
  CHECK(program->Fetch(0)->scalar<int64_t>() == 3);
}

TEST_CASE("AssignAdd of a float") {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  const Value total = graph.Variable({"total", {DType::kFloat32, {}}, Initializer::Constant(1), false});
  Node* add = AssignAdd({{total, graph.Constant(Tensor::Scalar(0.25f))}});
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{}, {total}, {add}}, *device, variables).value();
  testing::RecordKernels(*program, kind);
  for (int i = 0; i < 2; ++i) REQUIRE(program->Run({}).ok());
  CHECK(program->Fetch(0)->scalar<float>() == 1.5f);
}

TEST_CASE("AssignAdd of many scalars of both types") {
  const std::string kind = EachKind();
  INFO(kind);
  Graph graph;
  std::vector<Count> counts;
  std::vector<Value> variables;
  for (int i = 0; i < 70; ++i) {
    const bool whole = i % 3 == 0;
    variables.push_back(graph.Variable({absl::StrCat("count_", i),
                                        {whole ? DType::kInt64 : DType::kFloat32, {}},
                                        whole ? Initializer::Zeros() : Initializer::Ones(),
                                        false}));
    counts.push_back({variables.back(), graph.Constant(whole ? Tensor::Scalar<int64_t>(i) : Tensor::Scalar(0.5f * i))});
  }
  Node* add = AssignAdd(counts);
  const std::unique_ptr<Device> device = MakeDevice(kind).value();
  VariableStore store(*device);
  REQUIRE(store.Create(graph, 1).ok());
  const auto program = Program::Compile(graph, {{}, variables, {add}}, *device, store).value();
  for (int i = 0; i < 2; ++i) REQUIRE(program->Run({}).ok());
  for (int i = 0; i < 70; ++i) {
    CAPTURE(i);
    const Tensor sum = program->Fetch(i).value();
    if (i % 3 == 0) {
      CHECK(sum.scalar<int64_t>() == 2 * i);
    } else {
      CHECK(sum.scalar<float>() == 1 + i);
    }
  }
}

TEST_CASE("AssignAdd takes pairs of scalars of one type") {
  Graph graph;
  const Value step = graph.Variable({"global_step", {DType::kInt64, {}}, Initializer::Zeros(), false});
  CHECK(AssignAdd({{step, graph.Constant(Tensor::Scalar(1.0f))}}) == nullptr);
  CHECK_THAT(std::string(graph.status().message()),
             Catch::Contains("a scalar of its type; inputs are int64[], float32[]"));
}

TEST_CASE("A variable that the loss does not depend on is refused by name") {
  Graph graph;
  const Value v = graph.Variable({"v", {DType::kFloat32, {2}}, Initializer::Ones()});
  const Value unused = graph.Variable({"unused", {DType::kFloat32, {2}}, Initializer::Ones()});
  const Value gradient = Gradients(Mul(v, v), {unused})[0];
  CHECK(Momentum(graph.Constant(Tensor::Scalar(0.1f)), {{unused, gradient}}, {}).empty());
  CHECK(absl::IsInvalidArgument(graph.status()));
  CHECK_THAT(std::string(graph.status().message()), Catch::Contains("variable unused has no gradient"));
}

TEST_CASE("Shapes that do not fit are refused") {
  const absl::Status status = testing::BuildStatus(
      {{DType::kFloat32, {}}, {DType::kFloat32, {2}}, {DType::kFloat32, {3}}}, [](absl::Span<const Value> in) {
        GradientDescent(in[0], {{in[1], in[2]}});
        return std::vector<Value>{};
      });
  CHECK_THAT(std::string(status.message()), Catch::Contains("in one shape; inputs are float32[], float32[2]"));
}

}  // namespace
}  // namespace official::compute
