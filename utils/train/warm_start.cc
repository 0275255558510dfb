#include "utils/train/warm_start.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/checkpoint/object_names.h"
#include "utils/train/short_list.h"

namespace official::train {
namespace {

// Slots are not trainable, and named after their variable: "dense/kernel/Momentum".
bool IsSlot(const compute::VariableSpec& spec, const std::vector<compute::VariableSpec>& all) {
  return !spec.trainable && std::any_of(all.begin(), all.end(), [&](const compute::VariableSpec& other) {
    return other.trainable && absl::StartsWith(spec.name, absl::StrCat(other.name, "/"));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<WarmStart>> WarmStart::Open(const std::string& named) {
  ASSIGN_OR_RETURN(LatestCheckpoint found, OpenCheckpoint(named));
  absl::StatusOr<std::unique_ptr<TensorReader>> reader = WithVariableNames(std::move(found.reader));
  if (!reader.ok()) {
    return absl::Status(reader.status().code(), absl::StrCat(found.prefix, ": ", reader.status().message()));
  }
  return std::unique_ptr<WarmStart>(new WarmStart(found.prefix, *std::move(reader)));
}

absl::Status WarmStart::Apply(const std::vector<compute::VariableSpec>& added, Replicas& replicas) const {
  int taken = 0, of_model = 0;
  std::vector<std::string> left;
  for (const compute::VariableSpec& spec : added) {
    // Beside trainable variables a model has those of its layers, such as moving averages, which lie in a scope too.
    const bool counter = !spec.trainable && (!absl::StrContains(spec.name, "/") || absl::StartsWith(spec.name, "_"));
    if (counter || IsSlot(spec, added)) continue;
    ++of_model;
    const std::optional<StoredTensor> found = reader_->Find(spec.name);
    if (!found) {
      left.push_back(absl::StrCat(spec.name, " (not there)"));
    } else if (found->dtype != spec.type.dtype || found->shape != spec.type.shape) {
      left.push_back(absl::StrCat(spec.name, " (", found->dtype_name, found->shape.ToString(), " there, ",
                                  spec.type.ToString(), " here)"));
    } else {
      ASSIGN_OR_RETURN(const compute::Tensor value, reader_->Read(spec.name));
      RETURN_IF_ERROR(replicas.Write(spec.name, value));
      ++taken;
    }
  }
  if (of_model == 0) return absl::OkStatus();
  if (taken == 0) {
    return absl::InvalidArgumentError(absl::StrCat("none of the model's ", of_model, " variables is in the checkpoint ",
                                                   name_, ", ", left[0], "; is it one of another model?"));
  }
  LOG(INFO) << "fine-tuning from " << name_ << ": took " << taken << " of " << of_model << " variables"
            << (left.empty() ? "" : "; not taken: ") << ShortList(left);
  return absl::OkStatus();
}

}  // namespace official::train
