// CallWatch: looks after calls of a plugin, which may never return. A thread of its own tells of a call that takes
// long, again and again, and ends the process when one exceeds its deadline: nothing takes another thread out of a
// call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::compute {

// PjrtWaits: how long what one waits for in a plugin may take, and what is done then.
struct PjrtWaits {
  std::chrono::seconds deadline{600};            // of every call, run and copy, but for:
  std::chrono::seconds compile_deadline{3600};   // the compilation of a program
  std::string set_by = {}, compile_set_by = {};  // what the user sets these by; "": they cannot be set
  std::chrono::seconds tell_every{60};
  // Told what has not been done yet, in one line; by default on standard error.
  std::function<void(const std::string& message)> tell = {};
  // Ends the process, DeadlineExceeded; by default with the message on standard error and status 1.
  std::function<void(const absl::Status& status)> end = {};
};

class CallWatch {
 public:
  enum class Kind { kCall, kCompile };

  // `plugin` is its path.
  CallWatch(const std::string& plugin, PjrtWaits waits);
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // A call for `what`, such as "running a program", is under way as long as this lives.
  class Call {
   public:
    Call(CallWatch& watch, absl::string_view what, Kind kind = Kind::kCall) : Call(watch, what, kind, /*ends=*/true) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class CallWatch;
    Call(CallWatch& watch, absl::string_view what, Kind kind, bool ends);

    CallWatch& watch_;
    const absl::string_view what_;
    const Kind kind_;
    const bool ends_;                  // the process
    std::chrono::seconds waited_{-1};  // the first second is not a whole one
  };
  // A wait that has an end of its own: it is told of, too.
  Call Wait(absl::string_view what) { return {*this, what, Kind::kCall, /*ends=*/false}; }

  std::chrono::seconds deadline() const { return waits_.deadline; }
  // DeadlineExceeded: what the plugin has not done in time, and what sets how long it may take.
  absl::Status PastDeadline(absl::string_view what, Kind kind = Kind::kCall) const;

 private:
  // Told: what there is to say after another second.
  struct Told {
    std::vector<std::string> messages;
    absl::Status end;  // OK: no call has exceeded its deadline
  };

  std::chrono::seconds DeadlineOf(Kind kind) const;
  const std::string& SetBy(Kind kind) const;
  Told AddSecond();
  void Run(const std::stop_token& stop);

  const std::string plugin_;
  PjrtWaits waits_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Call*> calls_;
  std::jthread thread_;  // last: starts when all else is there
};

}  // namespace official::compute
