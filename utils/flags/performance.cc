#include "utils/flags/performance.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "utils/flags/command_line.h"

ABSL_DECLARE_FLAG(std::optional<int>, num_gpus);

ABSL_FLAG(std::optional<int>, num_parallel_calls, std::nullopt,
          "Threads of the input pipeline, which read and decode examples.");
ABSL_FLAG(int, inter_op_parallelism_threads, 0, "Operations that are computed at the same time.");
ABSL_FLAG(int, intra_op_parallelism_threads, 0,
          "Threads that compute one operation on the CPU; 0 is one for each CPU core.");
ABSL_FLAG(bool, use_synthetic_data, false,
          "Train on one constant batch instead of a data set, to measure speed. Nothing is read from --data_dir.");
ABSL_FLAG(std::optional<int64_t>, max_train_steps, std::nullopt,
          "Stop training at this global step, which includes the steps of earlier runs in --model_dir. An evaluation "
          "also runs at most this many steps.");
ABSL_FLAG(std::string, dtype, "fp32",
          "Precision of the computation: bf16 and fp16 take half the memory of fp32. Weights and checkpoints are "
          "always fp32.");
ABSL_FLAG(std::optional<std::string>, loss_scale, std::nullopt,
          "Factor by which the loss is multiplied, and its gradients divided again, so that small gradients do not "
          "underflow in fp16: a number of at least 1, or 'dynamic'. 'dynamic' starts with 32768; it halves, and the "
          "step is skipped, when gradients overflow, and doubles after 2000 steps in a row without an overflow.");
ABSL_FLAG(int, grad_accum_steps, 1,
          "Micro-batches per step: the batch of --batch_size examples is divided into this many, which are computed "
          "one after another; their gradients are accumulated and the weights updated once. This takes the memory of "
          "one micro-batch. Batch normalization uses the statistics of each micro-batch.");
ABSL_FLAG(std::optional<std::string>, all_reduce_alg, std::nullopt,
          "Algorithm that sums the gradients of several devices.");
ABSL_FLAG(int, all_reduce_timeout_secs, 600,
          "With several devices: seconds that a device waits for the gradients of the others. After that the run exits "
          "with an error.");
ABSL_FLAG(bool, tf32, false,
          "On GPUs with --dtype=fp32: compute matrix products and convolutions in TF32, which rounds their inputs to "
          "10 bits of mantissa and is several times faster. No effect on CPUs.");
ABSL_FLAG(int, num_cpu_devices, 1,
          "On CPUs: number of logical devices to train on. They share the cores; each computes an equal part of every "
          "batch, as a GPU would.");
ABSL_FLAG(std::string, winograd, "auto",
          "How convolutions are computed. auto: the fastest algorithm for each convolution, Winograd's included, found "
          "by timing them at the start and stored in --model_dir (algorithms.txt) for resumed runs; the last bits of "
          "results depend on the choice. off: always the same algorithm, direct convolution on CPUs.");
ABSL_FLAG(int, check_replicas_steps, 100,
          "With several devices: steps between two checks that all of them hold the same weights.");

