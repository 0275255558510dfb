#include "utils/compute/ops/optimizer/deferred_adam.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/testing/op_test.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;
using testing::RandomInts;
using testing::RandomTensor;

constexpr int kFewIds = 6;

std::string EachKind() { return GENERATE(from_range(testing::KindsUnderTest())); }

// Three tables, of which a step reads `num_ids` rows each, some of them twice and of two tables the same, and a vector.
class Training {
 public:
  explicit Training(const std::string& kind, bool deferred, bool guarded = false, int num_ids = kFewIds,
                    std::optional<double> clip_value = {})
      : num_ids_(num_ids), device_(MakeDevice(kind).value()), variables_(*device_) {
    graph_.set_batch_parts(4);
    const Value users = graph_.Input("users", {DType::kInt32, {num_ids_}});
    const Value items = graph_.Input("items", {DType::kInt32, {num_ids_}});
    const Value wide = graph_.Variable({"wide", {DType::kFloat32, {50, 21}}, Initializer::Normal(1)});
    const Value wider = graph_.Variable({"wider", {DType::kFloat32, {50, 70}}, Initializer::Normal(1)});
    const Value narrow = graph_.Variable({"narrow", {DType::kFloat32, {9, 3}}, Initializer::Normal(1)});
    const Value bias = graph_.Variable({"bias", {DType::kFloat32, {5}}, Initializer::Normal(1)});
    const Value of_wide = graph_.Input("of_wide", {DType::kFloat32, {num_ids_, 21}});
    const Value of_wider = graph_.Input("of_wider", {DType::kFloat32, {num_ids_, 70}});
    const Value of_narrow = graph_.Input("of_narrow", {DType::kFloat32, {num_ids_, 3}});
    const Value of_bias = graph_.Input("of_bias", {DType::kFloat32, {5}});
    std::vector<Value> ids = {users, users, items};
    if (deferred) ids = CatchUpRows({{wide, users}, {wider, users}, {narrow, items}}, params_);
    const Value rate = graph_.Input("rate", {DType::kFloat32, {}});
    UpdateInputs inputs(rate);
    const Value scale = graph_.Input("scale", {DType::kFloat32, {}}), apply = graph_.Input("apply", {DType::kBool, {}});
    GraphRoots roots{.feeds = {users, items, of_wide, of_wider, of_narrow, of_bias, rate},
                     .fetches = {Gather(wide, ids[0]), Gather(wider, ids[0]), Gather(narrow, ids[2])},
                     .targets = {}};
    if (guarded) {
      inputs.loss_scale = scale;
      inputs.apply = apply;
      inputs.clip_value = clip_value;
      roots.feeds.insert(roots.feeds.end(), {scale, apply});
    }
    roots.targets = Adam(inputs,
                         {{wide, IndexedSlices(ids[0], of_wide, wide.shape())},
                          {wider, IndexedSlices(ids[0], of_wider, wider.shape())},
                          {narrow, IndexedSlices(ids[2], of_narrow, narrow.shape())},
                          {bias, of_bias}},
                         params_);
    Node* const settle = SettleRows(graph_);
    REQUIRE((settle != nullptr) == deferred);
    REQUIRE(graph_.status().ok());
    REQUIRE(variables_.Create(graph_, 1).ok());
    step_ = Program::Compile(graph_, roots, *device_, variables_).value();
    testing::RecordKernels(*step_, kind);
    if (!deferred) return;
    settle_ = Program::Compile(graph_, {.feeds = {}, .fetches = {}, .targets = {settle}}, *device_, variables_).value();
    testing::RecordKernels(*settle_, kind);
  }

  std::vector<Tensor> Feeds(int step) const {
    return {RandomInts({num_ids_}, 3 * step, 50),
            RandomInts({num_ids_}, 3 * step + 1, step % 2 == 0 ? 9 : 2),
            RandomTensor({num_ids_, 21}, step),
            RandomTensor({num_ids_, 70}, step + 15000),
            RandomTensor({num_ids_, 3}, step + 5000),
            RandomTensor({5}, step + 10000),
            Tensor::Scalar(0.01f / static_cast<float>(1 + step % 3))};
  }
  absl::Status Step(const std::vector<Tensor>& feeds) { return testing::RunAndWait(*step_, feeds, *device_); }
  void Settle() { REQUIRE(settle_->Run({}).ok()); }
  // What the last step read.
  std::vector<Tensor> Read() {
    return {step_->Fetch(0).value().Clone(), step_->Fetch(1).value().Clone(), step_->Fetch(2).value().Clone()};
  }
  // Variables, slots and powers.
  std::vector<Tensor> Values() {
    std::vector<Tensor> values;
    for (const VariableSpec& spec : variables_.specs()) {
      if (spec.name.rfind(kDeferredPrefix, 0) != 0) values.push_back(variables_.Read(spec.name).value());
    }
    return values;
  }

