#include "utils/train/replicas.h"

#include <catch2/catch.hpp>
#include <set>

#include "utils/train/line_model.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

// Fits a line. As sentences, shares have as many rows as their first label says.
Model Sentences() {
  Model model = Line();
  model.share = [](Mode, const data::Batch& batch, const compute::Share& examples) {
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

}  // namespace
}  // namespace official::train
