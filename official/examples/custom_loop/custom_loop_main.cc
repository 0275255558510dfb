// custom_loop_main: a network that tells whether a point lies in a circle, trained with a loop of its own, as "Custom
// training loops" of TensorFlow's guide "Distributed training" has it: on CPU devices of this process or, if TF_CONFIG
// or another launcher describes several, of each of them. It prints the loss, the test loss and the test accuracy of
// each epoch, and continues from its last checkpoint when it is started again.

#include <iomanip>
#include <iostream>

#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/data/auto_shard.h"
#include "utils/data/dataset.h"
#include "utils/distribute/custom_loop/distributed_dataset.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/custom_loop/mean_metric.h"
#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/flags/cluster.h"
#include "utils/flags/console.h"
#include "utils/flags/shared_groups.h"
#include "utils/logs/log.h"
#include "utils/run/config.h"
#include "utils/run/standalone/main.h"
#include "utils/run/strategy.h"
#include "utils/train/custom_loop/checkpoint_manager.h"

namespace official::examples {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using distribute::MeanMetric;
using distribute::PerReplica;
using distribute::ReduceOp;
using distribute::ReplicaContext;

constexpr int64_t kGlobalBatchSize = 64;

// Points [2] in [-1, 1) and their labels: 1 within the circle around the origin that has half of the area.
data::DatasetPtr Points(int64_t count, uint64_t seed) {
  Tensor points(DType::kFloat32, {count, 2}), labels(DType::kInt32, {count});
  data::Random random(seed, /*epoch=*/0, /*index=*/0);
  for (int64_t i = 0; i < count; ++i) {
    float* const point = points.data<float>() + 2 * i;
    for (int k = 0; k < 2; ++k) point[k] = random.Uniform(-1, 1);
    labels.data<int32_t>()[i] = point[0] * point[0] + point[1] * point[1] < 0.6366f ? 1 : 0;
  }
  return data::Shuffle(data::TensorSlices({{"", points}}, {{"", labels}}), seed);
}

absl::StatusOr<distribute::DistributedDatasetPtr> Distribute(distribute::Strategy& strategy,
                                                             const data::DatasetPtr& points, int64_t epoch) {
  return distribute::DistributeDataset(strategy, points,
                                       {.batch_size = kGlobalBatchSize, .start = {epoch, 0}, .end_epoch = epoch + 1},
                                       {.auto_shard_policy = data::AutoShardPolicy::kData});
}

// The logits [batch, 2] of points [batch, 2].
Value Network(compute::Graph& graph, Value points) {
  compute::Layers layers(graph, DType::kFloat32);
  return layers.Dense(layers.Dense(points, 16, {.activation = compute::Activation::kRelu}), 2);
}

// What a step does on one replica. Its loss is its part of the global batch's: the sum over the replicas is the mean.
absl::StatusOr<std::vector<Value>> TrainStep(ReplicaContext& context, absl::Span<const Value> inputs) {
  const Value losses = compute::SparseSoftmaxCrossEntropy(Network(context.graph(), inputs[0]), inputs[1]);
  const Value loss = distribute::ComputeAverageLoss(losses, {.global_batch_size = kGlobalBatchSize});
  const std::vector<Value> variables = context.TrainableVariables();
  const std::vector<Value> gradients = compute::Gradients(loss, variables);
  std::vector<compute::VariableGradient> updates;
  for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
  const Value learning_rate = context.graph().Constant(Tensor::Scalar(0.01f));
  context.ApplyGradients([](const auto& in, const auto& of) { return compute::Adam(in, of, {}); }, learning_rate,
                         updates);
  return std::vector<Value>{loss};
}

// The same for a test step, whose metrics are those of all replicas.
distribute::ReplicaFn TestStep(const MeanMetric& test_loss, const MeanMetric& test_accuracy) {
  return [&](ReplicaContext& context, absl::Span<const Value> inputs) -> absl::StatusOr<std::vector<Value>> {
    const Value logits = Network(context.graph(), inputs[0]);
    const Value correct = compute::Equal(compute::Cast(compute::ArgMax(logits), DType::kInt32), inputs[1]);
    test_loss.UpdateState(context, compute::SparseSoftmaxCrossEntropy(logits, inputs[1]));
    test_accuracy.UpdateState(context, compute::Cast(correct, DType::kFloat32));
    return std::vector<Value>{};
  };
}

absl::Status Train(const run::Config& config, distribute::Strategy& strategy) {
  ASSIGN_OR_RETURN(const auto scope, distribute::StrategyScope::Create(strategy, /*seed=*/1));
  ASSIGN_OR_RETURN(MeanMetric test_loss, MeanMetric::Create(*scope, "test_loss"));
  ASSIGN_OR_RETURN(MeanMetric test_accuracy, MeanMetric::Create(*scope, "test_accuracy"));
  distribute::ReplicaFunction train_step(TrainStep), test_step(TestStep(test_loss, test_accuracy));
  std::unique_ptr<train::CheckpointManager> checkpoints;
  int64_t epoch = 0;
  if (!config.train.model_dir.empty()) {
    ASSIGN_OR_RETURN(checkpoints, train::CheckpointManager::Open(*scope, config.train.model_dir));
    ASSIGN_OR_RETURN(const std::optional<int64_t> trained,
                     checkpoints->RestoreLatest({.assert_existing_objects_matched = true}));
    epoch = trained.value_or(0);
  }
  if (epoch >= config.base.train_epochs) {
    LOG(INFO) << "nothing to do: " << config.train.model_dir << " is trained for " << epoch
              << " epochs; to continue, raise --train_epochs";
  }
  // Neither number is a multiple of the batch: the last batches are smaller.
  const data::DatasetPtr train_points = Points(2050, /*seed=*/1), test_points = Points(330, /*seed=*/2);
  for (; epoch < config.base.train_epochs; ++epoch) {
    ASSIGN_OR_RETURN(const auto train_dataset, Distribute(strategy, train_points, epoch));
    float total_loss = 0;
    int num_batches = 0;
    for (;; ++num_batches) {
      ASSIGN_OR_RETURN(const auto batch, train_dataset->Next());
      if (!batch) break;
      ASSIGN_OR_RETURN(const std::vector<PerReplica> losses, scope->Run(train_step, batch->Arguments()));
      ASSIGN_OR_RETURN(const Tensor loss, scope->Reduce(ReduceOp::kSum, losses[0]));
      total_loss += loss.scalar<float>();
    }
    ASSIGN_OR_RETURN(const auto test_dataset, Distribute(strategy, test_points, 0));
    for (;;) {
      ASSIGN_OR_RETURN(const auto batch, test_dataset->Next());
      if (!batch) break;
      RETURN_IF_ERROR(scope->Run(test_step, batch->Arguments()).status());
    }
    ASSIGN_OR_RETURN(const float mean_test_loss, test_loss.Result());
    ASSIGN_OR_RETURN(const float accuracy, test_accuracy.Result());
    std::cout << "epoch " << epoch + 1 << std::setprecision(9) << " loss "
              << total_loss / static_cast<float>(num_batches) << " test_loss " << mean_test_loss << " test_accuracy "
              << accuracy << std::endl;
    for (MeanMetric* const metric : {&test_loss, &test_accuracy}) RETURN_IF_ERROR(metric->ResetState());
    if (checkpoints != nullptr) RETURN_IF_ERROR(checkpoints->Save(epoch + 1));
  }
  return absl::OkStatus();
}

flags::Program Program() {
  return {.name = "custom_loop_main",
          .description = "Trains a network that tells whether a point lies in a circle, with a loop of its own.",
          .examples = {{"custom_loop_main --num_cpu_devices=3", "train on three logical devices"}},
          .defaults = {{"model_dir", ""}, {"train_epochs", "5"}},
          .help = {{"model_dir", "Directory of the checkpoints, the same on all workers; empty: none are made."}},
          .flags = {.name = "custom_loop",
                    .flags = {flags::SharedFlag("num_gpus"),
                              flags::SharedFlag("num_cpu_devices"),
                              flags::SharedFlag("distribution_strategy"),
                              {.name = "train_epochs", .range = flags::AtLeast(1)},
                              {.name = "model_dir"},  // all workers have checkpoints, or none has
                              flags::LogFormatFlag()}},
          .shared_flags = false,
          .more_flags = {flags::ConnectionFlags({"workers", "collective_communication"})}};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config config = run::ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  ASSIGN_OR_RETURN(const auto connected, run::ConnectedStrategy::Create(config));
  const absl::Status trained = Train(config, connected->strategy());
  connected->Finish(trained);
  return trained;
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::examples::Program(), official::examples::Main);
}
