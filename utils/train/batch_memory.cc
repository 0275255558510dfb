#include "utils/train/batch_memory.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/program/lowering.h"
#include "utils/misc/size_text.h"
#include "utils/train/largest_values.h"

namespace official::train {
namespace {

// Batches in memory: one in use, the others read ahead.
constexpr int64_t kBatchesInMemory = 4;

// The part of the free memory below which what BytesOfValues says needs no closer look: an arena also has what kernels
// need beside the values.
constexpr double kClearShare = 0.7;

// The bytes of a graph's values, as if each had memory of its own: nearly always more than the arena of its program.
double BytesOfValues(const compute::Graph& graph) {
  double bytes = 0;
  for (const auto& node : graph.nodes()) {
    for (int i = 0; i < node->num_outputs(); ++i) bytes += static_cast<double>(node->output(i).type().num_bytes());
  }
  return bytes;
}

struct VariableBytes {
  int64_t trainable = 0;
  int64_t other = 0;  // the optimizer's, moving averages
  int64_t sums = 0;   // of one replica; they are not saved

  // Of replicas that share the host's memory: they share one copy of all but their sums, and a checkpoint is written
  // from another one.
  int64_t OnHost(int num_replicas) const { return 2 * (trainable + other) + num_replicas * sums; }
};

VariableBytes BytesOf(const std::vector<compute::VariableSpec>& variables) {
  VariableBytes bytes;
  for (const compute::VariableSpec& spec : variables) {
    (spec.per_device ? bytes.sums : spec.trainable ? bytes.trainable : bytes.other) += spec.type.num_bytes();
  }
  return bytes;
}

// The memory of a training as a function of the number of examples in a batch.
class BatchMemory {
 public:
  BatchMemory(CheckpointedModel& checkpointed, const TrainingBatches& batches)
      : checkpointed_(checkpointed), strategy_(checkpointed.strategy()), batches_(batches) {}

  // Finds an upper bound of what batches of up to `examples` need, without compiling anything.
  absl::Status Bound(double examples) {
    const int64_t built = std::clamp<int64_t>(std::llround(std::ceil(ExamplesOfShare(examples))), 1, kMostPlanned);
    double of_values = 0;
    if (uses_host_memory()) {
      ASSIGN_OR_RETURN(const BuiltModel model, Build(built));
      of_values = BytesOfValues(*model.graph);
    }
    // What does not grow with the batch makes this too large for more examples, never too small.
    bound_ = of_values / static_cast<double>(built);
    SetLine(/*fixed=*/0, bound_);
    return absl::OkStatus();
  }

  // Finds what is needed, by the plans of two programs that take a small part of `free` bytes: what they compute grows
  // with the batch, variables do not. After Bound.
  absl::Status Plan(double free) {
    constexpr double kPlannedShare = 0.1;
    const double most = std::clamp<double>(kPlannedShare * free / std::max(bound_, 1.0), 2, kMostPlanned);
    const auto large = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
    const int64_t sizes[2] = {large / 2, large};
    compute::VariableStore scratch(strategy_.device(0));  // of both, since they have the same variables
    compute::PlannedLayouts lowered[2];
    double bytes[2] = {0, 0}, growth = 0;
    for (int i = 0; i < 2 && uses_host_memory(); ++i) {
      compute::Device& device = strategy_.device(0);
      ASSIGN_OR_RETURN(const BuiltModel built, Build(sizes[i]));
      RETURN_IF_ERROR(scratch.Create(*built.graph, 0));
      ASSIGN_OR_RETURN(const auto program, compute::Program::Compile(*built.graph, built.roots, device, scratch));
      bytes[i] = static_cast<double>(program->arena_bytes());
      ASSIGN_OR_RETURN(lowered[i], compute::Lower(*built.graph, built.roots, device.kind()));
    }
    // In a small program a large value may take memory that gradients of variables need at another time.
    if (uses_host_memory()) {
      growth = static_cast<double>(GrowthOfLargestValue(*lowered[0].graph.graph, *lowered[1].graph.graph));
    }
    const double slope = std::max(bytes[1] - bytes[0], growth) / static_cast<double>(sizes[1] - sizes[0]);
    SetLine(std::max(0.0, bytes[0] - static_cast<double>(sizes[0]) * slope), slope);
    return absl::OkStatus();
  }

