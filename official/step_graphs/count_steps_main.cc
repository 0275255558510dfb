// Prints what a training step of each model is made of on a GPU, as the tables of docs/performance.md. Nothing is
// measured on a GPU and none is needed: nodes, bytes and operations are counted from the graphs, and launches on an
// emulated GPU that does not do the work it is given. The same GPU gives the time that the host takes for a step.

#include <time.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/step_graphs/step_count.h"
#include "official/step_graphs/step_graphs.h"
#include "utils/compute/core/status.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/cuda_emulation/stream_work.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/program/program.h"
#include "utils/train/step.h"

namespace official::step_graphs {
namespace {

using compute::DType;
using compute::Tensor;
namespace emulation = compute::cuda_emulation;

absl::StatusOr<train::BuiltModel> BuildStep(const TrainedModel& model, DType dtype, int64_t batch) {
  return train::BuildModel(model.model, train::Mode::kTrain, dtype, model.types(train::Mode::kTrain, batch),
                           {.loss_scale = DefaultLossScale(dtype)});
}

double ThreadMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct RunCount {
  int64_t batch = 0;
  emulation::WorkCounts work = {};  // of one step
  double host_microseconds = 0;     // of a step that replays its recording: its feeds, the launch and the loss
  double eager_microseconds = 0;    // of a step that gives the device each kernel
};

// Runs the step on a GPU that does not work.
absl::StatusOr<RunCount> CountRun(const TrainedModel& model, DType dtype, int64_t batch) {
  ASSIGN_OR_RETURN(const train::BuiltModel built, BuildStep(model, dtype, batch));
  ASSIGN_OR_RETURN(const std::unique_ptr<compute::Device> device, compute::MakeDevice(compute::kCudaKind));
  compute::VariableStore variables(*device);
  RETURN_IF_ERROR(variables.Create(*built.graph, /*seed=*/1));
  ASSIGN_OR_RETURN(const std::unique_ptr<compute::Program> program,
                   compute::Program::Compile(*built.graph, built.roots, *device, variables));
  std::vector<Tensor> feeds;
  for (const compute::Value& feed : built.roots.feeds) feeds.emplace_back(feed.type());

  const auto microseconds = [&](int steps, const compute::RunOptions& options) -> absl::StatusOr<double> {
    const double start = ThreadMicroseconds();
    for (int i = 0; i < steps; ++i) RETURN_IF_ERROR(program->Run(feeds, options));
    return (ThreadMicroseconds() - start) / steps;
  };
  RunCount count = {.batch = batch};
  RETURN_IF_ERROR(microseconds(1, {.replay = false}).status());
  const emulation::WorkCounts before = emulation::WorkGiven();
  RETURN_IF_ERROR(microseconds(1, {.replay = false}).status());
  const emulation::WorkCounts after = emulation::WorkGiven();
  count.work = {.kernels = after.kernels - before.kernels,
                .library_calls = after.library_calls - before.library_calls,
                .copies = after.copies - before.copies,
                .memsets = after.memsets - before.memsets};
  constexpr int kSteps = 200;
  ASSIGN_OR_RETURN(count.eager_microseconds, microseconds(kSteps, {.replay = false}));
  RETURN_IF_ERROR(microseconds(kSteps, {}).status());  // records
  ASSIGN_OR_RETURN(count.host_microseconds, microseconds(kSteps, {}));
  return count;
}

// The same with the largest part of the batch that the emulated GPU has memory for. Launches do not depend on it.
absl::StatusOr<RunCount> CountRunThatFits(const TrainedModel& model, DType dtype) {
  for (int64_t batch = model.batch;; batch /= 2) {
    absl::StatusOr<RunCount> count = CountRun(model, dtype, batch);
    if (count.ok() || !absl::IsResourceExhausted(count.status()) || batch < 64) return count;
  }
}

// "8.56 M images/s": three digits.
std::string Rate(const TrainedModel& model, double seconds) {
  const double rate = static_cast<double>(model.batch) / seconds;
  if (rate >= 1e9) return absl::StrFormat("%.3g G %s/s", rate / 1e9, model.unit);
  if (rate >= 1e6) return absl::StrFormat("%.3g M %s/s", rate / 1e6, model.unit);
  return absl::StrFormat("%.3g k %s/s", rate / 1e3, model.unit);
}

std::string NameOf(const TrainedModel& model, DType dtype, int64_t batch) {
  return absl::StrFormat("| %s, %d %s | %s |", model.name, batch, model.unit,
                         dtype == DType::kFloat32 ? "fp32" : "bf16");
}

absl::Status PrintTables() {
  emulation::SetDoesWork(false);
  std::string work =
      "| training step | type | nodes | products of them | launches | library calls | copies | host, step replayed | "
      "host, each kernel launched |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  std::string roofline =
      "| training step | type | GB of the nodes | TFLOP | ms of the nodes | at most | GB at the roofline | ms at the "
      "roofline | at most |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const TrainedModel& model : CountedModels()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      ASSIGN_OR_RETURN(const train::BuiltModel built, BuildStep(model, dtype, model.batch));
      ASSIGN_OR_RETURN(const StepCount step, CountStep(built, kH200));
      ASSIGN_OR_RETURN(const RunCount run, CountRunThatFits(model, dtype));
      absl::StrAppendFormat(&work, "%s %d | %d | %d | %d | %d | %.0f us | %.0f us |\n", NameOf(model, dtype, run.batch),
                            step.nodes, step.products, run.work.kernels, run.work.library_calls,
                            run.work.copies + run.work.memsets, run.host_microseconds, run.eager_microseconds);
      absl::StrAppendFormat(&roofline, "%s %.3g | %.3g | %.3g | %s | %.3g | %.3g | %s |\n",
                            NameOf(model, dtype, model.batch), static_cast<double>(step.bytes) / 1e9, step.flops / 1e12,
                            step.node_seconds * 1e3, Rate(model, step.node_seconds),
                            static_cast<double>(step.roofline_bytes) / 1e9, step.roofline_seconds * 1e3,
                            Rate(model, step.roofline_seconds));
    }
  }
  std::cout << work << "\n" << roofline;
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::step_graphs

int main() {
  const absl::Status status = official::step_graphs::PrintTables();
  if (!status.ok()) std::cerr << "count_steps: " << status << "\n";
  return status.ok() ? 0 : 1;
}
