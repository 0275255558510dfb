#include "utils/flags/performance.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/loss_scale.h"
#include "utils/flags/command_line.h"
#include "utils/flags/config_flag.h"
#include "utils/train/options.h"

ABSL_DECLARE_FLAG(std::optional<int>, num_gpus);

OFFICIAL_FLAG_GROUP(performance);

namespace official::flags {
namespace {

constexpr Choice<compute::DType> kTypes[] = {
    {"fp16", compute::DType::kFloat16}, {"bf16", compute::DType::kBFloat16}, {"fp32", compute::DType::kFloat32}};

constexpr Choice<compute::Recordings> kCudaGraphs[] = {
    {"auto", compute::Recordings::kAuto}, {"must", compute::Recordings::kMust}, {"off", compute::Recordings::kOff}};

constexpr Choice<bool> kWinograd[] = {{"auto", true}, {"off", false}};

int InputThreads(std::optional<int> num_parallel_calls) {
  const int logical_cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return num_parallel_calls.value_or(logical_cpus);
}

}  // namespace
}  // namespace official::flags

OFFICIAL_CONVERTED_FLAG(PerformanceConfig, num_parallel_calls, std::optional<int>, std::nullopt, InputThreads,
                        "Threads of the input pipeline, which read and decode examples.", .short_name = "npc",
                        .range = AtLeast(1), .unset_means = "the number of logical CPUs",
                        .other_names = {{"num_workers num_data_workers j datasets_num_parallel_batches num_readers"}},
                        .per_worker = true);

OFFICIAL_FLAG_WITHOUT_FIELD(
    int, inter_op_parallelism_threads, 0, "Operations that are computed at the same time.", .short_name = "inter",
    .range = AtLeast(0),
    .not_used =
        "operations are computed one after another; --intra_op_parallelism_threads sets the threads "
        "of each",
    .other_names = {{"num_inter_threads"}}, .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, intra_op_parallelism_threads,
              "Threads that compute one operation on the CPU. 0: one for each core that the process may use, by its "
              "affinity and the quotas of its control groups.",
              .short_name = "intra", .range = AtLeast(0), .word_for_zero = "auto",
              .other_names = {{"threads num_threads num_intra_threads cpu_threads"}}, .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, use_synthetic_data,
              "Train on one constant batch instead of a data set, to measure speed. Nothing is read from --data_dir.",
              .short_name = "synth", .other_names = {{"synthetic synthetic_data fake_data dummy dummy_data"}});

OFFICIAL_FLAG(
    PerformanceConfig, max_train_steps,
    "Stop training at this global step, which includes the steps of earlier runs in --model_dir. An evaluation "
    "also runs at most this many steps.",
    .short_name = "mts", .range = AtLeast(1), .unset_means = "no limit",
    .other_names = {{"steps num_steps max_steps iterations max_iterations max_iter num_iterations "
                     "total_steps training_steps num_train_steps num_batches train_steps"}});

OFFICIAL_CHOICE_FLAG(
    train::TrainOptions, dtype, kTypes,
    "Precision of the computation: bf16 and fp16 take half the memory of fp32. Weights and checkpoints are "
    "always fp32.",
    .short_name = "dt",
    .other_names = {{"fp16 half float16 amp use_amp mixed_precision use_fp16 mixed", "=fp16"},
                    {"bf16 bfloat16 use_bf16 use_bfloat16", "=bf16"},
                    {"fp32 float32 float use_fp32", "=fp32"},
                    {"precision compute_dtype"}});

namespace official::flags {
namespace {

// Returns what the flag says; nothing if it is no number of at least 1 and not 'dynamic'.
std::optional<compute::LossScale> ParseLossScale(const std::string& text) {
  if (text == "dynamic") return compute::DynamicLossScale();
  compute::LossScale scale;
  if (!absl::SimpleAtof(text, &scale.value) || !(scale.value >= 1) || !std::isfinite(scale.value)) return std::nullopt;
  return scale;
}

compute::LossScale LossScaleOf(const std::optional<std::string>& text) {
  const compute::DType dtype = ValueOf(kTypes, absl::GetFlag(FLAGS_dtype));
  return text ? ParseLossScale(*text).value_or(compute::LossScale{})
              : compute::LossScale{.value = dtype == compute::DType::kFloat16 ? 128.0f : 1.0f};
}

}  // namespace
}  // namespace official::flags

