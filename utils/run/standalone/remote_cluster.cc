#include "utils/run/standalone/remote_cluster.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/cluster_spec.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/distribute/cluster/tf_config.h"
#include "utils/distribute/grpc/connect_workers.h"
#include "utils/logs/log.h"
#include "utils/misc/exit_code.h"
#include "utils/misc/stop_signals.h"
#include "utils/misc/text.h"
#include "utils/run/cluster_secrets.h"
#include "utils/run/standalone/job.h"
#include "utils/run/standalone/messages.h"

namespace official::run {
namespace {

using Clock = std::chrono::steady_clock;
using Message = std::vector<std::string>;

constexpr std::chrono::milliseconds kLookEvery(50);
constexpr char kStartAgain[] = "; start all again, they continue from the last checkpoint";
// A server kills a task that does not stop, and says so.
constexpr std::chrono::seconds kStopWithin(kStopWithinSeconds + 15);

// A task and the call to its server.
struct RemoteTask {
  distribute::Task task;
  std::string name, address;
  bool is_chief = false;
  bool is_dispensable = false;  // the others train on without it: beside parameter servers, and in an elastic run
  std::unique_ptr<distribute::Call> call;
  std::string port;     // that the server has found for the task
  absl::Status status;  // why it was not accepted
};

std::string ServerOf(const RemoteTask& task) { return absl::StrCat("the server of ", task.name); }

// How much an outcome says about why a run has failed.
enum class Blame {
  kNone,     // the task is done
  kStopped,  // it was stopped from here
  kOthers,   // it says that another one failed
  kLost,     // it was killed, or its server is lost
  kOwn,      // it had an error of its own
};

// How a task ended: if others go on without one that is lost, as if it were done.
struct Outcome {
  absl::Status status;
  Blame blame = Blame::kNone;
};

// What a process with this exit status would have returned.
absl::Status StatusOfExit(int exit_status, const std::string& message) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kOk, absl::StatusCode::kInvalidArgument, absl::StatusCode::kDataLoss,
        absl::StatusCode::kNotFound, absl::StatusCode::kUnavailable, absl::StatusCode::kFailedPrecondition,
        absl::StatusCode::kAborted, absl::StatusCode::kPermissionDenied, absl::StatusCode::kCancelled}) {
    if (misc::ExitCode(absl::Status(code, message)) == exit_status) return absl::Status(code, message);
  }
  return absl::UnknownError(message);
}

// Writes the output of all tasks, by whole lines.
class Printer {
 public:
  Printer(std::ostream& results, bool as_json) : results_(results), as_json_(as_json) {}

  void PrintResults(const std::string& text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    results_ << text << std::flush;
  }
  void PrintLog(const std::string& name, absl::string_view text) {
    absl::ConsumeSuffix(&text, "\n");
    std::string lines;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (as_json_ && absl::ConsumePrefix(&line, "{")) {
        absl::StrAppend(&lines, "{\"of_task\": \"", name, "\", ", line, "\n");
      } else {
        absl::StrAppend(&lines, name, ": ", line, "\n");
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    std::cerr << lines << std::flush;
  }

 private:
  std::ostream& results_;
  const bool as_json_;
  std::mutex mutex_;
};

class Client {
 public:
  Client(const Config& config, Job job, distribute::ClusterSpec cluster, std::ostream& results)
      : config_(config),
        job_(std::move(job)),
        cluster_(std::move(cluster)),
        printer_(results, config.base.log_format == "json") {
    for (const auto& [type, addresses] : cluster_.jobs) {
      for (int i = 0; i < static_cast<int>(addresses.size()); ++i) {
        const distribute::Task task = {type, i};
        tasks_.push_back({.task = task,
                          .name = NameOf(task),
                          .address = addresses[i],
                          .is_chief = IsChief(cluster_, task),
                          .is_dispensable = IsDispensable(task),
                          .call = nullptr,
                          .port = "",
                          .status = {}});
      }
    }
  }

  absl::Status Run() {
    RETURN_IF_ERROR(ReadSecrets());
    ForEach([this](RemoteTask& task) {
      task.status = Offer(task);
      if (!task.status.ok()) gives_up_ = true;
    });
    RETURN_IF_ERROR(FirstError());
    LOG(INFO) << "all " << tasks_.size() << " servers have accepted their tasks";
    SetPorts();
    const misc::StopSignals signals;
    ForEach([this](RemoteTask& task) {
      Note(task, Follow(task));
      task.call = nullptr;  // the server is free again
    });
    const int signal = misc::StopSignalReceived();
    if (signal == 0 || worst_.blame == Blame::kOwn) return worst_.status;
    return absl::CancelledError(absl::StrCat("all tasks were stopped by signal ", signal));
  }

