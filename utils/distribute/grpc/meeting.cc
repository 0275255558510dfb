#include "utils/distribute/grpc/meeting.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/credentials.h"
#include "utils/distribute/grpc/peer.h"
#include "utils/distribute/result_bytes.h"

namespace official::distribute {
namespace {

constexpr char kProtocol[] = "official workers 4";
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

// The answer to a worker: an error, or the job, the incarnation, and all numbers and addresses in turn.
std::string PackAnswer(const absl::StatusOr<Job>& result, const std::string& job) {
  if (!result.ok()) return absl::StrJoin(PackResult(result.status()), "");
  std::vector<std::string> strings = {job, absl::StrCat(result->incarnation)};
  for (const auto& [worker, address] : result->addresses) {
    strings.push_back(absl::StrCat(worker));
    strings.push_back(address);
  }
  return absl::StrJoin(PackResult(PackStrings(strings)), "");
}

absl::StatusOr<Job> UnpackAnswer(std::string message, const ConnectOptions& options) {
  ASSIGN_OR_RETURN(const std::string packed, UnpackResult(std::move(message)));
  ASSIGN_OR_RETURN(const std::vector<std::string> strings, UnpackStrings(packed));
  Job job;
  if (strings.size() < 2 || !absl::SimpleAtoi(strings[1], &job.incarnation)) {
    return absl::InternalError("worker 0 has answered what is no answer");
  }
  job.key = KeyOf(options.secret, strings[0]);
  for (size_t i = 2; i + 1 < strings.size(); i += 2) {
    int worker = -1;
    if (!absl::SimpleAtoi(strings[i], &worker) || worker < 0 || worker >= static_cast<int>(options.addresses.size())) {
      return absl::InternalError("worker 0 has named a worker that there is not");
    }
    job.addresses[worker] = strings[i + 1];
  }
  const bool all = job.addresses.size() == options.addresses.size();
  if (job.addresses.count(options.worker) > 0 && (all || options.elastic)) return job;
  return absl::InternalError("worker 0 trains with other workers");
}

absl::Status IsTaken(const ConnectOptions& options, int worker) {
  const std::string name = TaskName(options, worker);
  return absl::AlreadyExistsError(absl::StrCat("there is a ", name, " already; give each ",
                                               name.substr(0, name.find(' ')), " a number of its own"));
}

bool BeginsAgain(const ConnectOptions& options) { return options.elastic && options.elastic->expected; }

// The workers of a job that begins again need to be started anew, by what starts them; at the first start something is
// wrong.
absl::Status StartTimeout(bool again, const std::string& what) {
  if (again) {
    return absl::CancelledError(
        absl::StrCat(what, "; start all workers again, they continue from the last checkpoint"));
  }
  return absl::DeadlineExceededError(absl::StrCat(what, "; start all workers, or raise --start_timeout_secs"));
}

// Joiner: the meeting, as another worker takes part in it. It tries to join until worker 0 answers, or for too long.
class Joiner {
 public:
  Joiner(const ConnectOptions& options, const std::string& address)
      : options_(options), address_(address), channel_(MakeChannel(host_, options)) {}