  double Needed(double examples) const { return fixed_ + per_example_ * examples; }
  double ThatFit(double bytes) const { return (bytes - fixed_) / per_example_; }
  // Of what a batch has on this worker.
  double BytesOfBatch(double examples) const {
    double of_example = 0;
    for (const auto* leaves : {&batches_.spec.features, &batches_.spec.labels}) {
      for (const data::Leaf& leaf : *leaves) of_example += static_cast<double>(leaf.type.num_bytes());
    }
    return examples * of_example * strategy_.num_local_replicas() / strategy_.num_replicas_in_sync();
  }

  // Names the largest values that a replica computes for `examples`; "" on a device with memory of its own.
  absl::StatusOr<std::string> LargestValues(double examples) {
    if (!uses_host_memory()) return "";
    ASSIGN_OR_RETURN(const BuiltModel of_two, Build(2));
    ASSIGN_OR_RETURN(const BuiltModel of_three, Build(3));
    return LargestValuesText(*of_two.graph, *of_three.graph, 2, 3, std::max(1.0, ExamplesOfShare(examples)));
  }

 private:
  // Most examples of a replica in the graphs and programs that are looked at.
  static constexpr int64_t kMostPlanned = 32;

  // A device with memory of its own says itself when that is too small.
  bool uses_host_memory() const { return strategy_.device(0).uses_host_memory(); }

  // Of one replica in one micro-batch.
  double ExamplesOfShare(double examples) const {
    return examples / (strategy_.num_replicas_in_sync() * checkpointed_.replicas().micro_batches());
  }

  absl::StatusOr<BuiltModel> Build(int64_t examples) {
    const EstimatorConfig& config = checkpointed_.config();
    data::ElementSpec types = Batched(batches_.spec, examples);
    if (batches_.largest) {
      ASSIGN_OR_RETURN(const data::BatchSourcePtr source, batches_.largest->make(examples));
      ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source->Next());
      const ShareFn& share = checkpointed_.model().share;
      types = TypesOfShare(batches_.spec,
                           (share ? share : ShareOfRows)(Mode::kTrain, *batch, {0, examples}, /*parts_alike=*/0));
    }
    ASSIGN_OR_RETURN(BuiltModel built, BuildModel(checkpointed_.model(), Mode::kTrain, config.dtype, types,
                                                  {.loss_scale = config.loss_scale}));
    variables_ = BytesOf(built.graph->variables());
    // The sums of the gradients of micro-batches.
    if (checkpointed_.replicas().micro_batches() > 1) variables_.sums += variables_.trainable;
    return built;
  }

  // Takes what a program of one replica needs: `fixed` bytes and `slope` more for each example of its share.
  void SetLine(double fixed, double slope) {
    const int replicas = strategy_.num_local_replicas();
    fixed_ = static_cast<double>(variables_.OnHost(replicas)) + replicas * fixed;
    per_example_ = replicas * slope * ExamplesOfShare(1) +
                   static_cast<double>(kBatchesInMemory + batches_.num_kept) * BytesOfBatch(1);
  }

  CheckpointedModel& checkpointed_;
  distribute::Strategy& strategy_;
  const TrainingBatches& batches_;
  VariableBytes variables_;
  double bound_ = 0;  // bytes of the values of one replica's graph for each example
  double fixed_ = 0, per_example_ = 0;
};

// "at most --batch_size=96 would fit".
std::string WhatFits(double examples_that_fit, double batch_size_per_example, int64_t multiple) {
  const auto size = static_cast<int64_t>(std::floor(std::max(0.0, examples_that_fit)) * batch_size_per_example);
  if (size < multiple) return "no --batch_size would fit";
  return absl::StrCat("at most --batch_size=", size / multiple * multiple, " would fit");
}

}  // namespace

