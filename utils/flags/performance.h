// The flags that decide how fast and how exactly a run computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/loss_scale.h"
#include "utils/flags/flag_group.h"

namespace official::flags {

struct PerformanceConfig {
  int num_parallel_calls = 0;            // at least 1
  int intra_op_parallelism_threads = 0;  // 0: the program decides
  bool use_synthetic_data = false;
  std::optional<int64_t> max_train_steps;           // the total of all runs in model_dir; also limits an evaluation
  compute::DType dtype = compute::DType::kFloat32;  // type of the computation; variables stay float32
  compute::LossScale loss_scale;                    // the flag if set, else 128 for float16 and 1 for the others
  int grad_accum_steps = 1;                         // the number of micro-batches of a training step
  int num_cpu_devices = 1;                          // logical devices that share the cores, if no GPU is used
  int check_replicas_steps = 100;
  bool winograd = true;                       // false: nothing is timed
  std::optional<std::string> all_reduce_alg;  // nccl, hierarchical_copy, reduction_to_one_device
  int all_reduce_timeout_secs = 600;
  bool tf32 = false;  // on GPUs, float32 matrix products and convolutions may be computed in TF32
};

// Returns the value of --dtype for `dtype`, as shown in the log: "fp16", "bf16", "fp32".
absl::string_view DTypeFlagValue(compute::DType dtype);

FlagGroup PerformanceFlags();
PerformanceConfig PerformanceFromFlags();

}  // namespace official::flags