  absl::StatusOr<Job> Join() {
    std::optional<absl::StatusOr<Job>> answer;
    // Worker 0 may have been started anew, or its server may come up just now.
    do {
      answer = TryOnce();
    } while (!answer && absl::IsUnavailable(error_) && Clock::now() < end_);
    if (answer) return *std::move(answer);
    if (absl::IsPermissionDenied(error_)) return absl::InvalidArgumentError(error_.message());
    return absl::IsUnavailable(error_) || absl::IsDeadlineExceeded(error_) ? GiveUp() : error_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // A little longer than worker 0 waits, who knows the reason.
  static constexpr std::chrono::seconds kLonger{2};

  // Returns the answer of worker 0. Nothing if there is none: `error_` says why, Unavailable if it may come yet.
  std::optional<absl::StatusOr<Job>> TryOnce() {
    // Why there is no connection, as it was a little before worker 0 ends, too.
    constexpr std::chrono::seconds kLookBefore(1);
    constexpr std::chrono::milliseconds kTryAgain(50);
    error_ = WaitUntilConnected(*channel_, TaskName(options_, 0), host_, options_);
    if (!error_.ok()) {
      if (no_connection_.empty() && Clock::now() >= end_ - kLonger - kLookBefore) {
        no_connection_ = std::string(WhyNoConnection(TaskName(options_, 0), host_, options_.tls).message());
      }
      LogWait();
      return std::nullopt;
    }
    const Clock::time_point begin = Clock::now();
    const absl::StatusOr<std::string> answer = Call();
    const absl::StatusOr<Job> job = answer.ok() ? UnpackAnswer(*answer, options_) : answer.status();
    if (answer.ok() && !(options_.elastic && absl::IsUnavailable(job.status()))) return job;
    const bool was_kept = answer.ok() || Clock::now() - begin > std::chrono::seconds(1);
    if (options_.elastic && was_kept) end_ = Clock::now() + patience_ + kLonger;
    error_ = job.status();
    if (absl::IsUnavailable(error_)) refusal_ = std::string(error_.message());
    if (absl::IsAlreadyExists(error_)) error_ = NumberIsTaken();
    std::this_thread::sleep_for(kTryAgain);
    return std::nullopt;
  }

  // Logs, every ten seconds, that there is no connection.
  void LogWait() {
    constexpr std::chrono::seconds kEvery(10);
    if (!options_.log || Clock::now() < logged_ + kEvery) return;
    logged_ += kEvery;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(logged_ - begin_);
    options_.log(absl::StrCat("has waited ", seconds.count(), " s for worker 0 at ", host_, ", which does not answer"));
  }

  // Joins on a connection, and returns the answer of worker 0.
  absl::StatusOr<std::string> Call() const {
    // The worker 0 of an elastic job keeps those that come late until it can take them, however long that is.
    const Clock::time_point deadline = options_.elastic ? Clock::time_point::max() : end_;
    return CallJoin(
        channel_, PackStrings({kProtocol, nonce_}), [this](const std::string& challenge) { return Respond(challenge); },
        deadline,
        [this] {
          if (!options_.log) return;
          options_.log(absl::StrCat("waiting for worker 0 at ", host_, " to begin with this one"));
        });
  }

  // Returns the second message, after worker 0 has proved that it has the secret.
  absl::StatusOr<std::string> Respond(const std::string& challenge) const {
    ASSIGN_OR_RETURN(const std::vector<std::string> strings, UnpackStrings(challenge));
    if (strings.size() != 2 || !SameProof(strings[1], HostProof(options_.secret, strings[0], nonce_))) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker 0 at ", host_, " has another secret; give all the same --run_secret_file"));
    }
    const std::string worker = absl::StrCat(options_.worker);
    std::vector<std::string> second = {worker, GuestProof(options_.secret, worker, strings[0], nonce_),
                                       absl::StrCat(options_.addresses.size()), address_};
    const std::vector<std::string> facts = FlatFacts(options_);
    second.insert(second.end(), facts.begin(), facts.end());
    return PackStrings(second);
  }

  // Returns the error when worker 0 has a process of this number already: Unavailable, as long as that may be a
  // predecessor that has gone, which worker 0 may not know yet, else InvalidArgument. A predecessor that waited has
  // gone for worker 0 when it was silent for too long.
  absl::Status NumberIsTaken() {
    const bool waits = options_.elastic || IsDispensable(options_, options_.worker);
    const std::chrono::seconds predecessor_leaves(waits ? 1 + options_.peer_timeout.count() : 1);
    taken_since_ = taken_since_.value_or(Clock::now());
    return Clock::now() - *taken_since_ > predecessor_leaves ? absl::InvalidArgumentError(error_.message())
                                                             : absl::UnavailableError(error_.message());
  }

  // Returns the error after all tries, with the reason that tells most.
  absl::Status GiveUp() const {
    const std::string reason = !no_connection_.empty() ? no_connection_
                               : !refusal_.empty()     ? refusal_
                                                       : std::string(error_.message());
    return StartTimeout(again_, absl::StrCat(TaskName(options_, options_.worker), " has waited ", patience_.count(),
                                             " s for worker 0 at ", host_, again_ ? "" : " and all other workers",
                                             reason.empty() ? "" : ": ", reason));
  }