OFFICIAL_CONVERTED_FLAG(
    train::TrainOptions, loss_scale, std::optional<std::string>, std::nullopt, LossScaleOf,
    "Factor by which the loss is multiplied, and its gradients divided again, so that small gradients do not "
    "underflow in fp16: a number of at least 1, or 'dynamic'. 'dynamic' starts with 32768; it halves, and the "
    "step is skipped, when gradients overflow, and doubles after 2000 steps in a row without an overflow.",
    .short_name = "ls", .unset_means = "128 with --dtype=fp16, else 1",
    .other_names = {{"fp16_scale static_loss_scale"}, {"dynamic_loss_scale", "=dynamic"}});

OFFICIAL_FLAG(
    train::TrainOptions, grad_accum_steps,
    "Micro-batches per step: the batch of --batch_size examples is divided into this many, which are computed "
    "one after another; their gradients are accumulated and the weights updated once. This takes the memory of "
    "one micro-batch. Batch normalization uses the statistics of each micro-batch.",
    .short_name = "gas", .range = {.min = 1, .max = 65536},
    .other_names = {{"gradient_accumulation_steps accumulation_steps accum_steps accum_iter "
                     "accumulate_grad_batches update_freq num_micro_batches grad_accumulation_steps"}});

OFFICIAL_FLAG(
    train::TrainOptions, clip_norm,
    "Clip the gradients of a step by their global norm: where it is above X, all of them are scaled by X over "
    "the norm. It is that of all devices and micro-batches together, without the loss scale; TensorBoard shows "
    "it as gradient_norm.",
    .range = MoreThan(0), .unset_means = "not clipped",
    .other_names = {{"clip clip_grad_norm grad_clip gradient_clip max_grad_norm gradient_clip_norm clip_gradients "
                     "grad_clip_norm global_clipnorm gradient_clip_val clip_grad"}});

OFFICIAL_FLAG(train::TrainOptions, clip_value,
              "Clip each element of the gradients of a step into [-X, X], after the loss scale is taken off.",
              .range = MoreThan(0), .unset_means = "not clipped",
              .other_names = {{"clip_grad_value clipvalue gradient_clip_value"}});

OFFICIAL_FLAG(
    PerformanceConfig, distribution_strategy,
    "How the devices of a run train together, by TensorFlow's names. default: one_device on one device, mirrored on "
    "several, multi_worker_mirrored with several workers. off, one_device: refuses several devices. mirrored: each "
    "device computes its part of every batch, and the gradients are summed; for one process. central_storage: the "
    "same, but several GPUs have their variables in the host's memory, where they are updated. multi_worker_mirrored, "
    "collective_all_reduce: as mirrored, with workers. parameter_server, the default where TF_CONFIG has the job ps: "
    "workers train independently of each other, and the processes of ps hold the variables; in a process alone as "
    "central_storage. tpu: mirrored, on the TPU cores of this machine, or on the other devices of --pjrt_plugin.",
    .choices = {"off", "default", "one_device", "mirrored", "central_storage", "multi_worker_mirrored",
                "collective_all_reduce", "parameter_server", "tpu"},
    .other_names = {{"strategy distribute"}, {"use_tpu", "=tpu"}});

OFFICIAL_FLAG(
    PerformanceConfig, pjrt_plugin,
    "With --distribution_strategy=tpu: the shared object, a PJRT plugin, that computes on its devices, such as "
    "libtpu.so or one of XLA for CPUs, of whose devices it makes as many as --num_cpu_devices says.",
    .unset_means = "libtpu.so, from TPU_LIBRARY_PATH or where it is installed",
    .other_names = {{"pjrt_library tpu_library libtpu pjrt"}}, .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, all_reduce_alg, "Algorithm that sums the gradients of several devices.",
              .short_name = "ara", .choices = {"nccl", "hierarchical_copy", "reduction_to_one_device"},
              .unset_means = "chosen by the devices");

