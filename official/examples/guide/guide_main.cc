// guide_main: TensorFlow's guide "Distributed training with TensorFlow", in its order and with its numbers: a loop of
// one's own that trains one dense layer, on one device under the default strategy, or on the devices and workers that
// flags and TF_CONFIG name. It prints the loss of each step.

#include <iomanip>
#include <iostream>
#include <map>

#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/data/auto_shard.h"
#include "utils/data/dataset.h"
#include "utils/distribute/custom_loop/current_strategy.h"
#include "utils/distribute/custom_loop/distributed_dataset.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/flags/cluster.h"
#include "utils/flags/console.h"
#include "utils/flags/shared_groups.h"
#include "utils/run/config.h"
#include "utils/run/standalone/main.h"
#include "utils/run/strategy.h"
#include "utils/train/keras/losses.h"

namespace official::examples {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using distribute::PerReplica;
using distribute::ReduceOp;
using distribute::ReplicaContext;
using distribute::StrategyScope;

constexpr int64_t kBatchSizePerReplica = 5;
constexpr int64_t kNumExamples = 100;

// LEARNING_RATES_BY_BATCH_SIZE; a larger batch has the rate of the largest here.
float LearningRateFor(int64_t global_batch_size) {
  const std::map<int64_t, float> rates = {{5, 0.1f}, {10, 0.15f}};
  return std::prev(rates.upper_bound(global_batch_size))->second;
}

// tf.data.Dataset.from_tensors(([1.], [1.])).repeat(100)
data::DatasetPtr Ones() {
  const Tensor ones = Tensor::Of<float>({kNumExamples, 1}, std::vector<float>(kNumExamples, 1));
  return data::TensorSlices({{"", ones}}, {{"", ones}});
}

// train_step: what one replica does with its part of a batch of so many examples. Its loss is its part of the batch's.
distribute::ReplicaFn TrainStep(int64_t global_batch_size, float learning_rate) {
  const keras::LossFn loss_object = keras::BinaryCrossentropy(keras::Reduction::kNone);
  return [=](ReplicaContext& context, absl::Span<const Value> inputs) -> absl::StatusOr<std::vector<Value>> {
    const Value predictions = compute::Layers(context.graph(), DType::kFloat32).Dense(inputs[0], /*units=*/1);
    const Value per_example_loss = loss_object(inputs[1], predictions);
    const Value loss = distribute::ComputeAverageLoss(per_example_loss, {.global_batch_size = global_batch_size});
    const std::vector<Value> variables = context.TrainableVariables();
    const std::vector<Value> gradients = compute::Gradients(loss, variables);
    std::vector<compute::VariableGradient> updates;
    for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
    context.ApplyGradients(compute::GradientDescent, context.graph().Constant(Tensor::Scalar(learning_rate)), updates);
    return std::vector<Value>{loss};
  };
}

// Trains on the next batch, prints its loss, and returns false if there was none.
absl::StatusOr<bool> DistributedTrainStep(StrategyScope& scope, distribute::ReplicaFunction& train_step,
                                          distribute::DistributedDataset& dataset) {
  ASSIGN_OR_RETURN(const auto inputs, dataset.Next());
  if (!inputs) return false;
  ASSIGN_OR_RETURN(const std::vector<PerReplica> per_replica_losses, scope.Run(train_step, inputs->Arguments()));
  ASSIGN_OR_RETURN(const Tensor loss, scope.Reduce(ReduceOp::kSum, per_replica_losses[0]));
  std::cout << "loss " << std::setprecision(9) << loss.scalar<float>() << std::endl;
  return true;
}

absl::Status Train(distribute::Strategy& strategy) {
  ASSIGN_OR_RETURN(const auto scope, StrategyScope::Create(strategy, /*seed=*/1));
  const int64_t global_batch_size = kBatchSizePerReplica * strategy.num_replicas_in_sync();
  const float learning_rate = LearningRateFor(global_batch_size);
  std::cout << "strategy " << strategy.name() << " replicas " << strategy.num_replicas_in_sync() << " batch_size "
            << global_batch_size << " learning_rate " << learning_rate << "\n";
  const data::BatchOptions batches = {.batch_size = global_batch_size};
  const distribute::DistributeOptions shard_data = {.auto_shard_policy = data::AutoShardPolicy::kData};
  distribute::ReplicaFunction train_step(TrainStep(global_batch_size, learning_rate));

  // for dist_inputs in dist_dataset: print(distributed_train_step(dist_inputs))
  ASSIGN_OR_RETURN(auto dataset, distribute::DistributeDataset(strategy, Ones(), batches, shard_data));
  for (bool more = true; more;) {
    ASSIGN_OR_RETURN(more, DistributedTrainStep(*scope, train_step, *dataset));
  }
  // iterator = iter(dist_dataset); for _ in range(10): print(distributed_train_step(next(iterator)))
  ASSIGN_OR_RETURN(dataset, distribute::DistributeDataset(strategy, Ones(), batches, shard_data));
  for (int step = 0; step < 10; ++step) {
    RETURN_IF_ERROR(DistributedTrainStep(*scope, train_step, *dataset).status());
  }
  return absl::OkStatus();
}

flags::Program Program() {
  return {.name = "guide_main",
          .description = "Trains one dense layer as TensorFlow's guide to distributed training does.",
          .examples = {{"guide_main --num_cpu_devices=2", "train on two logical devices"}},
          .defaults = {},
          .help = {},
          .flags = {.name = "guide",
                    .flags = {flags::SharedFlag("num_gpus"), flags::SharedFlag("num_cpu_devices"),
                              flags::SharedFlag("distribution_strategy"), flags::SharedFlag("all_reduce_alg"),
                              flags::LogFormatFlag()}},
          .shared_flags = false,
          .more_flags = {flags::ConnectionFlags({"workers", "collective_communication"})}};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config config = run::ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  ASSIGN_OR_RETURN(const auto connected, run::ConnectedStrategy::Create(config));
  // As the guide chooses: the default strategy where there is nothing to distribute to.
  distribute::Strategy& strategy = connected->strategy();
  const bool only_one_cpu = strategy.num_replicas_in_sync() == 1 && strategy.device(0).uses_host_memory();
  const absl::Status trained = Train(only_one_cpu ? distribute::GetStrategy() : strategy);
  connected->Finish(trained);
  return trained;
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::examples::Program(), official::examples::Main);
}
