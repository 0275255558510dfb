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
  if (!writing_.valid()) return status_;
  if (writing_.wait_for(kSoon) != std::future_status::ready) WaitLong();
  status_ = writing_.get();
  if (status_.ok()) finished_step_ = writing_step_;
  return status_;
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

absl::Status BackgroundSaver::Write(int64_t step, const std::map<std::string, SavedTensor>& tensors,
                                    const std::map<std::string, std::string>& strings) const {
  const absl::Status out_of_memory = OutOfMemory(step);  // made while there is memory
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  try {
    status = saver_->SaveInTurn(step, tensors, strings);
  } catch (const std::bad_alloc&) {
    status = out_of_memory;
  } catch (const std::exception& error) {
    status = Unexpected(step, error);
  }
  if (status.ok()) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    logs::LogEvent("save", absl::StrFormat("saved the checkpoint of step %d in %.2f s", step, elapsed.count()),
                   {{"global_step", step}, {"seconds", elapsed.count()}, {"peak_memory_bytes", misc::PeakMemory()}});
  }
  return status;
}

absl::Status BackgroundSaver::SaveInThisThread(int64_t step, const CheckpointContent& content) {
  std::map<std::string, SavedTensor> checked;
  for (const auto& [name, tensor] : content.tensors) {
    checked[name] = {tensor.bytes, [&, &name = name, &tensor = tensor]() -> absl::StatusOr<Tensor> {
                       ASSIGN_OR_RETURN(Tensor value, tensor.read());
                       RETURN_IF_ERROR(CheckFinite(step, name, value, content.advice));
                       return value;
                     }};
  }
  status_ = Write(step, checked, content.strings);
  if (status_.ok()) finished_step_ = step;
  return status_;
}

absl::Status BackgroundSaver::Save(int64_t step, const CheckpointContent& content) {
  RETURN_IF_ERROR(Wait());
  writing_step_ = step;
  const auto handover = std::make_shared<Handover>(most_held_);
  std::map<std::string, SavedTensor> taken;
  for (const auto& [name, tensor] : content.tensors) {
    taken[name] = {tensor.bytes, [step, handover, name = name, advice = content.advice]() -> absl::StatusOr<Tensor> {
                     ASSIGN_OR_RETURN(Tensor next, handover->Take());
                     RETURN_IF_ERROR(CheckFinite(step, name, next, advice));
                     return next;
                   }};
  }
  const absl::Status out_of_memory = OutOfMemory(step);  // made while there is memory
  const auto write = [this, step, handover, taken = std::move(taken), strings = content.strings] {
    const absl::Cleanup close = [&] { handover->Close(); };
    return Write(step, taken, strings);
  };
  try {
    writing_ = std::async(std::launch::async, write);
  } catch (const std::system_error& error) {
    LOG(WARNING) << "no thread can start (" << error.code().message()
                 << "): training waits while the checkpoint of step " << step << " is written";
    return SaveInThisThread(step, content);
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
  return absl::OkStatus();
}

}  // namespace official::train