OFFICIAL_FLAG(PerformanceConfig, num_packs,
              "With several devices or workers: number of packs in which gradients are summed, while others are still "
              "computed. 0: each gradient is a pack. Sums are the same with any number, but for those of NCCL.",
              .range = {.min = 0, .max = 4096},
              .unset_means =
                  "packs of some megabytes between GPUs and workers, else "
                  "as many as devices");

OFFICIAL_FLAG(PerformanceConfig, all_reduce_timeout_secs,
              "With several devices: seconds that a device waits for the gradients of the others; with "
              "--distribution_strategy=tpu also for all that the plugin does but compile: it is loaded, finds devices, "
              "computes and copies. After that the run exits with an error.",
              .range = AtLeast(1), .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, compile_timeout_secs,
              "With --distribution_strategy=tpu: seconds that the plugin may take to compile a program. After that the "
              "run exits with an error.",
              .range = AtLeast(1), .per_worker = true);

OFFICIAL_FLAG(
    PerformanceConfig, tf32,
    "On GPUs with --dtype=fp32: compute matrix products and convolutions in TF32, which rounds their inputs to "
    "10 bits of mantissa and is several times faster. No effect on CPUs.",
    .other_names = {{"allow_tf32 enable_tf32 use_tf32"}});

OFFICIAL_CHOICE_FLAG(
    PerformanceConfig, cuda_graphs, kCudaGraphs,
    "On GPUs: record the kernels of a step into a CUDA graph, which launches them all at once. auto: if that fails, "
    "say why and launch each kernel on its own, which computes the same. must: if it fails, exit with an error. off: "
    "launch each kernel on its own. No effect on CPUs.",
    .other_names = {{"use_cuda_graph use_cuda_graphs enable_cuda_graph"}}, .per_worker = true);

OFFICIAL_FLAG(
    PerformanceConfig, num_cpu_devices,
    "On CPUs: number of logical devices to train on. They share the cores; each computes an equal part of every "
    "batch, as a GPU would.",
    .range = {.min = 1, .max = 1024}, .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, devices,
              "The devices to train on, instead of a number: gpu:0,gpu:2, of those that the machine shows. "
              "cpu:0,cpu:1 are logical devices, as many as --num_cpu_devices would make.",
              .unset_means = "the first ones", .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, describe_plan,
              "After five training steps, log how a step is computed on the first device: the type of each op, what it "
              "computes, by which algorithm, and its share of the time.",
              .per_worker = true);

OFFICIAL_FLAG(PerformanceConfig, profile,
              "Time the ops of the steps START to STOP, both included, on the first device: START:STOP, for example "
              "100:120. After step STOP, log where the time went (waits for data, sums over devices, ops with their "
              "share, GFLOP/s and GB/s) and write a timeline, profile-START-STOP.json, to --model_dir. These steps "
              "take longer than others.",
              .unset_means = "no profile", .other_names = {{"profile_batch profile_steps"}}, .per_worker = true);

OFFICIAL_FLAG(train::TrainOptions, check_replicas_steps,
              "With several devices: steps between two checks that all of them hold the same weights.",
              .range = AtLeast(1));

OFFICIAL_CHOICE_FLAG(
    train::TrainOptions, winograd, kWinograd,
    "How convolutions, and on GPUs matrix products, are computed. auto: the fastest algorithm for each, Winograd's "
    "included, found by timing them at the start and stored in --model_dir (algorithms.txt) for resumed runs; the last "
    "bits of results depend on the choice. off: always the same algorithm, direct convolution on CPUs.");

