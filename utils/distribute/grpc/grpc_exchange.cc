#include "utils/distribute/grpc/grpc_exchange.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/mailbox.h"
#include "utils/distribute/grpc/meeting.h"
#include "utils/distribute/grpc/peer.h"
#include "utils/distribute/grpc/quiet_grpc.h"
#include "utils/distribute/grpc/refusals.h"
#include "utils/distribute/grpc/server.h"
#include "utils/distribute/grpc/socket_address.h"
#include "utils/distribute/grpc/wire.h"

namespace official::distribute {
namespace {

class GrpcExchange : public Exchange {
 public:
  // `host` is null for workers other than the first.
  GrpcExchange(const ConnectOptions& options, std::unique_ptr<Refusals> refusals, std::unique_ptr<Mailbox> mailbox,
               std::unique_ptr<Host> host, std::unique_ptr<Server> server)
      : options_(options),
        number_(options.worker),
        refusals_(std::move(refusals)),
        mailbox_(std::move(mailbox)),
        host_(std::move(host)),
        server_(std::move(server)) {
    mailbox_->SetOnFailed([this] { EndWaits(); });
  }

  // What has been sent arrives at those who still want it.
  ~GrpcExchange() override {
    constexpr std::chrono::seconds kMostWait(5);
    constexpr std::chrono::milliseconds kLookEvery(5);
    const auto deadline = std::chrono::steady_clock::now() + kMostWait;
    Senders senders = TakeSenders();
    for (const auto& [key, sender] : senders) sender->SendEnd();
    for (const auto& [key, sender] : senders) {
      while (!mailbox_->IsGone(key.first) && std::chrono::steady_clock::now() < deadline) {
        if (sender->WaitUntilTaken(kLookEvery)) break;
      }
    }
    senders.clear();
    if (host_ != nullptr) {
      host_->Dismiss(finished_ ? absl::OutOfRangeError("the job was done without this worker")
                               : absl::UnavailableError("worker 0 has ended, or begins again"));
    }
    server_.reset();
  }

  // Opens the streams to all others. InvalidArgument, which the others are told, if one has a certificate that is not
  // accepted here.
  absl::Status Connect(const Job& job) {
    for (const auto& [worker, address] : job.addresses) {
      if (!address.empty()) {
        mailbox_->SetAddress(worker, address);
      } else {
        mailbox_->SetLost(worker, "it was not there at the start");
      }
      if (worker == number_) worker_ = num_workers();
      numbers_.push_back(worker);
    }
    job_ = job;
    std::map<int, std::vector<std::shared_ptr<grpc::Channel>>> connections;
    for (const auto& [w, address] : job.addresses) {
      if (w != number_ && TalksWith(w) && !address.empty()) connections[w] = OpenStreams(w, address);
    }
    server_->SetKey(job.key, job.incarnation);
    const auto end = Clock::now() + options_.start_timeout;
    for (const auto& [w, channels] : connections) {
      for (const auto& connection : channels) {
        const absl::Status connected = WaitForPeer(*connection, w, job.addresses.at(w), end);
        if (connected.ok()) continue;
        Fail(connected.message());
        return connected;
      }
    }
    return absl::OkStatus();
  }

  int worker() const override { return worker_; }
  int num_workers() const override { return static_cast<int>(numbers_.size()); }
  int NumberOf(int worker) const override { return numbers_[worker]; }
  std::string NameOf(int worker) const override { return mailbox_->NameOf(numbers_[worker]); }

