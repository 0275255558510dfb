// custom_loop_main [DEVICES]: a network that tells whether a point lies in a circle, trained with a loop of its own, as
// "Custom training loops" of TensorFlow's guide "Distributed training" has it: on so many CPU devices (1), in this
// process or, if TF_CONFIG or another launcher describes several, in each of them. It prints the loss, the test loss
// and the test accuracy of each epoch.

#include <iomanip>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/compute/ops/softmax/softmax.h"
#include "utils/compute/ops/top_k/top_k.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/distribute/custom_loop/distributed_dataset.h"
#include "utils/distribute/custom_loop/loss.h"
#include "utils/distribute/custom_loop/strategy_scope.h"
#include "utils/misc/exit_code.h"
#include "utils/run/strategy.h"

namespace official::examples {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using distribute::PerReplica;
using distribute::ReduceOp;
using distribute::ReplicaContext;

constexpr int64_t kGlobalBatchSize = 64;
constexpr int kEpochs = 5;

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
                                                             const data::DatasetPtr& points, int epoch) {
  ASSIGN_OR_RETURN(
      data::BatchSourcePtr batches,
      data::Batches(points, {.batch_size = kGlobalBatchSize, .start = {epoch, 0}, .end_epoch = epoch + 1}));
  return distribute::DistributeDataset(strategy, std::move(batches), kGlobalBatchSize);
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

// The same for a test step, which adds to counts that each replica has of its own: the examples and those that the
// network gets right.
distribute::ReplicaFn TestStep(const distribute::DistributedVariable& total,
                               const distribute::DistributedVariable& correct) {
  return [&](ReplicaContext& context, absl::Span<const Value> inputs) -> absl::StatusOr<std::vector<Value>> {
    const Value logits = Network(context.graph(), inputs[0]);
    const Value right = compute::Equal(compute::Cast(compute::ArgMax(logits), DType::kInt32), inputs[1]);
    const auto num_examples = static_cast<float>(inputs[0].shape().dim(0));
    context.AssignAdd(total, context.graph().Constant(Tensor::Scalar(num_examples)));
    context.AssignAdd(correct, compute::Sum(compute::Cast(right, DType::kFloat32)));
    return std::vector<Value>{compute::SparseSoftmaxCrossEntropy(logits, inputs[1])};
  };
}

// A variable that sums over the replicas when it is read.
absl::StatusOr<distribute::DistributedVariable*> Counter(distribute::StrategyScope& scope, const std::string& name) {
  return scope.CreateVariable({.name = name,
                               .initial_value = Tensor::Scalar(0.0f),
                               .synchronization = distribute::VariableSynchronization::kOnRead,
                               .aggregation = distribute::VariableAggregation::kSum});
}

absl::Status Train(distribute::Strategy& strategy) {
  ASSIGN_OR_RETURN(const auto scope, distribute::StrategyScope::Create(strategy, /*seed=*/1));
  ASSIGN_OR_RETURN(distribute::DistributedVariable* const total, Counter(*scope, "total"));
  ASSIGN_OR_RETURN(distribute::DistributedVariable* const correct, Counter(*scope, "correct"));
  distribute::ReplicaFunction train_step(TrainStep), test_step(TestStep(*total, *correct));
  // Neither number is a multiple of the batch: the last batches are smaller.
  const data::DatasetPtr train_points = Points(2050, /*seed=*/1), test_points = Points(330, /*seed=*/2);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
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
    for (distribute::DistributedVariable* const counter : {total, correct}) {
      RETURN_IF_ERROR(counter->Assign(Tensor::Scalar(0.0f)));
    }
    ASSIGN_OR_RETURN(const auto test_dataset, Distribute(strategy, test_points, 0));
    float test_loss = 0;
    for (;;) {
      ASSIGN_OR_RETURN(const auto batch, test_dataset->Next());
      if (!batch) break;
      ASSIGN_OR_RETURN(const std::vector<PerReplica> losses, scope->Run(test_step, batch->Arguments()));
      ASSIGN_OR_RETURN(const Tensor sum, scope->Reduce(ReduceOp::kSum, losses[0], /*axis=*/0));
      test_loss += sum.scalar<float>();
    }
    ASSIGN_OR_RETURN(const Tensor num_examples, total->Read());
    ASSIGN_OR_RETURN(const Tensor num_correct, correct->Read());
    std::cout << "epoch " << epoch + 1 << std::setprecision(9) << " loss "
              << total_loss / static_cast<float>(num_batches) << " test_loss "
              << test_loss / num_examples.scalar<float>() << " test_accuracy "
              << num_correct.scalar<float>() / num_examples.scalar<float>() << "\n";
  }
  return absl::OkStatus();
}

absl::Status Main(int num_devices) {
  ASSIGN_OR_RETURN(const auto connected, run::ConnectedStrategy::Create("custom_loop_main", num_devices));
  const absl::Status trained = Train(connected->strategy());
  connected->Finish(trained);
  return trained;
}

}  // namespace
}  // namespace official::examples

int main(int argc, char** argv) {
  int num_devices = 1;
  if (argc > 2 || (argc == 2 && (!absl::SimpleAtoi(argv[1], &num_devices) || num_devices < 1))) {
    std::cerr << "usage: custom_loop_main [DEVICES]\n";
    return 2;
  }
  const absl::Status status = official::examples::Main(num_devices);
  if (!status.ok()) std::cerr << "custom_loop_main: " << status.message() << "\n";
  return official::misc::ExitCode(status);
}
