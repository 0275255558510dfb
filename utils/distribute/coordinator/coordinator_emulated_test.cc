// Workers of a coordinator that compute on GPUs, which are emulated here.

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "utils/compute/core/status.h"
#include "utils/compute/cuda_emulation/grid.h"
#include "utils/compute/layers/layers.h"
#include "utils/compute/ops/elementwise/elementwise.h"
#include "utils/compute/ops/gradients/gradients.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/compute/ops/reduction/reduction.h"
#include "utils/distribute/coordinator/run_task.h"
#include "utils/distribute/coordinator/worker.h"

namespace official::coordinator {
namespace {

using compute::DType;
using compute::Tensor;
using compute::Value;
using distribute::ReplicaContext;
using Tensors = std::vector<Tensor>;

constexpr int kRows = 3;

// Two layers, trained with Adam to give labels [n, 1] for features [n, 2].
absl::StatusOr<std::vector<Value>> TrainStep(ReplicaContext& context, absl::Span<const Value> inputs) {
  compute::Layers layers(context.graph(), DType::kFloat32);
  const Value hidden = layers.Dense(inputs[0], 5, {.activation = compute::Activation::kRelu});
  const Value loss = compute::Mean(compute::Square(compute::Sub(layers.Dense(hidden, 1), inputs[1])));
  const std::vector<Value> variables = context.TrainableVariables();
  const std::vector<Value> gradients = compute::Gradients(loss, variables);
  std::vector<compute::VariableGradient> updates;
  for (size_t i = 0; i < variables.size(); ++i) updates.push_back({variables[i], gradients[i]});
  context.ApplyGradients([](const auto& in, auto of) { return compute::Adam(in, of, {}); },
                         context.graph().Constant(Tensor::Scalar(0.05f)), updates);
  return std::vector<Value>{loss};
}

// The features and labels of a device, which differ from step to step.
Tensors BatchOf(int step, int device) {
  Tensors batch = {Tensor(DType::kFloat32, {kRows, 2}), Tensor(DType::kFloat32, {kRows, 1})};
  for (int i = 0; i < 2 * kRows; ++i) batch[0].data<float>()[i] = static_cast<float>((5 * step + 3 * i + device) % 8);
  for (int i = 0; i < kRows; ++i) batch[1].data<float>()[i] = static_cast<float>((step + i + device) % 3);
  return batch;
}

// The losses of all devices and the variables, by name, after four steps of one worker.
std::map<std::string, std::vector<float>> Train(const std::string& device_kind, int num_devices) {
  Functions functions;
  functions.RegisterStep("train_step", TrainStep);
  functions.Register("train",
                     [&](WorkerContext& context, absl::Span<const Tensor> arguments) -> absl::StatusOr<Tensors> {
                       std::vector<distribute::DistributedValue> batch(2, distribute::PerReplica{});
                       for (int device = 0; device < num_devices; ++device) {
                         const Tensors own = BatchOf(static_cast<int>(arguments[0].scalar<int64_t>()), device);
                         for (int i = 0; i < 2; ++i)
                           std::get<distribute::PerReplica>(batch[i]).values.push_back(own[i]);
                       }
                       ASSIGN_OR_RETURN(const auto results, context.RunPerReplica("train_step", batch));
                       return results[0].values;
                     });
  std::map<std::string, std::vector<float>> values;
  const auto keep = [&](const std::string& name, const Tensor& tensor) {
    values[name].insert(values[name].end(), tensor.flat<float>().begin(), tensor.flat<float>().end());
  };
  const auto program = [&](ClusterCoordinator& coordinator) -> absl::Status {
    const Tensors batch = BatchOf(0, 0);
    RETURN_IF_ERROR(coordinator.CreateVariables("train_step", {batch[0].type(), batch[1].type()}));
    for (int64_t step = 0; step < 4; ++step) {
      ASSIGN_OR_RETURN(const RemoteValue result, coordinator.Schedule("train", {Tensor::Scalar(step)}));
      ASSIGN_OR_RETURN(const Tensors losses, coordinator.Fetch(result));
      for (const Tensor& loss : losses) keep("losses", loss);
    }
    for (const char* name : {"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}) {
      ASSIGN_OR_RETURN(const Tensor value, coordinator.ReadVariable(name));
      keep(name, value);
    }
    return absl::OkStatus();
  };
  const CoordinatorOptions options = {.num_devices = num_devices, .device_kind = device_kind};
  CHECK(RunInProcess(/*num_workers=*/1, /*num_servers=*/2, functions, options, program) == absl::OkStatus());
  return values;
}

TEST_CASE("A worker on GPUs trains as one on CPU devices") {
  const int num_devices = GENERATE(1, 2);
  CAPTURE(num_devices);
  const auto on_cpu = Train("cpu", num_devices);
  const int64_t threads_before = compute::cuda_emulation::NumThreadsRun();
  const auto on_gpu = Train("cuda", num_devices);
  REQUIRE(compute::cuda_emulation::NumThreadsRun() > threads_before);
  REQUIRE(on_gpu.size() == on_cpu.size());
  for (const auto& [name, expected] : on_cpu) {
    const std::vector<float>& values = on_gpu.at(name);
    REQUIRE(values.size() == expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      CAPTURE(name, i, values[i], expected[i]);
      CHECK(std::abs(values[i] - expected[i]) <= 1e-5f * std::max(1.0f, std::abs(expected[i])));
    }
  }
}

}  // namespace
}  // namespace official::coordinator