namespace official::flags {
namespace {

compute::DType DTypeFromFlag() {
  const std::string name = absl::GetFlag(FLAGS_dtype);
  if (name == "fp16") return compute::DType::kFloat16;
  return name == "bf16" ? compute::DType::kBFloat16 : compute::DType::kFloat32;
}

// What the flag says; nothing if it is no number of at least 1 and not 'dynamic'.
std::optional<compute::LossScale> ParseLossScale(const std::string& text) {
  if (text == "dynamic") return compute::DynamicLossScale();
  compute::LossScale scale;
  if (!absl::SimpleAtof(text, &scale.value) || !(scale.value >= 1) || !std::isfinite(scale.value)) return std::nullopt;
  return scale;
}

absl::Status CheckLossScale(const CommandLine&) {
  const std::optional<std::string> text = absl::GetFlag(FLAGS_loss_scale);
  if (!text || ParseLossScale(*text)) return absl::OkStatus();
  return FlagError("loss_scale", "needs a number of at least 1, or 'dynamic'");
}

compute::LossScale LossScaleFromFlag(compute::DType dtype) {
  const std::optional<std::string> text = absl::GetFlag(FLAGS_loss_scale);
  return text ? ParseLossScale(*text).value_or(compute::LossScale{})
              : compute::LossScale{.value = dtype == compute::DType::kFloat16 ? 128.0f : 1.0f};
}

absl::Status OneKindOfDevice(const CommandLine& command_line) {
  const std::optional<int> num_gpus = absl::GetFlag(FLAGS_num_gpus);
  if (absl::GetFlag(FLAGS_num_cpu_devices) == 1 || num_gpus.value_or(0) == 0) return absl::OkStatus();
  return FlagError("num_cpu_devices",
                   absl::StrCat("cannot be combined with --num_gpus=", *num_gpus, "; use one of them"));
}

}  // namespace

absl::string_view DTypeFlagValue(compute::DType dtype) {
  if (dtype == compute::DType::kFloat16) return "fp16";
  return dtype == compute::DType::kBFloat16 ? "bf16" : "fp32";
}

FlagGroup PerformanceFlags() {
  return {
      .name = "performance",
      .flags =
          {
              {.name = "num_parallel_calls",
               .short_name = "npc",
               .range = AtLeast(1),
               .unset_means = "the number of logical CPUs"},
              {.name = "inter_op_parallelism_threads",
               .short_name = "inter",
               .range = AtLeast(0),
               .not_used = "operations are computed one after another; --intra_op_parallelism_threads sets the threads "
                           "of each"},
              {.name = "intra_op_parallelism_threads", .short_name = "intra", .range = AtLeast(0)},
              {.name = "use_synthetic_data", .short_name = "synth"},
              {.name = "max_train_steps", .short_name = "mts", .range = AtLeast(1), .unset_means = "no limit"},
              {.name = "dtype", .short_name = "dt", .choices = {"fp16", "bf16", "fp32"}},
              {.name = "loss_scale", .short_name = "ls", .unset_means = "128 with --dtype=fp16, else 1"},
              {.name = "grad_accum_steps", .short_name = "gas", .range = {.min = 1, .max = 65536}},
              {.name = "all_reduce_alg",
               .short_name = "ara",
               .choices = {"nccl", "hierarchical_copy", "reduction_to_one_device"},
               .unset_means = "chosen by the devices"},
              {.name = "all_reduce_timeout_secs", .range = AtLeast(1)},
              {.name = "tf32"},
              {.name = "num_cpu_devices", .range = {.min = 1, .max = 1024}},
              {.name = "check_replicas_steps", .range = AtLeast(1)},
              {.name = "winograd", .choices = {"auto", "off"}},
          },
      .validators = {OneKindOfDevice, CheckLossScale},
  };
}

PerformanceConfig PerformanceFromFlags() {
  const int logical_cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const compute::DType dtype = DTypeFromFlag();
  return {
      .num_parallel_calls = absl::GetFlag(FLAGS_num_parallel_calls).value_or(logical_cpus),
      .intra_op_parallelism_threads = absl::GetFlag(FLAGS_intra_op_parallelism_threads),
      .use_synthetic_data = absl::GetFlag(FLAGS_use_synthetic_data),
      .max_train_steps = absl::GetFlag(FLAGS_max_train_steps),
      .dtype = dtype,
      .loss_scale = LossScaleFromFlag(dtype),
      .grad_accum_steps = absl::GetFlag(FLAGS_grad_accum_steps),
      .num_cpu_devices = absl::GetFlag(FLAGS_num_cpu_devices),
      .check_replicas_steps = absl::GetFlag(FLAGS_check_replicas_steps),
      .winograd = absl::GetFlag(FLAGS_winograd) == "auto",
      .all_reduce_alg = absl::GetFlag(FLAGS_all_reduce_alg),
      .all_reduce_timeout_secs = absl::GetFlag(FLAGS_all_reduce_timeout_secs),
      .tf32 = absl::GetFlag(FLAGS_tf32),
  };
}

}  // namespace official::flags