 private:
  const int num_ids_;
  const AdamParams params_ = {};
  Graph graph_;
  const std::unique_ptr<Device> device_;
  VariableStore variables_;
  std::unique_ptr<Program> step_, settle_;
};

void CheckSameBits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(std::memcmp(a[i].raw_data(), b[i].raw_data(), a[i].num_bytes()) == 0);
}

TEST_CASE("Deferred Adam reads and leaves the bits of dense Adam, settled at any time") {
  const std::string kind = EachKind();
  const int threads = GENERATE(1, 3);
  if (kind != "cpu" && threads > 1) return;
  INFO(kind);
  const int before = NumThreads();
  SetNumThreads(threads);
  Training dense(kind, false), deferred(kind, true);
  // Beyond the number of steps after which it settles by itself.
  for (int step = 0; step < 1300; ++step) {
    REQUIRE(dense.Step(dense.Feeds(step)).ok());
    REQUIRE(deferred.Step(deferred.Feeds(step)).ok());
    if (step % 10 == 0) CheckSameBits(deferred.Read(), dense.Read());
    if (step == 0 || step == 57 || step == 1000) {
      deferred.Settle();
      CheckSameBits(deferred.Values(), dense.Values());
    }
  }
  deferred.Settle();
  deferred.Settle();
  CheckSameBits(deferred.Values(), dense.Values());
  SetNumThreads(before);
}

TEST_CASE("Deferred Adam leaves the bits of dense Adam where rows occur often in a step") {
  const std::string kind = EachKind();
  INFO(kind);
  const int num_ids = GENERATE(33, 700);
  Training dense(kind, false, false, num_ids), deferred(kind, true, false, num_ids);
  for (int step = 0; step < 3; ++step) {
    REQUIRE(dense.Step(dense.Feeds(step)).ok());
    REQUIRE(deferred.Step(deferred.Feeds(step)).ok());
    CheckSameBits(deferred.Read(), dense.Read());
  }
  deferred.Settle();
  CheckSameBits(deferred.Values(), dense.Values());
}

TEST_CASE("A loss scale is taken off, and a skipped step changes nothing") {
  const std::string kind = EachKind();
  INFO(kind);
  Training plain(kind, true), guarded(kind, true, true);
  for (int step = 0; step < 20; ++step) {
    std::vector<Tensor> feeds = plain.Feeds(step);
    REQUIRE(plain.Step(feeds).ok());
    for (int i = 2; i < 6; ++i) {
      feeds[i] = feeds[i].Clone();
      for (float& x : feeds[i].flat<float>()) x *= 64;
    }
    feeds.insert(feeds.end(), {Tensor::Scalar(64.0f), Tensor::Scalar(false)});
    REQUIRE(guarded.Step(feeds).ok());
    feeds.back() = Tensor::Scalar(true);
    REQUIRE(guarded.Step(feeds).ok());
  }
  plain.Settle();
  guarded.Settle();
  CheckSameBits(guarded.Values(), plain.Values());
}

TEST_CASE("Deferred Adam clips the sums of the gradients of rows, as dense Adam does") {
  const std::string kind = EachKind();
  INFO(kind);
  Training deferred(kind, true, true, kFewIds, 0.5), dense(kind, false, true, kFewIds, 0.5), free(kind, true, true);
  for (int step = 0; step < 20; ++step) {
    std::vector<Tensor> feeds = deferred.Feeds(step);
    feeds.insert(feeds.end(), {Tensor::Scalar(0.75f), Tensor::Scalar(true)});
    for (Training* training : {&deferred, &dense, &free}) REQUIRE(training->Step(feeds).ok());
  }
  deferred.Settle();
  free.Settle();
  CheckSameBits(deferred.Values(), dense.Values());
  const std::vector<Tensor> clipped = deferred.Values(), others = free.Values();
  bool differ = false;
  for (size_t i = 0; i < clipped.size(); ++i) {
    differ |= std::memcmp(clipped[i].raw_data(), others[i].raw_data(), clipped[i].num_bytes()) != 0;
  }
  CHECK(differ);
}

