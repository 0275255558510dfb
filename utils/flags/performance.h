// The flags that decide how fast and how exactly a run computes. Those that concern the training itself are in
// train::TrainOptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "utils/compute/core/dtype.h"
#include "utils/compute/kernel/device.h"
#include "utils/flags/flag_group.h"

namespace official::flags {

struct PerformanceConfig {
  int num_parallel_calls = 1;            // without the flag the number of logical CPUs
  int intra_op_parallelism_threads = 0;  // 0: the program decides
  bool use_synthetic_data = false;
  bool describe_plan = false;
  std::optional<std::string> profile;      // "100:120", as ParseProfile reads it
  std::optional<int64_t> max_train_steps;  // the total of all runs in model_dir; limits evaluations, too, where
                                           // SessionOptions::evaluates_all is false
  // off, default, one_device, mirrored, central_storage, multi_worker_mirrored, collective_all_reduce,
  // parameter_server, tpu
  std::string distribution_strategy = "default";
  std::optional<std::string> all_reduce_alg;  // nccl, hierarchical_copy, reduction_to_one_device
  std::optional<int> num_packs;
  int all_reduce_timeout_secs = 600;
  int compile_timeout_secs = 3600;  // of a PJRT plugin
  bool tf32 = false;                // on GPUs, float32 matrix products and convolutions may be computed in TF32
  compute::Recordings cuda_graphs = compute::Recordings::kAuto;  // on GPUs
  std::optional<std::string> devices;                            // "gpu:0,gpu:2"
  std::optional<std::string> pjrt_plugin;                        // path; for the strategy tpu
  int num_cpu_devices = 1;  // logical devices that share the cores, if no GPU is used
};

// The steps from `first` to `last`, both included.
struct StepRange {
  int64_t first = 1, last = 1;
};

inline constexpr int64_t kMaxProfiledSteps = 1000;

// Returns the steps that "START:STOP" names. InvalidArgument, saying what is wrong, unless both are whole numbers,
// START is at least 1, STOP not below it, and there are at most kMaxProfiledSteps.
absl::StatusOr<StepRange> ParseProfile(const std::string& text);

FlagGroup PerformanceFlags();

// Refuses --pjrt_plugin without --distribution_strategy=tpu, and other devices than the plugin's with it.
absl::Status PjrtDevicesAlone(const CommandLine& command_line);

// Returns the value of --dtype for `dtype`, as shown in the log: "fp16", "bf16", "fp32".
std::string DTypeFlagValue(compute::DType dtype);

}  // namespace official::flags
