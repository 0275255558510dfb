#include "utils/run/standalone/serve.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/free_address.h"
#include "utils/distribute/cluster/tf_config.h"
#include "utils/distribute/grpc/connect_workers.h"
#include "utils/logs/log.h"
#include "utils/misc/stop_signals.h"
#include "utils/misc/text.h"
#include "utils/run/cluster_secrets.h"
#include "utils/run/standalone/job.h"
#include "utils/run/standalone/messages.h"
#include "utils/run/standalone/task_process.h"

namespace official::run {
namespace {

using Clock = std::chrono::steady_clock;
using distribute::Call;
using Message = std::vector<std::string>;

constexpr char kTfConfigWord[] = "tf_config";
constexpr std::chrono::milliseconds kLookEvery(50);  // for a signal, a message or output

absl::Status AddressError(absl::string_view value, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("flag --serve=", value, ": ", why));
}

// The address of this task in TF_CONFIG.
absl::StatusOr<std::string> AddressInTfConfig() {
  const char* const text = std::getenv("TF_CONFIG");
  if (text == nullptr) return AddressError(kTfConfigWord, "TF_CONFIG is not set; set it, or write host:port");
  ASSIGN_OR_RETURN(const std::optional<distribute::ClusterTask> config, distribute::ParseTfConfig(text));
  if (!config) return AddressError(kTfConfigWord, "\"cluster\" is not found in TF_CONFIG; write it, or host:port here");
  const auto& [cluster, task] = *config;
  if (cluster.NumTasks(task.type) > 0) return cluster.jobs.at(task.type)[task.index];
  return AddressError(kTfConfigWord, absl::StrCat("TF_CONFIG has no address for its task, ", NameOf(task),
                                                  "; write it into \"cluster\", or host:port here"));
}

absl::StatusOr<std::string> AddressOf(const std::string& value) {
  if (value == kTfConfigWord) return AddressInTfConfig();
  absl::StatusOr<std::string> address = distribute::CanonicalAddress(value);
  if (!address.ok()) return AddressError(value, address.status().message());
  return address;
}

// The next message; Cancelled if a signal comes before.
absl::StatusOr<Message> Await(Call& call, std::optional<std::chrono::seconds> timeout) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    absl::StatusOr<Message> message = call.Receive(kLookEvery);
    if (!absl::IsDeadlineExceeded(message.status())) return message;
    if (misc::StopSignalReceived() != 0) return absl::CancelledError("this server was stopped");
    if (timeout && Clock::now() - begin > *timeout) return absl::DeadlineExceededError("the client does not go on");
  }
}

// A task that runs for a client.
class RunningTask {
 public:
  RunningTask(Call& call, std::unique_ptr<TaskProcess> process) : call_(call), process_(std::move(process)) {}

  // Returns how the task ended, when it has.
  TaskProcess::End Wait() {
    for (;;) {
      if (const std::optional<TaskProcess::End> end = process_->Ended()) return *end;
      // A client that is slow makes the task wait, as a terminal would, unless it is to end.
      if (is_lost_ || kill_at_ || !call_.IsFull()) {
        Forward(process_->Read(kLookEvery));
        Listen(std::chrono::milliseconds(0));
      } else {
        Listen(kLookEvery);
      }
      if (misc::StopSignalReceived() != 0) Stop(SIGTERM);
      if (misc::TakeSaveRequest()) process_->Signal(SIGUSR2);
      if (kill_at_ && Clock::now() > *kill_at_) process_->Signal(SIGKILL);
    }
  }

 private:
  void Forward(const TaskProcess::Output& output) {
    if (!output.out.empty()) Send({kOutMessage, output.out});
    if (!output.err.empty()) Send({kErrMessage, output.err});
  }
  void Send(const Message& message) {
    if (is_lost_) return;
    const absl::Status sent = call_.Send(message);
    if (!sent.ok()) Lose(sent);
  }
  void Listen(std::chrono::milliseconds timeout) {
    if (is_lost_) return;
    const absl::StatusOr<Message> message = call_.Receive(timeout);
    int signal = 0;
    if (message.ok() && *message == Message{kSaveMessage}) process_->Signal(SIGUSR2);
    if (message.ok() && message->size() == 2 && (*message)[0] == kStopMessage &&
        absl::SimpleAtoi((*message)[1], &signal)) {
      // By that of the client, which tells by it that the task did not end for another reason.
      Stop(signal == SIGINT || signal == SIGUSR1 ? signal : SIGTERM);
    }
    if (!message.ok() && !absl::IsDeadlineExceeded(message.status())) Lose(message.status());
  }
  void Lose(const absl::Status& why) {
    LOG(WARNING) << "the client is lost (" << why.message() << "); its task is stopped";
    is_lost_ = true;
    Stop(SIGTERM);
  }
  void Stop(int signal) {
    if (kill_at_) return;
    kill_at_ = Clock::now() + std::chrono::seconds(kStopWithinSeconds);
    process_->Signal(signal);
  }