absl::Status CheckBatchFits(CheckpointedModel& checkpointed, const TrainingBatches& batches, int64_t free_bytes) {
  const std::optional<LargestBatches>& largest = batches.largest;
  if (free_bytes < 0 || (checkpointed.model().share && !largest)) return absl::OkStatus();
  const auto free = static_cast<double>(free_bytes);
  const double usable = kUsableShare * free;
  const auto examples = static_cast<double>(largest ? largest->num_examples : batches.batch_size);
  BatchMemory memory(checkpointed, batches);
  // Programs are compiled only where the answer is not clear, since that takes start-up time.
  RETURN_IF_ERROR(memory.Bound(examples));
  if (memory.Needed(examples) < kClearShare * free) return absl::OkStatus();
  // Planning makes the variables, which may be too large by themselves.
  if (memory.Needed(0) < usable) RETURN_IF_ERROR(memory.Plan(free));
  const double needed = memory.Needed(examples);
  if (needed < usable) return absl::OkStatus();
  const double of_batch = memory.BytesOfBatch(examples);
  const double of_kept = static_cast<double>(batches.num_kept) * of_batch;
  const std::string what = absl::StrCat("--batch_size=", batches.batch_size, " needs about ", misc::SizeText(needed),
                                        " of memory and ", misc::SizeText(free), " are free");
  if (const double kept_fit = (usable - (needed - of_kept)) / of_batch; batches.num_kept > 0 && kept_fit >= 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ", because --overfit_batches keeps ", batches.num_kept, " batches of ", misc::SizeText(of_batch),
        "; at most --overfit_batches=", static_cast<int64_t>(kept_fit), " would fit"));
  }
  ASSIGN_OR_RETURN(const std::string values, memory.LargestValues(examples));
  return absl::InvalidArgumentError(
      absl::StrCat(what, "; ",
                   WhatFits(memory.ThatFit(usable), static_cast<double>(batches.batch_size) / examples,
                            checkpointed.strategy().num_replicas_in_sync()),
                   values));
}

absl::StatusOr<TrainingMemory> MemoryOfTraining(CheckpointedModel& checkpointed, const data::ElementSpec& spec,
                                                const data::Batch& batch) {
  Replicas& replicas = checkpointed.replicas();
  TrainingMemory memory{.num_replicas = checkpointed.strategy().num_local_replicas(),
                        .available_bytes = misc::AvailableMemory()};
  // The whole step, or its two programs: the update adds the variables of the optimizer.
  std::vector<std::optional<int>> parts = {std::nullopt};
  if (replicas.updates_apart()) parts.insert(parts.begin(), 0);
  const bool is_planned = checkpointed.strategy().device(0).has_addresses();
  for (const std::optional<int> micro_batch : parts) {
    ASSIGN_OR_RETURN(const ReplicatedProgram* const program,
                     checkpointed.ProgramFor(Mode::kTrain, spec, batch, micro_batch));
    for (const ReplicatedProgram::Replica& replica : program->replicas) {
      if (replica.program == nullptr || !is_planned) continue;
      memory.intermediate_bytes = std::max(memory.intermediate_bytes.value_or(0), replica.program->arena_bytes());
    }
  }
  const std::vector<compute::VariableSpec> variables = replicas.variables();
  for (const compute::VariableSpec& variable : variables) {
    if (!variable.trainable) continue;
    ++memory.num_variables;
    memory.num_parameters += variable.type.shape.num_elements();
  }
  for (const data::Tensors* tensors : {&batch.features, &batch.labels}) {
    for (const compute::Tensor& tensor : *tensors) memory.batch_bytes += tensor.num_bytes();
  }
  const bool in_host_memory = checkpointed.strategy().device(0).uses_host_memory();
  const VariableBytes bytes = BytesOf(variables);
  memory.parameter_bytes = bytes.trainable;
  memory.other_variable_bytes = bytes.other + (in_host_memory ? memory.num_replicas : 1) * bytes.sums;
  memory.host_bytes =
      (in_host_memory ? bytes.OnHost(memory.num_replicas) + memory.num_replicas * memory.intermediate_bytes.value_or(0)
                      : bytes.trainable + bytes.other) +
      kBatchesInMemory * memory.batch_bytes;
  return memory;
}

}  // namespace official::train