  using Exchange::Send;
  absl::Status Send(int worker, Channel channel, absl::Span<const absl::string_view> parts) override {
    RETURN_IF_ERROR(Known(mailbox_->StateOf(numbers_[worker])));
    const std::shared_ptr<Sender> sender = SenderTo(numbers_[worker], channel);
    if (sender != nullptr) sender->SendFrame(parts);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Receive(int worker, Channel channel, std::chrono::seconds deadline) override {
    absl::StatusOr<std::string> frame = mailbox_->Receive(numbers_[worker], channel, deadline);
    if (!frame.ok()) RETURN_IF_ERROR(Known(frame.status()));
    return frame;
  }

  absl::Status WaitForReturn(int worker, std::chrono::milliseconds deadline) override {
    const absl::StatusOr<Mailbox::Returned> returned = mailbox_->WaitForReturn(numbers_[worker], deadline);
    if (!returned.ok()) return Known(returned.status());
    OpenStreams(returned->process, returned->address);
    return absl::OkStatus();
  }

  int incarnation() const override { return job_.incarnation; }

  absl::Status Check() override {
    for (const int w : numbers_) {
      if (w != number_) RETURN_IF_ERROR(Known(mailbox_->CheckOf(w)));
    }
    return absl::OkStatus();
  }

  void Fail(absl::string_view reason) override {
    const Failure failure = {std::string(reason)};
    if (mailbox_->SetFailed(number_, failure)) Tell(failure);
  }

  std::vector<int> Lost() override { return mailbox_->Lost(); }
  // Whose number takes part and is not lost is a second one of the same number, and waits in vain.
  std::vector<int> Late() override {
    std::vector<int> late = host_ == nullptr ? std::vector<int>() : host_->Late();
    if (late.empty()) return late;
    const std::vector<int> lost = mailbox_->Lost();
    const auto is_in = [](const std::vector<int>& list, int worker) {
      return std::find(list.begin(), list.end(), worker) != list.end();
    };
    std::erase_if(late, [&](int worker) { return is_in(numbers_, worker) && !is_in(lost, worker); });
    return late;
  }
  void Finish() override {
    finished_ = true;
    if (host_ != nullptr) host_->Finish();
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Senders = std::map<std::pair<int, Channel>, std::shared_ptr<Sender>>;

  // The workers of a job that goes on without one of them do not know each other, but for the first.
  bool TalksWith(int worker) const { return !IsDispensable(options_, number_) || !IsDispensable(options_, worker); }
  // Opens the streams to a process, instead of those to an earlier one, and returns their connections.
  std::vector<std::shared_ptr<grpc::Channel>> OpenStreams(Process to, const std::string& address) {
    std::vector<std::shared_ptr<grpc::Channel>> connections;
    Senders opened;
    const std::string& own_address = job_.addresses.at(number_);
    for (const Channel channel : {Channel::kSums, Channel::kValues}) {
      const FramesHello hello = {
          .from = {number_, job_.incarnation}, .to = to, .channel = channel, .address = own_address};
      const auto lost = [this, to](absl::string_view why) { mailbox_->SetLost(to, why); };
      connections.push_back(MakeChannel(address, options_));
      opened[{to.worker, channel}] = std::make_shared<Sender>(connections.back(), PackHello(hello, job_.key), lost);
    }
    const std::lock_guard<std::mutex> lock(senders_mutex_);
    for (auto& [key, sender] : opened) std::swap(senders_[key], sender);
    return connections;
  }
  // Returns null for a worker with which this one does not talk, or that has not come yet.
  std::shared_ptr<Sender> SenderTo(int worker, Channel channel) {
    const std::lock_guard<std::mutex> lock(senders_mutex_);
    const auto found = senders_.find({worker, channel});
    return found == senders_.end() ? nullptr : found->second;
  }
  Senders AllSenders() {
    const std::lock_guard<std::mutex> lock(senders_mutex_);
    return senders_;
  }
  // Returns all senders, and leaves none: another worker may fail while this exchange ends.
  Senders TakeSenders() {
    const std::lock_guard<std::mutex> lock(senders_mutex_);
    return std::exchange(senders_, {});
  }
  // Ends the waits of Send. One that begins later, to a sender that is opened then, knows of the failure before.
  void EndWaits() {
    const std::lock_guard<std::mutex> lock(senders_mutex_);
    for (const auto& [key, sender] : senders_) sender->EndWaits();
  }
  // Waits until there is a connection to a worker. OK also if the worker has gone meanwhile: Receive tells.
  absl::Status WaitForPeer(grpc::Channel& connection, int worker, const std::string& address, Clock::time_point end) {
    const auto begin = Clock::now();
    constexpr std::chrono::seconds kSurelyGone(1);
    for (;;) {
      const absl::Status connected = WaitUntilConnected(connection, TaskName(options_, worker), address, options_);
      if (!absl::IsUnavailable(connected)) return connected;
      if (mailbox_->IsGone(worker)) return absl::OkStatus();
      // It listened when it joined.
      if (Clock::now() - begin > kSurelyGone && NobodyListensAt(address)) {
        mailbox_->SetLost(worker, "it does not listen any more");
        return absl::OkStatus();
      }
      if (Clock::now() < end) continue;
      return absl::DeadlineExceededError(
          absl::StrCat(TaskName(options_, number_), " has had no connection with ", TaskName(options_, worker), " at ",
                       address, " for ", options_.start_timeout.count(),
                       " s: ", WhyNoConnection(TaskName(options_, worker), address, options_.tls).message(),
                       "; let all workers reach each other"));
    }
  }
  // Tells the others of a worker that is lost to this one, before they notice only that this one leaves.
  absl::Status Known(const absl::Status& status) {
    if (!absl::IsCancelled(status)) return status;
    const Failure failure = {std::string(status.message()), mailbox_->FirstLost().value_or(kNobody)};
    if (mailbox_->SetFailed(number_, failure)) Tell(failure);
    return status;
  }
  void Tell(const Failure& failure) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    const Senders senders = AllSenders();
    for (const auto& [key, sender] : senders) {
      if (key.second == Channel::kValues) sender->SendFailure(failure);
    }
    for (const auto& [key, sender] : senders) {
      if (key.second == Channel::kValues) sender->Flush(deadline);
    }
  }

  const ConnectOptions options_;
  const int number_;  // in the cluster
  Job job_;
  int worker_ = 0;            // the place of that among the numbers
  std::vector<int> numbers_;  // of all workers that take part, in ascending order
  bool finished_ = false;
  const std::unique_ptr<Refusals> refusals_;
  const std::unique_ptr<Mailbox> mailbox_;
  const std::unique_ptr<Host> host_;  // refuses those who come late
  std::unique_ptr<Server> server_;
  std::mutex senders_mutex_;
  Senders senders_;
};

// Frames of some megabytes come and go every step. Their memory stays with the process, rather than to be given back to
// the system and cleared by it each time.
void KeepMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that there can be
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

std::string WithPort(const std::string& address, int port) {
  return absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exchange>> MakeGrpcExchange(const ConnectOptions& options) {
  StartQuietGrpc();
  KeepMemory();
  std::string address = options.addresses[options.worker];
  const auto check_certificates = [&] { return options.tls ? CheckTlsFiles(*options.tls, address) : absl::OkStatus(); };
  if (!address.empty()) {
    RETURN_IF_ERROR(check_certificates());
    if (!options.bind_all) WaitForName(address, WhoseName::kThisWorkers, StartTimeLeft(options), options.log);
  }
  if (options.worker > 0) {
    WaitForName(options.addresses[0], WhoseName::kOtherWorkers, StartTimeLeft(options), options.log);
  }
  if (address.empty()) {
    ASSIGN_OR_RETURN(address, OwnAddressTowards(options.addresses[0]));
    RETURN_IF_ERROR(check_certificates());
  }
  const std::string bound = options.bind_all ? OnAllInterfaces(address) : address;
  auto refusals = std::make_unique<Refusals>(options.log);
  auto mailbox = std::make_unique<Mailbox>(options);
  auto host = options.worker == 0 ? std::make_unique<Host>(options, *mailbox, *refusals) : nullptr;
  ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Listen(bound, options, *mailbox, host.get(), *refusals));
  address = WithPort(address, server->port());
  ASSIGN_OR_RETURN(const Job job, host != nullptr ? host->Meet(address) : MeetAt(options, address));
  auto exchange = std::make_unique<GrpcExchange>(options, std::move(refusals), std::move(mailbox), std::move(host),
                                                 std::move(server));
  RETURN_IF_ERROR(exchange->Connect(job));
  return exchange;
}

}  // namespace official::distribute