  Call& call_;
  const std::unique_ptr<TaskProcess> process_;
  bool is_lost_ = false;                      // the client
  std::optional<Clock::time_point> kill_at_;  // once the task was asked to stop
};

class Server {
 public:
  Server(const flags::CommandLine& command_line, const Config& config) : command_line_(command_line), config_(config) {}

  // Serves one client, who is told what goes wrong.
  void Serve(Call& call) {
    const std::chrono::seconds timeout(config_.cluster.start_timeout_secs);
    const absl::StatusOr<Message> offer = Await(call, timeout);
    if (!offer.ok()) return Tell(offer.status());
    const absl::StatusOr<Job> job = UnpackJob(*offer);
    const absl::Status allowed = job.ok() ? CheckJob(*job, command_line_) : job.status();
    if (!allowed.ok()) return Refuse(call, kRefusedMessage, allowed);
    const absl::StatusOr<int> port = distribute::FreePort();
    if (!port.ok()) return Refuse(call, kFailedMessage, port.status());
    if (!call.Send({kAcceptedMessage, absl::StrCat(*port)}).ok()) return;
    LOG(INFO) << "has accepted a task, and waits for the client to start it";
    // The client may wait for other servers for as long as its flags say. If it is lost, the connection tells.
    const absl::StatusOr<Message> start = Await(call, std::nullopt);
    if (!start.ok()) return Tell(start.status());
    if (start->size() != 2 || (*start)[0] != kStartMessage) {
      return Tell(absl::InvalidArgumentError("what it sends does not start the task"));
    }
    Run(call, *job, (*start)[1]);
  }

 private:
  void Run(Call& call, const Job& job, const std::string& tf_config) {
    const std::vector<std::string> arguments = ArgumentsOf(job, command_line_);
    LOG(INFO) << "runs a task: TF_CONFIG='" << OneLine(tf_config) << "' " << job.program << " "
              << OneLine(absl::StrJoin(arguments, " "));
    absl::StatusOr<std::unique_ptr<TaskProcess>> process = TaskProcess::Start(job.program, arguments, tf_config);
    if (!process.ok()) return Refuse(call, kFailedMessage, process.status());
    const TaskProcess::End end = RunningTask(call, *std::move(process)).Wait();
    const bool by_signal = end.signal != 0;
    const std::string number = absl::StrCat(by_signal ? end.signal : end.status);
    LOG(INFO) << "the task ended " << (by_signal ? "by signal " : "with status ") << number;
    call.Send({by_signal ? kSignalMessage : kExitMessage, number}).IgnoreError();
  }
  static void Refuse(Call& call, const std::string& message, const absl::Status& why) {
    Tell(why);
    call.Send({message, std::string(why.message())}).IgnoreError();
  }
  static void Tell(const absl::Status& why) { LOG(WARNING) << "no task is run for a client: " << why.message(); }

  const flags::CommandLine& command_line_;
  const Config& config_;
};

}  // namespace

absl::Status Serve(const flags::CommandLine& command_line, const Config& config) {
  if (!command_line.words().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the word '", misc::Printable(command_line.words()[0]),
                                                   "' is no task, and --serve takes them from clients; leave it out"));
  }
  ASSIGN_OR_RETURN(const std::string address, AddressOf(*config.cluster.serve));
  distribute::ConnectOptions options;
  options.addresses = {address};
  options.bind_all = config.cluster.listen_on_all_interfaces;
  const flags::ClusterConfig& cluster = config.cluster;
  if (!cluster.run_secret_file && !cluster.tls_cert && !cluster.insecure_cluster) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--serve=", *cluster.serve, ": who reaches ", address,
        ", as other users of this machine do, could run tasks in your name; give the server and its clients "
        "a file with the same secret, --run_secret_file=FILE, or certificates, --tls_cert and so on, or "
        "where you trust all of them --insecure_cluster"));
  }
  if (cluster.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers=", *cluster.workers, ": the clients of --serve say what the cluster is; leave it out"));
  }
  ASSIGN_OR_RETURN(options.secret, SecretFor(cluster, {{"this server", address}}));
  ASSIGN_OR_RETURN(options.tls, ReadTlsFiles(config.cluster));
  options.start_timeout = std::chrono::seconds(config.cluster.start_timeout_secs);
  options.peer_timeout = std::chrono::seconds(config.cluster.peer_timeout_secs);
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  ASSIGN_OR_RETURN(const std::unique_ptr<distribute::CallServer> calls, distribute::ListenForCalls(address, options));
  LOG(INFO) << "waits for clients at " << address;
  std::signal(SIGCHLD, SIG_DFL);  // ignored, the ends of tasks would not be told
  const misc::StopSignals signals;
  Server server(command_line, config);
  while (misc::StopSignalReceived() == 0) {
    if (const std::unique_ptr<Call> call = calls->Accept(kLookEvery)) {
      misc::TakeSaveRequest();  // one that came while there was no task
      server.Serve(*call);
    }
  }
  return absl::CancelledError(absl::StrCat("the server was stopped by signal ", misc::StopSignalReceived()));
}

}  // namespace official::run
