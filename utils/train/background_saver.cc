#include "utils/train/background_saver.h"

#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

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

BackgroundSaver::~BackgroundSaver() {
  if (writer_.joinable()) writer_.join();
}

absl::Status BackgroundSaver::Wait() {
  if (writer_.joinable()) writer_.join();
  return std::exchange(status_, absl::OkStatus());
}

absl::Status BackgroundSaver::Save(int64_t step, CheckpointContent content) {
  RETURN_IF_ERROR(Wait());
  writer_ = std::thread([this, step, content = std::move(content)] {
    try {
      status_ = CheckFinite(step, content);
      if (status_.ok()) status_ = saver_->Save(step, content.tensors, content.strings);
    } catch (const std::bad_alloc&) {
      status_ = absl::InternalError(absl::StrCat("out of memory while saving step ", step));
    }
    if (status_.ok()) finished_step_ = step;
  });
  return absl::OkStatus();
}

}  // namespace official::train