namespace official::flags {
namespace {

absl::Status CheckLossScale(const CommandLine&) {
  const std::optional<std::string> text = absl::GetFlag(FLAGS_loss_scale);
  if (!text || ParseLossScale(*text)) return absl::OkStatus();
  return FlagError("loss_scale", "needs a number of at least 1, or 'dynamic'");
}

absl::Status OneWayToClip(const CommandLine&) {
  if (!absl::GetFlag(FLAGS_clip_norm) || !absl::GetFlag(FLAGS_clip_value)) return absl::OkStatus();
  return FlagError("clip_norm", "cannot be combined with --clip_value; use one of them");
}

absl::Status OneKindOfDevice(const CommandLine& command_line) {
  const std::optional<int> num_gpus = absl::GetFlag(FLAGS_num_gpus);
  if (absl::GetFlag(FLAGS_num_cpu_devices) == 1 || num_gpus.value_or(0) == 0) return absl::OkStatus();
  return FlagError("num_cpu_devices",
                   absl::StrCat("cannot be combined with --num_gpus=", *num_gpus, "; use one of them"));
}

absl::Status DevicesAreNamedOrCounted(const CommandLine&) {
  if (!absl::GetFlag(FLAGS_devices)) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_num_gpus)) return FlagError("devices", "cannot be combined with --num_gpus; use one of them");
  if (absl::GetFlag(FLAGS_num_cpu_devices) == 1) return absl::OkStatus();
  return FlagError("devices", "cannot be combined with --num_cpu_devices; use one of them");
}

absl::Status CheckProfile(const CommandLine&) {
  const std::optional<std::string> text = absl::GetFlag(FLAGS_profile);
  if (!text) return absl::OkStatus();
  const absl::StatusOr<StepRange> range = ParseProfile(*text);
  if (!range.ok()) return FlagError("profile", range.status().message());
  const std::optional<int64_t> max_steps = absl::GetFlag(FLAGS_max_train_steps);
  if (!max_steps || range->last <= *max_steps) return absl::OkStatus();
  return FlagError("profile", absl::StrCat("the run ends at --max_train_steps=", *max_steps));
}

}  // namespace

absl::Status PjrtDevicesAlone(const CommandLine&) {
  if (absl::GetFlag(FLAGS_distribution_strategy) != "tpu") {
    if (!absl::GetFlag(FLAGS_pjrt_plugin)) return absl::OkStatus();
    return FlagError("pjrt_plugin", "is for --distribution_strategy=tpu; give it, too, or leave this out");
  }
  constexpr char kLeaveOut[] = "is not for --distribution_strategy=tpu; leave one of them out";
  if (absl::GetFlag(FLAGS_num_gpus).value_or(0) != 0) return FlagError("num_gpus", kLeaveOut);
  if (absl::GetFlag(FLAGS_devices)) return FlagError("devices", kLeaveOut);
  if (absl::GetFlag(FLAGS_all_reduce_alg)) return FlagError("all_reduce_alg", kLeaveOut);
  if (absl::GetFlag(FLAGS_num_packs)) return FlagError("num_packs", kLeaveOut);
  if (absl::GetFlag(FLAGS_tf32)) return FlagError("tf32", kLeaveOut);
  return absl::OkStatus();
}

absl::StatusOr<StepRange> ParseProfile(const std::string& text) {
  StepRange range;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &range.first) || !absl::SimpleAtoi(parts[1], &range.last)) {
    return absl::InvalidArgumentError("needs two step numbers, START:STOP, such as 100:120");
  }
  if (range.first < 1) return absl::InvalidArgumentError("steps are counted from 1; needs a START of at least 1");
  if (range.last < range.first) {
    return absl::InvalidArgumentError(
        absl::StrCat("STOP is before START; did you mean ", range.last, ":", range.first, "?"));
  }
  if (range.last - range.first >= kMaxProfiledSteps) {
    return absl::InvalidArgumentError(absl::StrCat("at most ", kMaxProfiledSteps, " steps can be profiled; try ",
                                                   range.first, ":", range.first + kMaxProfiledSteps - 1));
  }
  return range;
}

std::string DTypeFlagValue(compute::DType dtype) { return NameOf(kTypes, dtype); }

FlagGroup PerformanceFlags() {
  FlagGroup group = ThisGroup();
  group.validators = {PjrtDevicesAlone, OneKindOfDevice, DevicesAreNamedOrCounted,
                      CheckLossScale,   CheckProfile,    OneWayToClip};
  return group;
}

}  // namespace official::flags
