#include "utils/train/replicas.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/collective/collective.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;

// Fits a line. As sentences, shares have as many rows as their first label says.
Model Sentences() {
  Model model = Line();
  model.share = [](Mode, const data::Batch& batch, const compute::Share& examples, int) {
    const auto rows = static_cast<int64_t>(batch.labels[0].data<float>()[examples.begin]);
    return BatchShare{.examples = examples,
                      .features = {Tensor(DType::kFloat32, {rows, 1})},
                      .labels = {Tensor(DType::kFloat32, {rows})},
                      .weight = rows};
  };
  return model;
}

TEST_CASE("A replica has one program for each length of its own, whatever lengths the others have") {
  constexpr int kReplicas = 3, kLengths = 4;
  const auto strategy = distribute::Strategy::Create({.num_replicas = kReplicas, .num_threads = 1}).value();
  const Model model = Sentences();
  Replicas replicas(model, DType::kFloat32, {}, /*micro_batches=*/1, *strategy, nullptr);
  const data::ElementSpec spec = {{{"x", {DType::kFloat32, {1}}}}, {{"y", {DType::kFloat32, {}}}}};
  std::set<const compute::Program*> programs[kReplicas];
  std::set<const BuiltModel*> models;
  int combinations = 0;
  for (int i = 0; i < kLengths * kLengths * kLengths; ++i) {
    const int lengths[kReplicas] = {1 + i % kLengths, 1 + i / kLengths % kLengths, 1 + i / kLengths / kLengths};
    data::Batch batch;
    batch.labels = {Tensor(DType::kFloat32, {kReplicas})};
    batch.num_examples = kReplicas;
    for (int r = 0; r < kReplicas; ++r) batch.labels[0].data<float>()[r] = static_cast<float>(lengths[r]);
    const auto prepare = [&](const compute::Graph& graph) { return replicas.CreateVariables(graph, /*seed=*/1); };
    const absl::StatusOr<ReplicatedProgram*> program = replicas.ProgramFor(Mode::kTrain, spec, batch, prepare);
    INFO(program.status());
    REQUIRE(program.ok());
    CHECK(replicas.ProgramFor(Mode::kTrain, spec, batch, prepare).value() == *program);
    REQUIRE((*program)->replicas.size() == kReplicas);
    for (int r = 0; r < kReplicas; ++r) {
      const ReplicatedProgram::Replica& replica = (*program)->replicas[r];
      CHECK(replica.share.weight == lengths[r]);
      programs[r].insert(replica.program.get());
      models.insert(replica.model.get());
    }
    ++combinations;
  }
  CHECK(combinations == 64);
  for (const auto& own : programs) CHECK(own.size() == kLengths);
  CHECK(models.size() == kLengths);  // replicas compile the same graphs
}

// Has three weights.
Model Weights() {
  Model model = Line();
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    Value y = in.features[0];
    for (const char* name : {"a", "b", "c"}) {
      y = compute::Mul(y, in.graph.Variable({name, {DType::kFloat32, {1}}, compute::Initializer::Constant(1)}));
    }
    return ModelSpec{.loss = compute::Mean(compute::Square(y)),
                     .predictions = {},
                     .metrics = {},
                     .logged = {},
                     .moving_averages = {}};
  };
  return model;
}

TEST_CASE("The devices say in which packs their gradients are summed") {
  compute::RegisterDeviceKind({.name = "packing",
                               .make_device = compute::FindDeviceKind("cpu")->make_device,
                               .pack_sizes = compute::PackSizes{.most_bytes = 1, .last_bytes = 1}});
  const auto num_packs = [](const char* kind) {
    const auto strategy =
        distribute::Strategy::Create({.device_kind = kind, .num_replicas = 2, .num_threads = 2}).value();
    const Model model = Weights();
    Replicas replicas(model, DType::kFloat32, {}, /*micro_batches=*/1, *strategy, nullptr);
    const data::ElementSpec spec = {{{"x", {DType::kFloat32, {1}}}}, {{"y", {DType::kFloat32, {}}}}};
    data::Batch batch;
    batch.features = {Tensor(DType::kFloat32, {2, 1})};
    batch.labels = {Tensor(DType::kFloat32, {2})};
    batch.num_examples = 2;
    const auto prepare = [&](const compute::Graph& graph) { return replicas.CreateVariables(graph, /*seed=*/1); };
    const absl::StatusOr<ReplicatedProgram*> program = replicas.ProgramFor(Mode::kTrain, spec, batch, prepare);
    INFO(program.status());
    REQUIRE(program.ok());
    const auto& nodes = (*program)->replicas[0].model->graph->nodes();
    return std::count_if(nodes.begin(), nodes.end(),
                         [](const auto& node) { return node->Is(compute::op::AllReduceStart); });
  };
  CHECK(num_packs("cpu") == 2);
  CHECK(num_packs("packing") == 3);
}

}  // namespace
}  // namespace official::train
