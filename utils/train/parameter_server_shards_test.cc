// Variables that are divided into shards on parameter servers: where they are, and that nothing else changes.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/train/parameter_server_job.h"
#include "utils/train/step.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Value;

distribute::Partitioner Shards(int64_t num_shards) { return distribute::FixedShardsPartitioner(num_shards).value(); }

TEST_CASE("Shards of variables on several servers end with the bits of one device") {
  const int64_t num_shards = GENERATE(2, 9);  // of 3 rows
  const int kind = GENERATE(0, 1, 2), micro_batches = GENERATE(1, 2);
  const bool sync = GENERATE(false, true);
  CAPTURE(num_shards, kind, micro_batches, sync);
  Model model = RegressionModel(Optimizer(kind));
  model.model_fn = [](const ModelInputs& in) -> absl::StatusOr<ModelSpec> {
    auto spec = Regression(in);
    const Value w = in.graph.Variable({"w", {DType::kFloat32, {3, 1}}, compute::Initializer::Zeros()});
    const Value average =
        in.graph.Variable({"average of w", w.type(), compute::Initializer::Ones(), /*trainable=*/false});
    spec->moving_averages.push_back({average, compute::Add(w, w)});
    return spec;
  };
  const EstimatorConfig alone = NewConfig(micro_batches);
  EstimatorConfig with_servers = NewConfig(micro_batches);
  with_servers.servers.sync_replicas = sync;
  with_servers.servers.partitioner = Shards(num_shards);
  constexpr int64_t kSteps = 9;
  REQUIRE(TrainAlone(model, alone, kSteps).ok());
  CHECK(TrainWithServers(model, with_servers, {1, 2}, kSteps).status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));

  // One device continues, and the servers continue its checkpoint.
  REQUIRE(TrainAlone(model, with_servers, kSteps + 3).ok());
  EstimatorConfig continued = with_servers;
  continued.model_dir = alone.model_dir;
  CHECK(TrainWithServers(model, continued, {1, 2}, kSteps + 3).status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps + 3) == Checkpoint(alone.model_dir, kSteps + 3)));
}

TEST_CASE("Rows of shards end with the bits of one device") {
  // Shards of a row each have no row of most batches.
  const int64_t num_shards = GENERATE(2, 3, 99);
  const int kind = GENERATE(0, 1, 2);
  const bool sync = GENERATE(false, true);
  CAPTURE(num_shards, kind, sync);
  const Model model = EmbeddingModel(Optimizer(kind));
  const EstimatorConfig alone = NewConfig();
  EstimatorConfig with_servers = NewConfig();
  with_servers.servers = {.sync_replicas = sync,
                          .placement = sync ? distribute::Placement::kGreedy : distribute::Placement::kRoundRobin,
                          .partitioner = Shards(num_shards)};
  constexpr int64_t kSteps = 9;
  REQUIRE(TrainAlone(model, alone, kSteps).ok());
  CHECK(TrainWithServers(model, with_servers, {1, 2}, kSteps).status() == absl::OkStatus());
  CHECK((Checkpoint(with_servers.model_dir, kSteps) == Checkpoint(alone.model_dir, kSteps)));
}

// The variables, with "+" and their first row where they are shards, and the slots that a server has.
std::string PlacedOn(int server, const Model& model, int num_servers, const distribute::Partitioner& partitioner,
                     distribute::Placement placement = distribute::Placement::kRoundRobin) {
  const auto built = BuildModel(
      model, Mode::kTrain, DType::kFloat32, Batched(SpecOfExample(), 1),
      {.part = StepPart::kUpdate,
       .server_update = ServerUpdate{
           .num_servers = num_servers, .placement = placement, .partitioner = partitioner, .server = server}});
  if (!built.ok()) return std::string(built.status().message());
  std::string text;
  for (const auto* specs : {&built->placed.variables, &built->placed.slots}) {
    for (const compute::VariableSpec& spec : *specs) {
      const auto shard = built->placed.shards.find(spec.name);
      absl::StrAppend(&text, text.empty() ? "" : " ", spec.name);
      if (shard == built->placed.shards.end()) continue;
      absl::StrAppend(&text, "=", shard->second.variable, "+", shard->second.first_row);
    }
  }
  return text;
}

TEST_CASE("Shards are placed as variables of their own, each with its slots") {
  const OptimizerFn adam = [](const compute::UpdateInputs& inputs,
                              absl::Span<const compute::VariableGradient> variables) {
    return compute::Adam(inputs, variables, {.scope = "train/"});
  };
  const Model model = RegressionModel(adam);
  CHECK(PlacedOn(0, model, 2, Shards(2)) ==
        "w/part_1=w+2 average train/beta1_power train/beta2_power train/w/part_1/Adam=train/w/Adam+2 "
        "train/w/part_1/Adam_1=train/w/Adam_1+2 global_step");
  CHECK(PlacedOn(1, model, 2, Shards(2)) ==
        "w/part_0=w+0 bias train/beta1_power train/beta2_power train/w/part_0/Adam=train/w/Adam+0 "
        "train/w/part_0/Adam_1=train/w/Adam_1+0 train/bias/Adam train/bias/Adam_1");
  // global_step has 8 bytes, as the larger shard.
  const Model simple = RegressionModel();
  constexpr auto kGreedy = distribute::Placement::kGreedy;
  CHECK(PlacedOn(0, simple, 3, Shards(2), kGreedy) == "average global_step");
  CHECK(PlacedOn(1, simple, 3, Shards(2), kGreedy) == "w/part_0=w+0");
  CHECK(PlacedOn(2, simple, 3, Shards(2), kGreedy) == "w/part_1=w+2 bias");
}

TEST_CASE("Shards that cannot be are refused") {
  const Model model = RegressionModel();
  CHECK(PlacedOn(0, model, 1, [](const auto&) { return 4; }) ==
        "the partitioner must return a number of shards from 1 to the 3 rows of variable w, got: 4");
  CHECK(PlacedOn(0, model, 1, [](const auto&) { return 0; }) ==
        "the partitioner must return a number of shards from 1 to the 3 rows of variable w, got: 0");
  CHECK(PlacedOn(7, model, 8, Shards(2)) ==
        "the cluster has 8 ps, and of the 3 variables of model regression, which are placed on them as 4 shards in "
        "turn, ps 7 has none that training changes; use fewer ps");
  const Model other_slots =
      RegressionModel([](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
        compute::Graph& graph = *variables[0].variable.graph();
        graph.Variable({variables[0].variable.node()->name() + "/sum", {DType::kFloat32, {7}}, {}, false});
        return compute::GradientDescent(inputs, variables);
      });
  CHECK(PlacedOn(0, other_slots, 1, Shards(2)) ==
        "the optimizer's variable w/part_0/sum is float32[7], but has to be divided as w/part_0, which is "
        "float32[2,1]; use no partitioner");
}

}  // namespace
}  // namespace official::train