TEST_CASE("Steps of several replicas, or whose updates must be whole, are not deferred") {
  Graph graph;
  graph.set_step_context(GENERATE(StepContext{.num_replicas = 2}, StepContext{.needs_whole_updates = true}));
  const Value table = graph.Variable({"table", {DType::kFloat32, {50, 21}}, Initializer::Normal(1)});
  const Value ids = graph.Input("ids", {DType::kInt32, {kFewIds}});
  CHECK(CatchUpRows({{table, ids}}, {}) == std::vector<Value>{ids});
  CHECK(graph.nodes().size() == 2);
}

// The table, its moments and the powers after some steps, of which each reads 6 of 50 rows by Gather, as `dtype`.
std::vector<Tensor> TrainedByGather(const std::string& kind, DType dtype, bool deferred) {
  const auto device = MakeDevice(kind).value();
  Graph graph;
  const Value table = graph.Variable({"table", {DType::kFloat32, {50, 21}}, Initializer::Normal(1)});
  const Value ids = graph.Input("ids", {DType::kInt32, {kFewIds}});
  const Value rows = Gather(table, deferred ? CatchUpRows({{table, ids}}, {})[0] : ids);
  const Value gradient = Gradients(Square(Cast(rows, dtype)), {table})[0];
  const std::vector<Node*> update = Adam(graph.Constant(Tensor::Scalar(0.01f)), {{table, gradient}}, {});
  const auto defers = [](const Node* node) { return node->Is(op::ApplyDeferredAdam); };
  REQUIRE(std::any_of(update.begin(), update.end(), defers) == deferred);
  Node* const settle = SettleRows(graph);
  VariableStore variables(*device);
  REQUIRE(variables.Create(graph, 1).ok());
  const auto step = Program::Compile(graph, {{ids}, {}, update}, *device, variables).value();
  for (int i = 0; i < 30; ++i) REQUIRE(testing::RunAndWait(*step, {RandomInts({kFewIds}, i, 50)}, *device).ok());
  if (deferred) REQUIRE(Program::Compile(graph, {{}, {}, {settle}}, *device, variables).value()->Run({}).ok());
  std::vector<Tensor> values;
  for (const char* name : {"table", "table/Adam", "table/Adam_1", "beta1_power", "beta2_power"}) {
    values.push_back(variables.Read(name).value());
  }
  return values;
}

TEST_CASE("Steps of a table that Gather reads are deferred, in whatever type its rows are then computed with") {
  const std::string kind = EachKind();
  const DType dtype = GENERATE(DType::kFloat32, DType::kFloat16);
  CAPTURE(kind, DTypeName(dtype));
  CheckSameBits(TrainedByGather(kind, dtype, true), TrainedByGather(kind, dtype, false));
}

TEST_CASE("A table that was given to CatchUpRows and has a gradient of other rows too is an error") {
  const bool is_dense = GENERATE(true, false);
  Graph graph;
  const Value a = graph.Variable({"a", {DType::kFloat32, {8, 4}}, Initializer::Normal(1)});
  const Value b = graph.Variable({"b", {DType::kFloat32, {8, 4}}, Initializer::Normal(1)});
  const Value ids = graph.Input("ids", {DType::kInt32, {2}}), more = graph.Input("more", {DType::kInt32, {2}});
  const std::vector<Value> caught_up = CatchUpRows({{a, ids}, {b, ids}, {b, more}}, {});
  const Value rows = Mul(Gather(a, caught_up[0]), Gather(b, caught_up[1]));
  const Value others = is_dense ? Square(b) : Square(Gather(b, caught_up[2]));
  const std::vector<Value> gradients =
      Gradients({rows, others}, {graph.Input("d_rows", rows.type()), graph.Input("d_others", others.type())}, {a, b});
  CHECK(Adam(graph.Constant(Tensor::Scalar(0.1f)), {{a, gradients[0]}, {b, gradients[1]}}, {}).empty());
  CHECK(absl::IsInvalidArgument(graph.status()));
  CHECK_THAT(std::string(graph.status().message()),
             Contains("variable b was given to CatchUpRows, but its gradient is not of those rows alone"));
}

TEST_CASE("An id outside its table is an error") {
  const std::string kind = EachKind();
  Training deferred(kind, true);
  std::vector<Tensor> feeds = deferred.Feeds(0);
  feeds[1].data<int32_t>()[2] = 9;
  const std::string want = kind == kCudaKind ? "id 9 is outside [0, 9)" : "id 9 at position 2 is outside [0, 9)";
  CHECK_THAT(std::string(deferred.Step(feeds).message()), Contains(want));
}

}  // namespace
}  // namespace official::compute
