// coordinator_main: the program of TensorFlow's guide "Parameter server training with ParameterServerStrategy": a
// network that tells whether three heroes include the avenger, trained by the workers of a cluster on variables that
// are on its parameter servers. The chief schedules the steps. It prints the loss and the accuracies of each epoch, and
// continues from its last checkpoint when the job is started again. Without TF_CONFIG, one process is all tasks.

#include <iostream>

#include "official/examples/heroes/heroes.h"
#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/distribute/coordinator/metric.h"
#include "utils/distribute/coordinator/worker.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/shards.h"
#include "utils/flags/cluster.h"
#include "utils/flags/console.h"
#include "utils/flags/shared_groups.h"
#include "utils/logs/log.h"
#include "utils/run/config.h"
#include "utils/run/coordinator.h"
#include "utils/run/standalone/main.h"
#include "utils/train/custom_loop/checkpoint_manager.h"

namespace official::examples {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using coordinator::ClusterCoordinator;
using coordinator::MeanMetric;
using coordinator::RemoteValue;
using coordinator::WorkerContext;
using distribute::ReplicaContext;
using Tensors = std::vector<Tensor>;

constexpr int64_t kBatchSize = 32;
constexpr int kStepsPerEpoch = 20, kEvalStepsPerEpoch = 4;

// Batches without end, of which each device of a worker gets one. Each worker has its own order, so that together they
// see the data about equally often.
absl::StatusOr<data::BatchSourcePtr> Endless(const data::DatasetPtr& heroes, const distribute::InputContext& context) {
  ASSIGN_OR_RETURN(const int64_t batch_size, context.GetPerReplicaBatchSize(kBatchSize));
  return data::Batches(heroes, {.batch_size = batch_size, .end_epoch = data::kEndless, .across_epochs = true});
}
absl::StatusOr<data::BatchSourcePtr> TrainingData(const distribute::InputContext& context) {
  return Endless(data::Shuffle(Heroes(200, /*seed=*/1), /*seed=*/10 + context.input_pipeline_id), context);
}
absl::StatusOr<data::BatchSourcePtr> EvalData(const distribute::InputContext& context) {
  return Endless(Heroes(128, /*seed=*/2), context);
}

// The logits [batch, 2] of heroes [batch, 3].
Value Network(compute::Graph& graph, Value heroes) {
  compute::Layers layers(graph, DType::kFloat32);
  const Value embedded = compute::Gather(layers.EmbeddingTable(kNumHeroes, 16), heroes);
  return layers.Dense(compute::Mean(embedded, {1}), 2);
}

Value Correct(Value logits, Value labels) {
  return compute::Cast(compute::Equal(compute::Cast(compute::ArgMax(logits), DType::kInt32), labels), DType::kFloat32);
}

class Program {
 public:
  Program() {
    functions_.RegisterDataset("training_data", TrainingData);
    functions_.RegisterDataset("eval_data", EvalData);
    functions_.RegisterStep("train_step", [this](ReplicaContext& context, absl::Span<const Value> batch) {
      return TrainStep(context, batch);
    });
    functions_.RegisterStep("eval_step", [this](ReplicaContext& context, absl::Span<const Value> batch) {
      eval_accuracy_.UpdateState(context, Correct(Network(context.graph(), batch[0]), batch[1]));
      return std::vector<Value>{};
    });
    functions_.Register("train", [](WorkerContext& context, absl::Span<const Tensor>) -> absl::StatusOr<Tensors> {
      ASSIGN_OR_RETURN(const auto batch, context.NextPerReplica("training_data"));
      ASSIGN_OR_RETURN(const auto losses, context.RunPerReplica("train_step", batch));
      ASSIGN_OR_RETURN(Tensor loss, distribute::ReduceTensors(distribute::ReduceOp::kSum, losses[0].values, {}));
      return Tensors{std::move(loss)};
    });
    functions_.Register("evaluate", [](WorkerContext& context, absl::Span<const Tensor>) -> absl::StatusOr<Tensors> {
      ASSIGN_OR_RETURN(const auto batch, context.NextPerReplica("eval_data"));
      RETURN_IF_ERROR(context.RunPerReplica("eval_step", batch).status());
      return Tensors{};
    });
  }

  const coordinator::Functions& functions() const { return functions_; }

