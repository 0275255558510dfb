#include "utils/distribute/grpc/meeting.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/peer.h"

namespace official::distribute {
namespace {

constexpr char kProtocol[] = "official workers 1";
constexpr size_t kMostNamed = 10;

// Worker 0's proof towards a worker, and that of a worker.
std::string HostProof(const std::string& secret, const std::string& host_nonce, const std::string& nonce) {
  return Proof(secret, {"host", host_nonce, nonce});
}
std::string GuestProof(const std::string& secret, const std::string& worker, const std::string& host_nonce,
                       const std::string& nonce) {
  return Proof(secret, {"guest", worker, host_nonce, nonce});
}
std::string KeyOf(const std::string& secret, const std::string& job) { return Proof(secret, {"job", job}); }

std::vector<std::string> FlatFacts(const ConnectOptions& options) {
  std::vector<std::string> flat;
  for (const auto& [name, value] : options.facts) {
    flat.push_back(name);
    flat.push_back(value);
  }
  return flat;
}

// The answer to a worker: the code of a status, then its message, or the job and all addresses.
std::string PackAnswer(const absl::StatusOr<Job>& result, const std::string& job) {
  std::vector<std::string> strings = {absl::StrCat(static_cast<int>(result.status().code()))};
  if (!result.ok()) {
    strings.emplace_back(result.status().message());
  } else {
    strings.push_back(job);
    strings.insert(strings.end(), result->addresses.begin(), result->addresses.end());
  }
  return PackStrings(strings);
}

absl::StatusOr<Job> UnpackAnswer(const std::string& message, const ConnectOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> strings, UnpackStrings(message));
  int code = -1;
  if (strings.size() < 2 || !absl::SimpleAtoi(strings[0], &code)) {
    return absl::InternalError("worker 0 has answered what is no answer");
  }
  if (code != 0) return absl::Status(static_cast<absl::StatusCode>(code), strings[1]);
  if (strings.size() != options.addresses.size() + 2)
    return absl::InternalError("worker 0 has another number of workers");
  return Job{{strings.begin() + 2, strings.end()}, KeyOf(options.secret, strings[1])};
}

}  // namespace

Host::Host(const ConnectOptions& options, Refusals& refusals)
    : options_(options), refusals_(refusals), job_(RandomBytes()) {}

Host::~Host() {
  std::map<int, Guest> guests;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    guests.swap(guests_);
  }
  for (const auto& [worker, guest] : guests) {
    guest.answer(PackAnswer(absl::CancelledError("worker 0 has ended before all workers were there"), job_));
  }
}

absl::StatusOr<std::string> Host::Challenge(const std::string& first, std::string& state) {
  ASSIGN_OR_RETURN(const std::vector<std::string> strings, UnpackStrings(first));
  if (strings.size() != 2 || strings[0] != kProtocol)
    return absl::InvalidArgumentError("this is no worker of this version");
  const std::string nonce = RandomBytes();
  state = PackStrings({nonce, strings[1]});
  return PackStrings({nonce, HostProof(options_.secret, nonce, strings[1])});
}

absl::Status Host::Join(const std::string& second, const std::string& state, const void* id,
                        std::function<void(std::string)> answer) {
  ASSIGN_OR_RETURN(std::vector<std::string> strings, UnpackStrings(second));
  ASSIGN_OR_RETURN(const std::vector<std::string> nonces, UnpackStrings(state));
  int worker = 0;
  if (strings.size() < 4 || !absl::SimpleAtoi(strings[0], &worker))
    return absl::InvalidArgumentError("this is no worker");
  if (!SameProof(strings[1], GuestProof(options_.secret, strings[0], nonces[0], nonces[1]))) {
    return absl::PermissionDeniedError(
        "the secret is another one than worker 0's; give all the same --run_secret_file");
  }
  const int num_workers = static_cast<int>(options_.addresses.size());
  if (strings[2] != absl::StrCat(num_workers) || worker <= 0 || worker >= num_workers) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " of ", strings[2],
                                                   " workers cannot join a run of ", num_workers,
                                                   "; tell all of them the same cluster"));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return absl::UnavailableError("it trains with the workers that were there before");
  if (guests_.count(worker) > 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a worker ", worker, " already; give each worker a number of its own"));
  }
  guests_[worker] = {id, strings[3], {strings.begin() + 4, strings.end()}, std::move(answer)};
  changed_.notify_all();
  return absl::OkStatus();
}

bool Host::Leave(const void* id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::erase_if(guests_, [id](const auto& guest) { return guest.second.id == id; }) > 0;
}

void Host::Done(const void* id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answered_.erase(id);
  changed_.notify_all();
}

