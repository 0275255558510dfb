// How the workers of a job find each other: all join at worker 0, which tells them who is where when the last one is
// there, or why they cannot train together.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/grpc/connect_options.h"
#include "utils/distribute/grpc/mailbox.h"
#include "utils/distribute/grpc/refusals.h"
#include "utils/distribute/grpc/server.h"

namespace official::distribute {

// What all know after the meeting.
struct Job {
  // Of the workers that take part, by their numbers in the cluster. Empty: it may come later.
  std::map<int, std::string> addresses;
  std::string key;      // of the streams of frames
  int incarnation = 0;  // of this process
};

// The meeting, as worker 0 holds it.
class Host : public JoinHandler {
 public:
  // `refusals` are those of the server, for messages. `mailbox` knows which workers are gone.
  Host(const ConnectOptions& options, Mailbox& mailbox, Refusals& refusals);
  // Refuses those who still wait.
  ~Host() override;

  absl::StatusOr<std::string> Challenge(const std::string& first, std::string& state) override;
  absl::Status Join(const std::string& second, const std::string& state, const void* id,
                    std::function<void(std::string)> answer) override;
  bool Leave(const void* id) override;
  void Done(const void* id) override;

  // Waits for all, and tells them; `address` is worker 0's. ConnectOptions::elastic says when it goes on without some.
  // A job that can do without a worker begins without it after half of the start timeout. InvalidArgument, for all of
  // them, if two workers differ in a fact; in a job that begins again, only for the one that differs from this one.
  // DeadlineExceeded names those that have not come.
  absl::StatusOr<Job> Meet(const std::string& address);

  // The workers that came after the meeting. In an elastic job they wait until they are dismissed; in a job that goes
  // on without a worker, a new process of it takes part at once when the one before is gone; else they are refused,
  // Unavailable.
  std::vector<int> Late();
  // From now on nobody takes part any more: OutOfRange.
  void Finish();
  // Tells them why the wait is over: Unavailable lets them join again.
  void Dismiss(const absl::Status& why);

 private:
  struct Guest {
    const void* id;
    std::string address;
    std::vector<std::string> facts;  // names and values in turn
    std::function<void(std::string)> answer;
  };
  absl::Status CompareFacts(int worker, const Guest& guest) const;
  // Lets a guest take part that comes after the meeting, and returns its answer; AlreadyExists if the process of this
  // worker before it is not gone.
  absl::StatusOr<std::string> TakeBack(int worker, const Guest& guest);
  std::string Missing() const;
  // True if it is known that nobody else comes, or not soon.
  bool IsComplete() const;
  // Waits until that is so, and returns OK, or why the meeting has failed.
  absl::Status WaitForGuests(std::unique_lock<std::mutex>& lock);
  bool AreEnough() const;
  // Sends the guests their answer, and waits until it has arrived.
  void Answer(const std::map<int, Guest>& guests, const std::string& answer);

  const ConnectOptions options_;
  Mailbox& mailbox_;
  Refusals& refusals_;
  const std::string job_;                 // random
  std::map<int, std::string> addresses_;  // of all, after the meeting
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Guest> guests_;     // after the meeting those who came late
  std::set<const void*> answered_;  // guests whose answer is on its way
  std::set<int> known_;             // who met, and who came late and was told of
  bool over_ = false;               // the meeting
  bool finished_ = false;           // the job
  bool dismissed_ = false;          // nobody may wait for the next one any more
};

// The same of another worker, which listens at `address`. OutOfRange if the job was done while it waited to take part.
absl::StatusOr<Job> MeetAt(const ConnectOptions& options, const std::string& address);

}  // namespace official::distribute