 private:
  bool IsDispensable(const distribute::Task& task) const {
    const bool others_go_on =
        cluster_.NumTasks(distribute::kPs) > 0 || config_.cluster.on_peer_loss == flags::OnPeerLoss::kRestart;
    return others_go_on && task.type == distribute::kWorker && !IsChief(cluster_, task);
  }

  absl::Status ReadSecrets() {
    std::vector<distribute::PlacedAddress> listeners;
    for (const RemoteTask& task : tasks_) listeners.push_back({ServerOf(task), task.address});
    ASSIGN_OR_RETURN(connect_.secret, SecretFor(config_.cluster, listeners));
    ASSIGN_OR_RETURN(connect_.tls, ReadTlsFiles(config_.cluster));
    connect_.start_timeout = std::chrono::seconds(config_.cluster.start_timeout_secs);
    connect_.peer_timeout = std::chrono::seconds(config_.cluster.peer_timeout_secs);
    connect_.log = [](const std::string& line) { LOG(INFO) << line; };
    return absl::OkStatus();
  }

  // Calls a function for each task, in a thread of its own.
  void ForEach(const std::function<void(RemoteTask&)>& function) {
    std::vector<std::thread> threads;
    for (RemoteTask& task : tasks_) threads.emplace_back([&] { function(task); });
    for (std::thread& thread : threads) thread.join();
  }

  // The error of the first server that refuses its task or is not there, but for those that were not waited for.
  absl::Status FirstError() const {
    for (const RemoteTask& task : tasks_) {
      if (!task.status.ok() && !absl::IsCancelled(task.status)) return task.status;
    }
    return absl::OkStatus();
  }

  // Returns when the server has accepted the task.
  absl::Status Offer(RemoteTask& task) {
    ASSIGN_OR_RETURN(task.call, distribute::CallServerOf({.name = ServerOf(task),
                                                          .address = task.address,
                                                          .connect = connect_,
                                                          .gives_up = [this] { return gives_up_.load(); }}));
    const std::string name = absl::StrCat(ServerOf(task), " at ", task.address);
    // A server that refuses the client says so before the job is sent, or after.
    const absl::Status sent = task.call->Send(PackJob(job_));
    const auto answers_within = std::max<std::chrono::milliseconds>(StartTimeLeft(connect_), connect_.peer_timeout);
    const absl::StatusOr<Message> answer = sent.ok() ? task.call->Receive(answers_within) : sent;
    if (absl::IsUnavailable(answer.status())) {
      return absl::UnavailableError(absl::StrCat(name, " was lost (", answer.status().message(), ")"));
    }
    if (!answer.ok()) {
      return absl::Status(answer.status().code(), absl::StrCat(name, " ", answer.status().message()));
    }
    int port = 0;
    if (answer->size() != 2) return absl::UnavailableError(absl::StrCat(name, " sends what is no message"));
    if ((*answer)[0] == kAcceptedMessage && absl::SimpleAtoi((*answer)[1], &port) && port > 0 && port < 1 << 16) {
      task.port = absl::StrCat(port);
      return absl::OkStatus();
    }
    const std::string why = OneLine((*answer)[1]);
    if ((*answer)[0] == kRefusedMessage) {
      return absl::InvalidArgumentError(absl::StrCat(name, " refuses its task: ", why));
    }
    return absl::UnavailableError(absl::StrCat(name, " cannot run its task: ", why));
  }

  // The tasks reach each other where their servers are, at the ports that these have found.
  void SetPorts() {
    for (const RemoteTask& task : tasks_) {
      const std::string host = task.address.substr(0, task.address.rfind(':'));
      cluster_.jobs[task.task.type][task.task.index] = absl::StrCat(host, ":", task.port);
    }
  }