  const ConnectOptions& options_;
  const std::string address_;  // of this worker
  const std::string& host_ = options_.addresses[0];
  const std::string nonce_ = RandomBytes();
  const std::shared_ptr<grpc::Channel> channel_;
  const bool again_ = BeginsAgain(options_);
  // Worker 0 begins again at once, or not at all.
  const std::chrono::seconds patience_ = again_ ? options_.peer_timeout : options_.start_timeout;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point end_ = begin_ + (again_ ? std::chrono::milliseconds(patience_) : StartTimeLeft(options_)) + kLonger;
  Clock::time_point logged_ = begin_;             // when LogWait has logged
  absl::Status error_;                            // of the last try
  std::string no_connection_, refusal_;           // the reasons, if they are known
  std::optional<Clock::time_point> taken_since_;  // this worker's number
};

}  // namespace

Host::Host(const ConnectOptions& options, Mailbox& mailbox, Refusals& refusals)
    : options_(options), mailbox_(mailbox), refusals_(refusals), job_(RandomBytes()) {}

Host::~Host() { Dismiss(absl::CancelledError("worker 0 has ended before all workers were there")); }

std::vector<int> Host::Late() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> late;
  for (const auto& [worker, guest] : guests_) {
    if (over_) late.push_back(worker);
  }
  return late;
}

void Host::Finish() {
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
}

absl::StatusOr<std::string> Host::TakeBack(int worker, const Guest& guest) {
  if (finished_) return PackAnswer(absl::OutOfRangeError("the job was done without this worker"), job_);
  const std::optional<int> incarnation = mailbox_.TakeBack(worker, guest.address);
  if (!incarnation) return IsTaken(options_, worker);
  addresses_[worker] = guest.address;
  if (options_.log) options_.log(absl::StrCat("worker ", worker, " at ", guest.address, " takes part from now on"));
  return PackAnswer(Job{addresses_, KeyOf(options_.secret, job_), *incarnation}, job_);
}

void Host::Dismiss(const absl::Status& why) {
  std::map<int, Guest> guests;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = dismissed_ = true;
    guests.swap(guests_);
    for (const auto& [worker, guest] : guests) answered_.insert(guest.id);
  }
  Answer(guests, PackAnswer(why, job_));
}