  // What the chief does.
  absl::Status Train(const run::Config& config, ClusterCoordinator& coordinator) const {
    const distribute::InputContext devices = {.num_replicas_in_sync = coordinator.num_replicas_in_sync()};
    ASSIGN_OR_RETURN(const int64_t batch_size, devices.GetPerReplicaBatchSize(kBatchSize));
    const std::vector<compute::TensorType> batch = {{DType::kInt32, {batch_size, kHeroesOfExample}},
                                                    {DType::kInt32, {batch_size}}};
    for (const char* const step : {"train_step", "eval_step"}) {
      RETURN_IF_ERROR(coordinator.CreateVariables(step, batch));
    }
    std::unique_ptr<train::CheckpointManager> checkpoints;
    int64_t epoch = 0;
    if (!config.train.model_dir.empty()) {
      ASSIGN_OR_RETURN(checkpoints, train::CheckpointManager::Open(coordinator, config.train.model_dir));
      ASSIGN_OR_RETURN(const std::optional<int64_t> trained,
                       checkpoints->RestoreLatest({.assert_existing_objects_matched = true}));
      epoch = trained.value_or(0);
    }
    if (epoch >= config.base.train_epochs) {
      LOG(INFO) << "nothing to do: " << config.train.model_dir << " is trained for " << epoch
                << " epochs; to continue, raise --train_epochs";
    }
    coordinator.CreatePerWorkerDataset("training_data");
    coordinator.CreatePerWorkerDataset("eval_data");
    for (; epoch < config.base.train_epochs; ++epoch) {
      RemoteValue last;
      RETURN_IF_ERROR(accuracy_.ResetState(coordinator));
      for (int step = 0; step < kStepsPerEpoch; ++step) {
        ASSIGN_OR_RETURN(last, coordinator.Schedule("train"));
      }
      RETURN_IF_ERROR(coordinator.Join());
      RETURN_IF_ERROR(eval_accuracy_.ResetState(coordinator));
      for (int step = 0; step < kEvalStepsPerEpoch; ++step) {
        RETURN_IF_ERROR(coordinator.Schedule("evaluate").status());
      }
      RETURN_IF_ERROR(coordinator.Join());
      ASSIGN_OR_RETURN(const Tensors loss, coordinator.Fetch(last));
      ASSIGN_OR_RETURN(const float accuracy, accuracy_.Result(coordinator));
      ASSIGN_OR_RETURN(const float eval_accuracy, eval_accuracy_.Result(coordinator));
      std::cout << "epoch " << epoch + 1 << " loss " << loss[0].scalar<float>() << " accuracy " << accuracy
                << " eval_accuracy " << eval_accuracy << std::endl;
      if (checkpoints != nullptr) RETURN_IF_ERROR(checkpoints->Save(epoch + 1));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::vector<Value>> TrainStep(ReplicaContext& context, absl::Span<const Value> batch) const {
    const Value logits = Network(context.graph(), batch[0]);
    const Value losses = compute::SparseSoftmaxCrossEntropy(logits, batch[1]);
    const Value loss = distribute::ComputeAverageLoss(losses, {.global_batch_size = kBatchSize});
    const std::vector<Value> variables = context.TrainableVariables();
    const std::vector<Value> gradients = compute::Gradients(loss, variables);
    std::vector<compute::VariableGradient> updates;
    for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
    const Value learning_rate = context.graph().Constant(Tensor::Scalar(0.02f));
    context.ApplyGradients([](const auto& in, const auto& of) { return compute::Adam(in, of, {}); }, learning_rate,
                           updates);
    accuracy_.UpdateState(context, Correct(logits, batch[1]));
    return std::vector<Value>{loss};
  }

  const MeanMetric accuracy_{"accuracy"}, eval_accuracy_{"eval_accuracy"};
  coordinator::Functions functions_;
};

flags::Program CommandLine() {
  return {.name = "coordinator_main",
          .description = "Trains a network with parameter servers, whose workers run what a coordinator schedules.",
          .examples = {{"coordinator_main --model_dir=run1", "train in one process, with checkpoints in run1"}},
          .defaults = {{"model_dir", ""}, {"train_epochs", "5"}},
          .help = {{"model_dir", "Directory of the checkpoints; empty: none are made. Only the chief uses it."}},
          .flags = {.name = "coordinator",
                    .flags = {run::GpusOfWorkersFlag(),
                              flags::SharedFlag("num_cpu_devices"),
                              {.name = "train_epochs", .range = flags::AtLeast(1), .per_worker = true},
                              {.name = "model_dir", .per_worker = true},
                              flags::LogFormatFlag()}},
          .shared_flags = false,
          .more_flags = {flags::ConnectionFlags()}};
}

absl::Status Main(const flags::CommandLine& command_line) {
  const run::Config config = run::ConfigFromFlags(command_line);
  RETURN_IF_ERROR(run::InitLogging(config));
  const Program program;
  coordinator::CoordinatorOptions options;
  // The embedding is on two parameter servers, if there are two.
  ASSIGN_OR_RETURN(options.variable_partitioner,
                   distribute::MinSizePartitioner(/*min_shard_bytes=*/256, /*max_shards=*/2));
  return run::RunCoordinated(config, program.functions(), options,
                             [&](ClusterCoordinator& coordinator) { return program.Train(config, coordinator); });
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  return official::run::RunMain(argc, argv, official::examples::CommandLine(), official::examples::Main);
}