  // Starts a task and prints what it prints. Returns how it ended.
  Outcome Follow(RemoteTask& task) {
    const auto lost = [&](absl::string_view why) {
      return LostOutcome(task, absl::StrCat(ServerOf(task), " at ", task.address, " was lost (", why, ")"));
    };
    absl::Status sent = task.call->Send({kStartMessage, distribute::TfConfigOf({cluster_, task.task})});
    if (!sent.ok()) return lost(sent.message());
    std::optional<Clock::time_point> end_by;
    int stopped_by = 0;  // the signal that was sent to it
    for (;;) {
      if (const int signal = StopSignal(); signal != 0 && stopped_by == 0) {
        stopped_by = signal;
        end_by = Clock::now() + kStopWithin;
        task.call->Send({kStopMessage, absl::StrCat(signal)}).IgnoreError();
      }
      // The other tasks save with the chief.
      if (task.is_chief && misc::TakeSaveRequest()) task.call->Send({kSaveMessage}).IgnoreError();
      const absl::StatusOr<Message> message = task.call->Receive(kLookEvery);
      if (end_by && Clock::now() > *end_by) return lost("it does not stop its task");
      if (absl::IsDeadlineExceeded(message.status())) continue;
      if (!message.ok()) return lost(message.status().message());
      if (message->size() != 2) return lost("it sends what is no message");
      const int stop = stopped_by != 0 ? stopped_by : StopSignal();
      if (const std::optional<Outcome> end = Take(task, (*message)[0], (*message)[1], stop)) return *end;
    }
  }

  static Outcome LostOutcome(const RemoteTask& task, const std::string& what) {
    if (task.is_dispensable) {
      LOG(WARNING) << what << "; the others train on without it";
      return {};
    }
    const absl::Status status = absl::CancelledError(absl::StrCat(what, kStartAgain));
    LOG(ERROR) << status.message();
    return {status, Blame::kLost};
  }

  // Takes a message of a task's server. `stop` is the signal that stops the task from here, or 0. Returns how it ended,
  // if the message is the last one.
  std::optional<Outcome> Take(const RemoteTask& task, const std::string& kind, const std::string& text, int stop) {
    const std::string name = absl::StrCat(task.name, " at ", task.address);
    int number = 0;
    if (kind == kOutMessage) {
      printer_.PrintResults(text);
      return std::nullopt;
    }
    if (kind == kErrMessage) {
      printer_.PrintLog(task.name, text);
      return std::nullopt;
    }
    if (kind == kExitMessage && absl::SimpleAtoi(text, &number)) {
      const absl::Status status = StatusOfExit(number, absl::StrCat(name, " ended with status ", number));
      return Outcome{status, status.ok() ? Blame::kNone : absl::IsCancelled(status) ? Blame::kOthers : Blame::kOwn};
    }
    if (kind == kSignalMessage && absl::SimpleAtoi(text, &number)) {
      const std::string what = absl::StrCat(name, " was ended by signal ", number, " (", strsignal(number), ")");
      return number == stop ? Outcome{absl::CancelledError(what), Blame::kStopped} : LostOutcome(task, what);
    }
    return Outcome{absl::UnavailableError(absl::StrCat(name, " was not started: ", text)), Blame::kOwn};
  }

  // The signal that stops all tasks; 0 if they are to go on.
  int StopSignal() const {
    const int signal = misc::StopSignalReceived();
    return signal != 0 ? signal : chief_failed_ ? SIGTERM : 0;
  }

  // Notes how a task ended.
  void Note(const RemoteTask& task, Outcome outcome) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (task.is_chief && !outcome.status.ok()) chief_failed_ = true;
    if (outcome.blame > worst_.blame) worst_ = std::move(outcome);
  }

  const Config& config_;
  const Job job_;
  distribute::ClusterSpec cluster_;
  Printer printer_;
  distribute::ConnectOptions connect_;
  std::vector<RemoteTask> tasks_;
  std::atomic<bool> gives_up_ = false;      // a server refuses its task, and the others are not waited for
  std::atomic<bool> chief_failed_ = false;  // all tasks are stopped
  std::mutex mutex_;
  Outcome worst_;
};

}  // namespace

absl::Status RunOnRemoteCluster(const flags::CommandLine& command_line, const Config& config, std::ostream& results) {
  const auto environment = [](const char* name) { return std::getenv(name); };
  ASSIGN_OR_RETURN(const std::optional<distribute::Launch> launch,
                   distribute::ReadLauncherEnv(environment, config.cluster.workers.value_or("")));
  if (launch) {
    return absl::InvalidArgumentError(absl::StrCat(launch->launcher,
                                                   " describes a cluster, and --remote_cluster another one; start the "
                                                   "client without the former: ",
                                                   launch->alone));
  }
  const std::string& text = *config.cluster.remote_cluster;
  absl::StatusOr<distribute::ClusterSpec> cluster = distribute::ParseCluster(text);
  if (!cluster.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --remote_cluster=", misc::Printable(text), ": ", cluster.status().message()));
  }
  ASSIGN_OR_RETURN(Job job, JobOf(command_line));
  return Client(config, std::move(job), *std::move(cluster), results).Run();
}

}  // namespace official::run