void Host::Answer(const std::map<int, Guest>& guests, const std::string& answer) {
  for (const auto& [worker, guest] : guests) guest.answer(answer);
  // The server may end with this process; the guests are to have it before.
  constexpr std::chrono::seconds kMostWait(5);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kMostWait, [this] { return answered_.empty(); });
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
    const bool has_servers = options_.num_servers > 0;
    return absl::InvalidArgumentError(absl::StrCat(
        has_servers ? "task " : "worker ", worker, " of ", strings[2], has_servers ? " workers and ps" : " workers",
        " cannot join a run of ", num_workers, "; tell all of them the same cluster"));
  }
  std::unique_lock<std::mutex> lock(mutex_);
  const bool takes_back = over_ && IsDispensable(options_, worker);
  if (dismissed_ || (over_ && !options_.elastic && !takes_back)) {
    return absl::UnavailableError("it trains with the workers that were there before");
  }
  if (guests_.count(worker) > 0) return IsTaken(options_, worker);
  Guest guest = {id, strings[3], {strings.begin() + 4, strings.end()}, std::move(answer)};
  // Who comes to workers that train, or trained before, ends none of them.
  if (over_ || BeginsAgain(options_)) {
    const absl::Status same = CompareFacts(worker, guest);
    if (!same.ok()) return absl::FailedPreconditionError(same.message());
  }
  if (takes_back) {
    ASSIGN_OR_RETURN(const std::string welcome, TakeBack(worker, guest));
    answered_.insert(id);
    lock.unlock();
    guest.answer(welcome);
    return absl::OkStatus();
  }
  if (over_ && options_.log && known_.insert(worker).second) {
    options_.log(
        absl::StrCat("worker ", worker, " at ", guest.address, " waits to take part, from the next checkpoint on"));
  }
  guests_[worker] = std::move(guest);
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
    missing.push_back(absl::StrCat(TaskName(options_, static_cast<int>(w)), address.empty() ? "" : " at ", address));
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status Host::CompareFacts(int worker, const Guest& guest) const {
  const std::vector<std::string> own = FlatFacts(options_);
  if (guest.facts == own) return absl::OkStatus();
  for (size_t i = 0; i + 1 < own.size() && i + 1 < guest.facts.size(); i += 2) {
    if (guest.facts[i] == own[i] && guest.facts[i + 1] == own[i + 1]) continue;
    if (guest.facts[i] != own[i]) break;
    return absl::InvalidArgumentError(absl::StrCat(TaskName(options_, worker), " has ", own[i], " ", guest.facts[i + 1],
                                                   ", but worker 0 has ", own[i + 1],
                                                   "; start all workers with the same program and flags"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(TaskName(options_, worker), " runs another program than worker 0; start all workers with the same"));
}

bool Host::AreEnough() const {
  const size_t all = options_.addresses.size();
  if (options_.num_servers > 0) {
    for (int w = 1; w < static_cast<int>(all); ++w) {
      if (!IsDispensable(options_, w) && guests_.count(w) == 0) return false;
    }
    return true;
  }
  const size_t min = options_.elastic ? options_.elastic->min_workers : all;
  return guests_.size() + 1 >= std::min(min, all);
}

bool Host::IsComplete() const {
  if (guests_.size() + 1 == options_.addresses.size()) return true;
  if (!BeginsAgain(options_) || !AreEnough()) return false;
  const std::vector<int>& expected = *options_.elastic->expected;
  return std::all_of(expected.begin(), expected.end(),
                     [this](int worker) { return worker == options_.worker || guests_.count(worker) > 0; });
}

absl::Status Host::WaitForGuests(std::unique_lock<std::mutex>& lock) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kTellEvery(10);
  const Clock::time_point begin = options_.begin, deadline = begin + options_.start_timeout;
  const bool again = BeginsAgain(options_);
  // From then on the others need not come, if there are enough without them.
  // A parameter server that came before this worker is still there at half of the time.
  const Clock::time_point patience = again ? std::min(deadline, Clock::now() + options_.peer_timeout)
                                     : options_.num_servers > 0 ? begin + options_.start_timeout / 2
                                                                : deadline;
  const auto is_over = [&] { return IsComplete() || (Clock::now() >= patience && AreEnough()); };
  Clock::time_point tell = Clock::now() + kTellEvery;
  while (!is_over() && Clock::now() < deadline) {
    const Clock::time_point next = Clock::now() < patience ? std::min(patience, tell) : std::min(deadline, tell);
    if (changed_.wait_until(lock, next, is_over)) break;
    if (Clock::now() < tell) continue;
    tell += kTellEvery;
    if (options_.log) options_.log(absl::StrCat("waiting for ", Missing()));
  }
  if (is_over()) {
    const bool all = guests_.size() + 1 == options_.addresses.size();
    if (!all && options_.log) options_.log(absl::StrCat("goes on without ", Missing()));
    return absl::OkStatus();
  }
  const std::string refused = refusals_.Summary();
  return StartTimeout(again, absl::StrCat("after ", options_.start_timeout.count(), " s there is no ", Missing(),
                                          refused.empty() ? "" : absl::StrCat(" (", refused, ")")));
}

absl::StatusOr<Job> Host::Meet(const std::string& address) {
  std::map<int, Guest> guests;
  absl::Status status;
  absl::StatusOr<Job> result;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    status = WaitForGuests(lock);
    over_ = true;
    guests.swap(guests_);
    for (size_t w = 0; w < options_.addresses.size() && options_.num_servers > 0; ++w) addresses_[w] = "";
    addresses_[0] = address;
    for (const auto& [worker, guest] : guests) {
      answered_.insert(guest.id);
      known_.insert(worker);
      addresses_[worker] = guest.address;
    }
    result = Job{addresses_, KeyOf(options_.secret, job_)};
  }
  for (const auto& [worker, guest] : guests) status.Update(CompareFacts(worker, guest));
  if (!status.ok()) result = status;
  Answer(guests, PackAnswer(result, job_));
  return result;
}

absl::StatusOr<Job> MeetAt(const ConnectOptions& options, const std::string& address) {
  return Joiner(options, address).Join();
}

}  // namespace official::distribute
