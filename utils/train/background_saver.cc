#include "utils/train/background_saver.h"

#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"

namespace official::train {

namespace {

absl::Status CheckFinite(int64_t step, const CheckpointContent& content) {
  for (const auto& [name, tensor] : content.tensors) {
    const std::optional<int64_t> found = compute::FindNonFinite(tensor);
    if (!found) continue;
    return absl::InternalError(
        absl::StrCat("variable ", name, " is not finite at step ", step, ": its element ", *found, " is ",
                     tensor.CastTo(compute::DType::kFloat64).data<double>()[*found],
                     ". That step is not saved; the checkpoint before is the last one. Try a lower --learning_rate"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BackgroundSaver::Wait() {
  if (!writing_.valid()) return status_;
  std::chrono::seconds waited(0);
  for (std::chrono::seconds more(2); writing_.wait_for(more) != std::future_status::ready; more = waited) {
    waited += more;
    LOG(INFO) << "waiting for the checkpoint of step " << writing_step_ << " to be written, for " << waited.count()
              << " s now";
  }
  status_ = writing_.get();
  if (status_.ok()) finished_step_ = writing_step_;
  return status_;
}

absl::Status BackgroundSaver::Save(int64_t step, CheckpointContent content) {
  RETURN_IF_ERROR(Wait());
  writing_step_ = step;
  writing_ = std::async(std::launch::async, [this, step, content = std::move(content)]() -> absl::Status {
    try {
      RETURN_IF_ERROR(CheckFinite(step, content));
      return saver_->Save(step, content.tensors, content.strings);
    } catch (const std::bad_alloc&) {
      return absl::InternalError(absl::StrCat("out of memory while saving step ", step));
    }
  });
  return absl::OkStatus();
}

}  // namespace official::train
