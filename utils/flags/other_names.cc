#include "utils/flags/other_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace official::flags {
namespace {

struct OtherName {
  absl::string_view names;   // separated by blanks
  absl::string_view flag;    // ours
  absl::string_view advice;  // what follows "--" and the flag
};

// A name may stand in several rows: the first whose flag the program has is meant.
constexpr OtherName kOtherNames[] = {
    {"multi_gpu multi_gpus", "num_gpus", "=-1 (all GPUs)"},
    {"gpu gpus ngpu ngpus n_gpu n_gpus gpu_count num_devices devices nproc_per_node num_replicas world_size",
     "num_gpus", ""},
    {"distribution_strategy strategy", "num_gpus", " (several GPUs need nothing else)"},
    {"no_cuda no_gpu cpu use_cpu cpu_only", "num_gpus", "=0"},
    {"device accelerator use_gpu use_cuda cuda", "num_gpus", " (0 is the CPU)"},
    {"epochs epoch num_epochs n_epochs max_epochs nb_epochs num_train_epochs training_epochs", "train_epochs", ""},
    {"steps num_steps max_steps iterations max_iterations max_iter num_iterations total_steps training_steps "
     "num_train_steps num_batches train_steps",
     "max_train_steps", ""},
    {"eval_every eval_interval eval_freq epochs_per_eval epochs_between_eval eval_frequency", "epochs_between_evals",
     ""},
    {"eval_steps eval_interval_steps steps_between_eval", "steps_between_evals", ""},
    {"lr learning_rate base_lr init_lr initial_learning_rate lr_init", "base_learning_rate", ""},
    {"lr base_learning_rate base_lr init_lr initial_learning_rate lr_init", "learning_rate", ""},
    {"lr_steps lr_milestones milestones lr_decay_epochs boundaries", "lr_boundary_epochs", ""},
    {"lr_decay gamma lr_gamma", "lr_factors", ""},
    {"warmup lr_warmup_epochs warm_up_epochs", "warmup_epochs", ""},
    {"wd l2 l2_reg l2_rate regularization", "weight_decay", ""},
    {"smoothing", "label_smoothing", ""},
    {"dropout drop drop_rate dropout_prob keep_prob", "dropout_rate", ""},
    {"train_batch_size per_gpu_batch_size per_device_train_batch_size batch_size_per_gpu minibatch "
     "minibatch_size "
     "micro_batch_size tokens_per_batch max_tokens",
     "batch_size", " (of all GPUs together)"},
    {"eval_batch test_batch_size valid_batch_size", "eval_batch_size", ""},
    {"gradient_accumulation_steps accumulation_steps accum_steps accum_iter accumulate_grad_batches update_freq "
     "num_micro_batches grad_accumulation_steps",
     "grad_accum_steps", ""},
    {"fp16 half float16 amp use_amp mixed_precision use_fp16 mixed", "dtype", "=fp16"},
    {"bf16 bfloat16 use_bf16 use_bfloat16", "dtype", "=bf16"},
    {"fp32 float32 float use_fp32", "dtype", "=fp32"},
    {"precision compute_dtype", "dtype", ""},
    {"allow_tf32 enable_tf32 use_tf32", "tf32", ""},
    {"fp16_scale static_loss_scale", "loss_scale", ""},
    {"dynamic_loss_scale", "loss_scale", "=dynamic"},
    {"data dataset_dir data_path dataset_path data_root train_data train_dir_data input_dir root", "data_dir", ""},
    {"checkpoint_dir checkpoint_path ckpt ckpt_dir ckpt_path checkpoints_dir save_dir save_path output_dir out_dir "
     "log_dir logdir job_dir train_dir work_dir workdir model_path run_dir checkpoint",
     "model_dir", ""},
    {"dataset", "dataset_name", ""},
    {"dataset_name", "dataset", ""},
    {"ratings ratings_path csv", "ratings_file", ""},
    {"size depth num_layers layers arch model", "resnet_size", ""},
    {"version", "resnet_version", ""},
    {"params model_params hparams hparams_set config", "param_set", ""},
    {"hparams_override override", "params_override", ""},
    {"vocab vocabulary vocab_path spm", "vocab_file", ""},
    {"input input_file src source text_file", "file", ""},
    {"output output_file out tgt", "file_out", ""},
    {"sentence prompt", "text", ""},
    {"ref references", "reference", ""},
    {"hyp hypothesis translations candidate", "translation", ""},
    {"case lc lowercase", "bleu_variant", ""},
    {"tok tokenizer", "tokenize", ""},
    {"eval evaluate evaluate_only eval_mode test_only validate validate_only evaluation", "eval_only", ""},
    {"infer inference classify image images img predict_only", "predict", ""},
    {"user users user_id", "predict", ""},
    {"k topk num_predictions", "top_k", ""},
    {"labels class_names label_names classes labels_file", "label_file", ""},
    {"pretrained pretrained_model init_checkpoint init_from pretrained_model_checkpoint_path warm_start weights "
     "finetune",
     "fine_tune", ""},
    {"resume_from restore resume_training continue", "resume", " (a run resumes the checkpoint in --model_dir)"},
    {"overwrite force restart fresh delete reset", "clean", ""},
    {"export saved_model saved_model_dir savedmodel_dir export_path export_model_dir", "export_dir", ""},
    {"random_seed manual_seed rng_seed tf_random_seed", "seed", ""},
    {"log_steps log_interval log_freq log_every print_freq log_step_count_steps logging_steps", "log_every_n_steps",
     ""},
    {"save_steps save_every checkpoint_steps save_interval save_freq save_interval_updates checkpoint_every",
     "save_checkpoints_steps", ""},
    {"save_secs save_interval_secs checkpoint_secs", "save_checkpoints_secs", ""},
    {"keep_checkpoints keep_last save_total_limit max_to_keep keep_last_epochs", "keep_checkpoint_max", ""},
    {"synthetic synthetic_data fake_data dummy dummy_data", "use_synthetic_data", ""},
    {"workers num_workers num_data_workers j datasets_num_parallel_batches num_readers", "num_parallel_calls", ""},
    {"threads num_threads num_intra_threads cpu_threads", "intra_op_parallelism_threads", ""},
    {"num_inter_threads", "inter_op_parallelism_threads", ""},
    {"target target_accuracy target_metric early_stopping", "stop_threshold", ""},
    {"target_bleu stop_bleu", "bleu_threshold", ""},
    {"negatives num_negatives n_neg neg_samples negative_samples", "num_neg", ""},
    {"factors embedding_size embedding_dim predictive_factors", "num_factors", ""},
    {"profile profiler trace", "hooks", "=ProfilerHook"},
    {"verbose verbosity v quiet silent log_level progress", "log_format", ""},
    {"json", "output", "=json"},
};

struct OtherType {
  absl::string_view name;
  absl::string_view dtype;
};
constexpr OtherType kOtherTypes[] = {{"float32", "fp32"},       {"float", "fp32"},         {"single", "fp32"},
                                     {"f32", "fp32"},           {"float16", "fp16"},       {"half", "fp16"},
                                     {"mixed_float16", "fp16"}, {"f16", "fp16"},           {"mixed", "fp16"},
                                     {"bfloat16", "bf16"},      {"mixed_bfloat16", "bf16"}};

bool IsOneOf(absl::string_view name, absl::string_view names) {
  for (const absl::string_view candidate : absl::StrSplit(names, ' ')) {
    if (candidate == name) return true;
  }
  return false;
}

}  // namespace

std::string InPlaceOf(absl::string_view name, const std::function<bool(absl::string_view)>& has) {
  const std::string wanted = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}});
  for (const OtherName& other : kOtherNames) {
    if (has(other.flag) && IsOneOf(wanted, other.names)) return absl::StrCat("--", other.flag, other.advice);
  }
  return "";
}

absl::string_view DTypeInPlaceOf(absl::string_view name) {
  const std::string wanted = absl::AsciiStrToLower(name);
  for (const OtherType& other : kOtherTypes) {
    if (other.name == wanted) return other.dtype;
  }
  return "";
}

}  // namespace official::flags
