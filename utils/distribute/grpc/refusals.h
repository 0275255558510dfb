// Refusals: counts the connections and calls that a worker's server refuses, and tells of them at a bounded rate,
// whatever strangers send.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace official::distribute {

// This is safe for use by several threads.
class Refusals {
 public:
  enum class Reason {
    kNoWorker,       // its first message is none of a worker of this run
    kWrongSecret,    // it does not know the secret of the run
    kWrongKey,       // its hello was made with another key: that of another job, which may be an earlier one
    kNotExpected,    // a hello with the right key, of a stream that is there already or that nobody may open
    kUnknownMethod,  // a call of a method that no worker serves
    kTooMuch,        // it has sent more than a hello is long
    kTooSlow,        // it has not proven in time that it is a worker
    kTooMany,        // many others came after it, which have not proven it either
    kGone,           // its connection ended before: no HTTP/2, no handshake of TLS, no accepted certificate
  };

  // `log` gets a line about the first refusal, and then at most one in ten seconds; it may be empty.
  explicit Refusals(std::function<void(const std::string& line)> log) : log_(std::move(log)) {}
  // Logs the numbers of all refusals, by reason, if there were any.
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  // `peer` is the address and port of who was refused.
  void Add(Reason reason, const std::string& peer);

  // Returns "refused 3 connections and calls, the last from 10.0.0.7: <reason>"; empty if there were none.
  std::string Summary();

 private:
  using Clock = std::chrono::steady_clock;
  std::string SummaryLocked() const;

  const std::function<void(const std::string& line)> log_;
  std::mutex mutex_;
  std::array<int64_t, 9> counts_ = {};  // by reason
  Reason last_reason_ = Reason::kNoWorker;
  std::string last_host_;
  Clock::time_point next_line_ = {};
};

}  // namespace official::distribute
