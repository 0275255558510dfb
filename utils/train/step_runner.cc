#include "utils/train/step_runner.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"

namespace official::train {

using compute::Tensor;

StepRunner::StepRunner(CheckpointedModel& model)
    : model_(model), recent_(model.strategy().device(0).uses_host_memory() ? 1 : compute::kMaxRunsBehind + 1) {
  const Replicas& replicas = model.replicas();
  for (StepFeeds& feeds : recent_) {
    feeds.runs.resize(replicas.updates_apart() ? replicas.micro_batches() + 1 : 1);
    for (RunFeeds& run : feeds.runs) run.replicas.resize(model.strategy().num_local_replicas());
  }
}

void StepRunner::SetFeeds(RunFeeds& run, size_t number, int r, float learning_rate) {
  const ReplicatedProgram::Replica& replica = run.program->replicas[r];
  ReplicaFeeds& feeds = run.replicas[r];
  auto feature = replica.share.features.begin(), label = replica.share.labels.begin();
  auto row_places = replica.row_places.begin();
  const auto tensor_for = [&](Feed role) -> const Tensor& {
    switch (role) {
      case Feed::kFeature:
        return *feature++;
      case Feed::kLabel:
        return *label++;
      case Feed::kRandomState: {
        int64_t* const random = feeds.random_state.data<int64_t>();
        random[0] = static_cast<int64_t>(model_.state().seed);
        random[1] = model_.state().global_step;
        random[2] = replica.share.examples.begin + examples_before_;
        return feeds.random_state;
      }
      case Feed::kReplicaWeight:
        *feeds.weight.data<float>() = replica.model->has_examples ? run.program->Weight(replica) : 0;
        return feeds.weight;
      case Feed::kMicroBatchWeight:
        *feeds.micro_batch_weight.data<float>() = run.program->micro_batch_weight;
        return feeds.micro_batch_weight;
      case Feed::kAdd:
        *feeds.add.data<bool>() = number > 0;
        return feeds.add;
      case Feed::kRowPlaces:
        return *row_places++;
      case Feed::kLearningRate:
        *feeds.learning_rate.data<float>() = learning_rate;
        return feeds.learning_rate;
      case Feed::kRowIds:
      case Feed::kRowGradients:
        break;
    }
    OFFICIAL_CHECK(false) << "only a parameter server is fed rows";
  };
  feeds.tensors.clear();
  for (const Feed role : replica.model->feed_roles) feeds.tensors.push_back(tensor_for(role));
}

absl::Status StepRunner::Run(const data::ElementSpec& spec, const data::Batch& batch, ReplicatedProgram& program,
                             float learning_rate, std::vector<compute::KernelTiming>* timings) {
  const int64_t number = model_.state().global_step + 1;
  StepFeeds& step = FeedsOf(number);
  step.number = number;
  step.batch = batch;
  const distribute::ParameterServers* const servers = model_.strategy().servers();
  examples_before_ =
      servers == nullptr ? 0 : servers->worker() * std::max(model_.config().batch_size, batch.num_examples);
  const int update = static_cast<int>(step.runs.size()) - 1;  // after as many micro-batches
  for (int i = 0; i <= update; ++i) {
    ReplicatedProgram* next = &program;
    if (i < update) {
      if (model_.StopIsWanted()) return absl::CancelledError("stopped between two micro-batches");
      ASSIGN_OR_RETURN(next, model_.ProgramFor(Mode::kTrain, spec, step.batch, i));
      RETURN_IF_ERROR(model_.FindRows(*next));
    }
    RunFeeds& run = step.runs[i];
    run.program = next;
    step.num_runs = i + 1;
    bool replay = false;  // none of the replicas replays while one of them is timed
    if (timings == nullptr) {
      ASSIGN_OR_RETURN(replay, model_.replicas().Record(*next));
    }
    RETURN_IF_ERROR(model_.strategy().Run([&](int r) {
      SetFeeds(run, i, r, learning_rate);
      return next->replicas[r].program->Run(
          run.replicas[r].tensors, {.replay = replay, .timings = r == 0 ? timings : nullptr, .stop = model_.stop()});
    }));
    if (i < update) RETURN_IF_ERROR(model_.TakeGradients(*next));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::RunAgain(const StepFeeds& step, const std::vector<int64_t>& good_steps) {
  distribute::Strategy& strategy = model_.strategy();
  // Sums that are not finite are a consequence.
  if (step.runs.size() > 1) RETURN_IF_ERROR(model_.replicas().ResetSums());
  const auto again = [&](int r) -> absl::Status {
    if (good_steps[r] != step.number - 1) return absl::OkStatus();
    for (size_t i = 0; i < step.num_runs; ++i) {
      const RunFeeds& run = step.runs[i];
      RETURN_IF_ERROR(run.program->replicas[r].program->Run(run.replicas[r].tensors, {.check_numerics = true}));
    }
    return absl::OkStatus();
  };
  absl::Status found = strategy.Run(again);
  // Where the failure has broken the devices' connections, each gets as far as its own gradients.
  for (int r = 0; absl::IsFailedPrecondition(found) && r < strategy.num_local_replicas(); ++r) {
    const absl::Status alone = strategy.RunAlone(r, [&] { return again(r); });
    if (absl::IsOutOfRange(alone)) found = alone;
  }
  return found;
}

// The step that failed is computed again, slowly. It changed no variable of its replica, nor did those after it that
// the device was given before it reported: so the variables still count the steps before it, and where replicas differ,
// because one has failed on what another had spoilt, the one that counts the fewest was first.
absl::Status StepRunner::Explain(const absl::Status& error) {
  if (!absl::IsOutOfRange(error)) return error;
  distribute::Strategy& strategy = model_.strategy();
  std::vector<int64_t> good_steps;
  for (int r = 0; r < strategy.num_local_replicas(); ++r) {
    strategy.device(r).Synchronize().IgnoreError();  // it may have the same to report
    ASSIGN_OR_RETURN(const Tensor steps, model_.replicas().Read(kGlobalStep, r));
    good_steps.push_back(steps.scalar<int64_t>());
  }
  int64_t& global_step = model_.state().global_step;
  global_step = *std::min_element(good_steps.begin(), good_steps.end());
  const StepFeeds& step = FeedsOf(global_step + 1);
  absl::Status found;
  // Devices that compute a step together do not compute it again by themselves.
  const bool only_together = model_.replicas().sums_in_programs();
  if (step.number == global_step + 1 && !only_together) found = RunAgain(step, good_steps);
  if (!absl::IsOutOfRange(found)) found = error;
  return absl::InternalError(absl::StrCat("step ", global_step + 1, ": ", found.message(),
                                          ". Training stops before that reaches a checkpoint", LastCheckpoint(), ". ",
                                          Advice()));
}

std::string StepRunner::LastCheckpoint() const {
  ModelDir& dir = model_.dir();
  // Where workers have steps of their own, what another one would have saved tells nothing of what the chief has.
  if (model_.has_servers() && !dir.writes()) return "";
  dir.WaitForSave().IgnoreError();  // Train reports it
  const std::optional<int64_t> saved = dir.writes() ? dir.saver().finished_step() : model_.saved_step();
  const std::optional<int64_t> last = saved ? saved : model_.restored_step();
  return last ? absl::StrCat(" (the last one is of step ", *last, ")") : " (there is none)";
}

std::string StepRunner::Advice() const {
  const EstimatorConfig& config = model_.config();
  const std::string lower = absl::StrCat("Try a lower ", model_.model().learning_rate_flag);
  if (config.loss_scale.dynamic) {
    return absl::StrCat(lower, config.dtype == compute::DType::kFloat16 ? " or --dtype=bf16" : "");
  }
  if (config.loss_scale.value == 1) return lower;
  return absl::StrCat(lower, ", a lower --loss_scale or --loss_scale=dynamic");
}

}  // namespace official::train