std::string Host::Missing() const {
  std::vector<std::string> missing;
  for (size_t w = 1; w < options_.addresses.size(); ++w) {
    if (guests_.count(static_cast<int>(w)) > 0) continue;
    if (missing.size() == kMostNamed) return absl::StrCat(absl::StrJoin(missing, ", "), " and others");
    const std::string& address = options_.addresses[w];
    missing.push_back(absl::StrCat("worker ", w, address.empty() ? "" : " at ", address));
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status Host::CompareFacts(const std::map<int, Guest>& guests) const {
  const std::vector<std::string> own = FlatFacts(options_);
  for (const auto& [worker, guest] : guests) {
    if (guest.facts == own) continue;
    for (size_t i = 0; i + 1 < own.size() && i + 1 < guest.facts.size(); i += 2) {
      if (guest.facts[i] == own[i] && guest.facts[i + 1] == own[i + 1]) continue;
      if (guest.facts[i] != own[i]) break;
      return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " has ", own[i], " ", guest.facts[i + 1],
                                                     ", but worker 0 has ", own[i + 1],
                                                     "; start all workers with the same program and flags"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, " runs another program than worker 0; start all workers with the same"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> Host::Meet(const std::string& address) {
  std::map<int, Guest> guests;
  absl::Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto all = [this] { return guests_.size() + 1 == options_.addresses.size(); };
    const auto deadline = std::chrono::steady_clock::now() + options_.start_timeout;
    constexpr std::chrono::seconds kTellEvery(10);
    while (!all() && std::chrono::steady_clock::now() < deadline) {
      const auto until = std::min(deadline, std::chrono::steady_clock::now() + kTellEvery);
      if (!changed_.wait_until(lock, until, all) && options_.log) options_.log(absl::StrCat("waiting for ", Missing()));
    }
    if (!all()) {
      const std::string refused = refusals_.Summary();
      status =
          absl::DeadlineExceededError(absl::StrCat("after ", options_.start_timeout.count(), " s there is no ",
                                                   Missing(), refused.empty() ? "" : absl::StrCat(" (", refused, ")"),
                                                   "; start all workers, or raise --start_timeout_secs"));
    }
    over_ = true;
    guests.swap(guests_);
    for (const auto& [worker, guest] : guests) answered_.insert(guest.id);
  }
  if (status.ok()) status = CompareFacts(guests);
  absl::StatusOr<Job> result = Job{{address}, KeyOf(options_.secret, job_)};
  for (const auto& [worker, guest] : guests) result->addresses.push_back(guest.address);
  if (!status.ok()) result = status;
  const std::string answer = PackAnswer(result, job_);
  for (const auto& [worker, guest] : guests) guest.answer(answer);
  // If it is an error, the server ends with this process; the guests are to have it before.
  constexpr std::chrono::seconds kMostWait(5);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kMostWait, [this] { return answered_.empty(); });
  return result;
}

absl::StatusOr<Job> MeetAt(const ConnectOptions& options, const std::string& address) {
  const std::string nonce = RandomBytes(), worker = absl::StrCat(options.worker);
  absl::Status refused;
  const auto respond = [&](const std::string& challenge) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const std::vector<std::string> strings, UnpackStrings(challenge));
    if (strings.size() != 2 || !SameProof(strings[1], HostProof(options.secret, strings[0], nonce))) {
      return absl::InvalidArgumentError(absl::StrCat("worker 0 at ", options.addresses[0],
                                                     " has another secret; give all the same --run_secret_file"));
    }
    std::vector<std::string> second = {worker, GuestProof(options.secret, worker, strings[0], nonce),
                                       absl::StrCat(options.addresses.size()), address};
    const std::vector<std::string> facts = FlatFacts(options);
    second.insert(second.end(), facts.begin(), facts.end());
    return PackStrings(second);
  };
  // A little longer than worker 0 waits, who knows the reason.
  constexpr std::chrono::seconds kLonger(2);
  // Why there is no connection, as it was a little before worker 0 ends, too.
  constexpr std::chrono::seconds kLookBefore(1);
  std::string no_connection, refusal;
  std::optional<std::chrono::system_clock::time_point> taken_since;  // this worker's number
  constexpr std::chrono::seconds kPredecessorLeaves(1);
  constexpr std::chrono::milliseconds kTryAgain(50);
  const auto end = std::chrono::system_clock::now() + options.start_timeout + kLonger;
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(options.addresses[0], options);
  for (;;) {
    absl::Status status = WaitUntilConnected(*channel, 0, options.addresses[0], options);
    if (status.ok()) {
      const absl::StatusOr<std::string> answer = CallJoin(channel, PackStrings({kProtocol, nonce}), respond, end);
      if (answer.ok()) return UnpackAnswer(*answer, options);
      status = answer.status();
      if (absl::IsUnavailable(status)) refusal = std::string(status.message());
      if (absl::IsAlreadyExists(status)) {
        // Of a predecessor that has gone worker 0 may not know yet.
        taken_since = taken_since.value_or(std::chrono::system_clock::now());
        if (std::chrono::system_clock::now() - *taken_since > kPredecessorLeaves) {
          return absl::InvalidArgumentError(status.message());
        }
        status = absl::UnavailableError(status.message());
      }
      std::this_thread::sleep_for(kTryAgain);
    } else if (no_connection.empty() && std::chrono::system_clock::now() >= end - kLonger - kLookBefore) {
      no_connection = std::string(WhyNoConnection(0, options.addresses[0], options.tls).message());
    }
    if (absl::IsPermissionDenied(status)) return absl::InvalidArgumentError(status.message());
    // Worker 0 may have been started anew, or its server may come up just now.
    if (absl::IsUnavailable(status) && std::chrono::system_clock::now() < end) continue;
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    const std::string reason = !no_connection.empty() ? no_connection
                               : !refusal.empty()     ? refusal
                                                      : std::string(status.message());
    return absl::DeadlineExceededError(
        absl::StrCat("worker ", options.worker, " has waited ", options.start_timeout.count(), " s for worker 0 at ",
                     options.addresses[0], " and all other workers", reason.empty() ? "" : ": ", reason,
                     "; start all workers, or raise --start_timeout_secs"));
  }
}

}  // namespace official::distribute
