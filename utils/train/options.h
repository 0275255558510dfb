// TrainOptions: what the command line says about a training. Each field but the last two has a flag of its name, which
// utils/flags binds to it (config_flag.h). The defaults here are those of the flags, except for loss_scale; a program
// may have its own, such as a model_dir.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "utils/compute/core/dtype.h"
#include "utils/compute/core/loss_scale.h"

namespace official::train {

// The choice whether a run continues from a checkpoint in model_dir.
enum class Resume { kAuto, kNever, kMust };

struct TrainOptions {
  std::string model_dir = "/tmp";
  Resume resume = Resume::kAuto;
  uint64_t seed = 1;
  std::optional<int64_t> save_checkpoints_steps;  // if set, save_checkpoints_secs does not count
  int save_checkpoints_secs = 600;
  int keep_checkpoint_max = 5;  // 0 keeps all
  // The steps between two lines of progress in the log, between events, and between losses in metric.log.
  int log_every_n_steps = 100;

  compute::DType dtype = compute::DType::kFloat32;  // type of the computation; variables stay float32
  compute::LossScale loss_scale;                    // without the flag 128 for float16, and 1 for the others
  // The number of micro-batches of a training step, computed one after another before one update of the variables. The
  // step takes the memory of a micro-batch and has the results of the whole batch, except for rounding and what the
  // model itself computes over its batch.
  int grad_accum_steps = 1;
  // If set, the moving averages of the variables are kept, as by tf.train.ExponentialMovingAverage: above 0, below 1.
  std::optional<double> ema_decay;
  // The gradients of a step are clipped by their norm or by value, before the update. At most one is set; more than 0.
  std::optional<double> clip_norm, clip_value;
  int eval_samples = 16;           // the number of examples of an evaluation that event files show; 0: none
  int check_replicas_steps = 100;  // steps between two comparisons of the replicas' variables
  // True: times the algorithms of kernels that have several in the first run in model_dir and keeps the choice in
  // algorithms.txt there. False: the choice does not depend on times.
  bool winograd = true;

  std::string flags_text;    // all flags, a line each: shown by TensorBoard and kept in flags.txt; empty: not known
  bool only_latest = false;  // true: if the latest checkpoint is damaged, that is an error, and no older one is taken
};

}  // namespace official::train
