#include "official/serve/served_models.h"

#include "absl/strings/str_cat.h"
#include "official/mnist/mnist_servable.h"
#include "official/recommendation/ncf_servable.h"
#include "official/resnet/resnet_servable.h"
#include "official/transformer/transformer_servable.h"
#include "utils/compute/core/check.h"
#include "utils/files/files.h"
#include "utils/misc/run_files.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::serve {
namespace {

struct ServedModel {
  absl::string_view name;
  absl::string_view flag;  // of its training program, and of no other one
  absl::StatusOr<std::unique_ptr<Servable>> (*open)(const ServedRun& run);
};

constexpr ServedModel kModels[] = {
    {"mnist", "dropout_rate", mnist::OpenServable},
    {"resnet", "resnet_size", resnet::OpenServable},
    {"ncf", "num_factors", recommendation::OpenServable},
    {"transformer", "param_set", transformer::OpenServable},
};

}  // namespace

absl::StatusOr<std::string> ModelOfRun(const ServedRun& run) {
  const std::string& model_dir = run.config.train.model_dir;
  for (const ServedModel& model : kModels) {
    if (run.trained.contains(model.flag)) return std::string(model.name);
  }
  // What cannot be read is not missing.
  for (const absl::string_view name : {misc::kStateFile, misc::kFlagsFile}) {
    constexpr int64_t kMaxBytes = 1 << 20;
    const absl::Status status = files::ReadFile(files::JoinPath(model_dir, name), kMaxBytes).status();
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  if (!train::LatestCheckpointName(model_dir)) {
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint in ", model_dir, "; train first, or name another --model_dir"));
  }
  return absl::NotFoundError(absl::StrCat(model_dir,
                                          "/flags.txt is missing or is not that of a training program, so "
                                          "it is not known which model the checkpoint is of; train a step "
                                          "there, which writes it"));
}

absl::StatusOr<std::unique_ptr<Servable>> OpenRun(const std::string& model, const ServedRun& run) {
  for (const ServedModel& known : kModels) {
    if (known.name == model) return known.open(run);
  }
  OFFICIAL_CHECK(false) << model;
  return absl::InternalError("");
}

}  // namespace official::serve
