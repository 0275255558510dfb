#include "utils/train/background_saver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/available_memory.h"

namespace official::train {
namespace {

using compute::Tensor;

// A wait that is shorter is not worth a thread that shows it.
constexpr std::chrono::milliseconds kSoon(100);

absl::Status CheckFinite(int64_t step, const std::string& name, const Tensor& tensor, absl::string_view advice) {
  const std::optional<int64_t> found = compute::FindNonFinite(tensor);
  if (!found) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("variable ", name, " is not finite at step ", step, ": its element ", *found,
                                          " is ", tensor.CastTo(compute::DType::kFloat64).data<double>()[*found],
                                          ". That step is not saved; the checkpoint before it is the last one",
                                          advice.empty() ? "" : ". ", advice));
}

absl::Status OutOfMemory(int64_t step) {
  return absl::InternalError(absl::StrCat("out of memory while saving step ", step));
}

absl::Status Unexpected(int64_t step, const std::exception& error) {
  return absl::InternalError(absl::StrCat("the checkpoint of step ", step, " was not saved: ", error.what()));
}

// Takes tensors, in order, from the thread that reads them to the one that writes them.
class Handover {
 public:
  explicit Handover(int64_t most_held) : most_held_(most_held) {}

  // For the reader: waits until `bytes` more may be held. False if the writer has given up.
  bool WaitForRoom(int64_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || held_ == 0 || held_ + bytes <= most_held_; });
    return !closed_;
  }
  void Give(absl::StatusOr<Tensor> tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tensor.ok()) held_ += tensor->num_bytes();
    queue_.push_back(std::move(tensor));
    changed_.notify_all();
  }

  // For the writer: the next tensor. The one before counts as let go.
  absl::StatusOr<Tensor> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    held_ -= std::exchange(taken_, 0);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !queue_.empty(); });
    absl::StatusOr<Tensor> tensor = std::move(queue_.front());
    queue_.pop_front();
    if (tensor.ok()) taken_ = tensor->num_bytes();
    return tensor;
  }
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    queue_.clear();
    changed_.notify_all();
  }

 private:
  const int64_t most_held_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::StatusOr<Tensor>> queue_;
  int64_t held_ = 0, taken_ = 0;  // bytes; of all that the writer has not let go, and of what it has now
  bool closed_ = false;
};

}  // namespace

absl::Status BackgroundSaver::Wait() {
  if (!writing_.valid()) return last_.status;
  if (writing_.wait_for(kSoon) != std::future_status::ready) WaitLong();
  Keep(writing_.get());
  return last_.status;
}

void BackgroundSaver::Keep(Outcome outcome) {
  tries_again_ = outcome.storage_failed && last_.status.ok();
  last_ = std::move(outcome);
  if (last_.status.ok()) finished_step_ = writing_step_;
}

void BackgroundSaver::WaitLong() const {
  const logs::TaskProgress progress({.title = absl::StrCat("writing the checkpoint of step ", writing_step_)});
  std::chrono::seconds waited(0);
  for (std::chrono::seconds more(2); writing_.wait_for(more) != std::future_status::ready;
       more = std::min(waited, logs::kLongestSilence)) {
    waited += more;
    LOG(INFO) << "waiting for the checkpoint of step " << writing_step_ << " to be written, for " << waited.count()
              << " s now";
  }
}

BackgroundSaver::Outcome BackgroundSaver::Write(int64_t step, const CheckpointContent& content,
                                                bool failed_before) const {
  const absl::Status out_of_memory = OutOfMemory(step);  // made while there is memory
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  try {
    absl::Status unread;
    std::map<std::string, SavedTensor> checked;
    for (const auto& [name, tensor] : content.tensors) {
      checked[name] = {tensor.bytes, [&, &name = name, &tensor = tensor]() -> absl::StatusOr<Tensor> {
                         absl::StatusOr<Tensor> value = tensor.read();
                         unread = value.ok() ? CheckFinite(step, name, *value, content.advice) : value.status();
                         RETURN_IF_ERROR(unread);
                         return value;
                       }};
    }
    outcome.status = saver_->SaveInTurn(step, checked, Scalars(content.strings));
    outcome.storage_failed = !outcome.status.ok() && unread.ok();
  } catch (const std::bad_alloc&) {
    outcome.status = out_of_memory;
  } catch (const std::exception& error) {
    outcome.status = Unexpected(step, error);
  }
  if (outcome.status.ok()) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    logs::LogEvent("save", absl::StrFormat("saved the checkpoint of step %d in %.2f s", step, elapsed.count()),
                   {{"global_step", step}, {"seconds", elapsed.count()}, {"peak_memory_bytes", misc::PeakMemory()}});
  } else if (outcome.storage_failed && !failed_before) {
    LOG(WARNING) << "step " << step << ": " << outcome.status.message()
                 << "; the next save, if the run continues, tries again";
  }
  return outcome;
}

absl::Status BackgroundSaver::Save(int64_t step, const CheckpointContent& content) {
  const absl::Status before = Wait();
  if (!last_.storage_failed) RETURN_IF_ERROR(before);
  const bool failed_before = !before.ok();
  writing_step_ = step;
  const auto handover = std::make_shared<Handover>(most_held_);
  CheckpointContent taken = content;
  for (auto& [name, tensor] : taken.tensors) {
    tensor.read = [handover] { return handover->Take(); };
  }
  const absl::Status out_of_memory = OutOfMemory(step);  // made while there is memory
  const auto write = [this, step, handover, taken = std::move(taken), failed_before] {
    const absl::Cleanup close = [&] { handover->Close(); };
    return Write(step, taken, failed_before);
  };
  try {
    writing_ = std::async(std::launch::async, write);
  } catch (const std::system_error& error) {
    LOG(WARNING) << "no thread can start (" << error.code().message()
                 << "): training waits while the checkpoint of step " << step << " is written";
    Keep(Write(step, content, failed_before));
    return last_.storage_failed && !failed_before ? absl::OkStatus() : last_.status;
  }
  for (const auto& [name, tensor] : content.tensors) {
    if (!handover->WaitForRoom(tensor.bytes)) break;  // Wait tells why
    absl::StatusOr<Tensor> copy = out_of_memory;
    try {
      copy = tensor.read();
    } catch (const std::bad_alloc&) {  // then that is what the writer gets
    } catch (const std::exception& error) {
      copy = Unexpected(step, error);
    }
    const absl::Status status = copy.status();
    handover->Give(std::move(copy));
    RETURN_IF_ERROR(status);
  }
  return failed_before ? Wait() : absl::OkStatus();
}

}  // namespace official::train
