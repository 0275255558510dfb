#include "utils/compute/pjrt/call_watch.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

void PrintLine(const std::string& message) { std::cerr << absl::StrCat(message, "\n") << std::flush; }

}  // namespace

CallWatch::Call::Call(CallWatch& watch, absl::string_view what, Kind kind, bool ends)
    : watch_(watch), what_(what), kind_(kind), ends_(ends) {
  const std::lock_guard<std::mutex> lock(watch_.mutex_);
  watch_.calls_.push_back(this);
  if (watch_.calls_.size() == 1) watch_.changed_.notify_one();
}

CallWatch::Call::~Call() {
  const std::lock_guard<std::mutex> lock(watch_.mutex_);
  std::erase(watch_.calls_, this);
}

CallWatch::CallWatch(const std::string& plugin, PjrtWaits waits)
    : plugin_(absl::StrCat("the PJRT plugin ", plugin)), waits_(std::move(waits)) {
  if (!waits_.tell) waits_.tell = PrintLine;
  if (!waits_.end) {
    waits_.end = [](const absl::Status& status) {
      PrintLine(std::string(status.message()));
      std::_Exit(EXIT_FAILURE);
    };
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

std::chrono::seconds CallWatch::DeadlineOf(Kind kind) const {
  return kind == Kind::kCompile ? waits_.compile_deadline : waits_.deadline;
}

const std::string& CallWatch::SetBy(Kind kind) const {
  return kind == Kind::kCompile ? waits_.compile_set_by : waits_.set_by;
}

absl::Status CallWatch::PastDeadline(absl::string_view what, Kind kind) const {
  return absl::DeadlineExceededError(
      absl::StrCat(what, ": ", plugin_, " has not done this within ", DeadlineOf(kind).count(), " s",
                   SetBy(kind).empty() ? "" : absl::StrCat("; ", SetBy(kind), " sets how long it may take")));
}

CallWatch::Told CallWatch::AddSecond() {
  Told told;
  for (Call* const call : calls_) {
    const std::chrono::seconds waited = ++call->waited_, deadline = DeadlineOf(call->kind_);
    if (call->ends_ && waited == deadline) {
      told.end = PastDeadline(call->what_, call->kind_);
    } else if (waited.count() > 0 && waited % waits_.tell_every == std::chrono::seconds(0)) {
      told.messages.push_back(absl::StrCat(
          call->what_, ": ", plugin_, " has not done this for ", waited.count(), " s; the run ends after ",
          deadline.count(), " s", SetBy(call->kind_).empty() ? "" : absl::StrCat(" (", SetBy(call->kind_), ")")));
    }
  }
  return told;
}

void CallWatch::Run(const std::stop_token& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !calls_.empty(); })) {
    // In slices, so that a process that was stopped for a while does not end.
    changed_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
    if (stop.stop_requested()) return;
    const Told told = AddSecond();
    if (told.messages.empty() && told.end.ok()) continue;
    lock.unlock();
    for (const std::string& message : told.messages) waits_.tell(message);
    if (!told.end.ok()) waits_.end(told.end);
    lock.lock();
  }
}

}  // namespace official::compute
