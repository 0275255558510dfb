#include "utils/flags/other_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "utils/flags/shared_groups.h"

namespace official::flags {
namespace {

// Other names of the flags of single programs; a shared flag has its own in its FlagSpec. A name may stand in several
// rows: the first whose flag the program has is meant.
struct ProgramFlag {
  absl::string_view names;  // separated by blanks
  absl::string_view flag;   // ours
};
constexpr ProgramFlag kProgramFlags[] = {
    {"eval_steps eval_interval_steps steps_between_eval", "steps_between_evals"},
    {"lr learning_rate base_lr init_lr initial_learning_rate lr_init", "base_learning_rate"},
    {"lr base_learning_rate base_lr init_lr initial_learning_rate lr_init", "learning_rate"},
    {"lr_steps lr_milestones milestones lr_decay_epochs boundaries", "lr_boundary_epochs"},
    {"lr_decay gamma lr_gamma", "lr_factors"},
    {"warmup lr_warmup_epochs warm_up_epochs", "warmup_epochs"},
    {"wd l2 l2_reg l2_rate regularization", "weight_decay"},
    {"smoothing", "label_smoothing"},
    {"dropout drop drop_rate dropout_prob keep_prob", "dropout_rate"},
    {"eval_batch test_batch_size valid_batch_size", "eval_batch_size"},
    {"dataset", "dataset_name"},
    {"dataset_name", "dataset"},
    {"ratings ratings_path csv", "ratings_file"},
    {"size depth num_layers layers arch model", "resnet_size"},
    {"version", "resnet_version"},
    {"params model_params hparams hparams_set config", "param_set"},
    {"hparams_override override", "params_override"},
    {"vocab vocabulary vocab_path spm", "vocab_file"},
    {"input input_file src source text_file", "file"},
    {"output output_file out tgt", "file_out"},
    {"sentence prompt", "text"},
    {"ref references", "reference"},
    {"hyp hypothesis translations candidate", "translation"},
    {"case lc lowercase", "bleu_variant"},
    {"tok tokenizer", "tokenize"},
    {"infer inference classify image images img predict_only", "predict"},
    {"user users user_id", "predict"},
    {"k topk num_predictions", "top_k"},
    {"labels class_names label_names classes labels_file", "label_file"},
    {"pretrained pretrained_model init_checkpoint init_from pretrained_model_checkpoint_path warm_start weights "
     "finetune",
     "fine_tune"},
    {"target_bleu stop_bleu", "bleu_threshold"},
    {"negatives num_negatives n_neg neg_samples negative_samples", "num_neg"},
    {"factors embedding_size embedding_dim predictive_factors", "num_factors"},
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
  for (const FlagGroup& group : SharedGroups()) {
    for (const FlagSpec& flag : group.flags) {
      for (const OtherNames& other : flag.other_names) {
        if (has(flag.name) && IsOneOf(wanted, other.names)) return absl::StrCat("--", flag.name, other.advice);
      }
    }
  }
  for (const ProgramFlag& other : kProgramFlags) {
    if (has(other.flag) && IsOneOf(wanted, other.names)) return absl::StrCat("--", other.flag);
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
