#include "utils/distribute/strategy.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/distribute/cross_device_ops_summer.h"
#include "utils/distribute/device_summer.h"
#include "utils/distribute/in_process_group.h"
#include "utils/distribute/result_bytes.h"
#include "utils/distribute/worker_summer.h"
#include "utils/logs/log.h"
#include "utils/misc/exit_code.h"

namespace official::distribute {
namespace {

// Of sums with other workers: large enough that the way to them costs little beside the bytes, small enough that most
// are under way while the devices still compute.
constexpr compute::PackSizes kWorkerPacks = {.most_bytes = 4 << 20, .last_bytes = 1 << 18};

// The packs of --num_packs.
compute::PackSizes PacksByNumber(int num_packs) { return {.most_bytes = 1, .last_bytes = 1, .num_packs = num_packs}; }

constexpr absl::string_view kHierarchicalCopy = "hierarchical_copy", kReductionToOneDevice = "reduction_to_one_device";

// The orders in which the devices of a process add, by their names in all_reduce_alg.
struct NamedSumOrder {
  absl::string_view name;
  SumOrder order;
};
constexpr NamedSumOrder kSumOrders[] = {{kHierarchicalCopy, SumOrder::kHierarchicalCopy},
                                        {kReductionToOneDevice, SumOrder::kReductionToOneDevice}};

// Returns the order of a name; nothing if there is none.
std::optional<SumOrder> FindSumOrder(absl::string_view name) {
  for (const NamedSumOrder& named : kSumOrders) {
    if (named.name == name) return named.order;
  }
  return std::nullopt;
}

// Adds the time that it lives.
class AddTime {
 public:
  explicit AddTime(double& seconds) : seconds_(seconds), begin_(Clock::now()) {}
  ~AddTime() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  AddTime(const AddTime&) = delete;
  AddTime& operator=(const AddTime&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point begin_;
};

std::string NameOf(const StrategyOptions& options) {
  if (!options.name.empty()) return options.name;
  return options.workers ? "multi_worker_mirrored" : options.num_replicas == 1 ? "one_device" : "mirrored";
}

// InvalidArgument if workers with such devices cannot sum as the options say.
absl::Status CheckWorkerSums(const StrategyOptions& options, const compute::DeviceKind& kind) {
  if (!kind.all_reduce && kind.make_peer_streams != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("several workers do not train on ", kind.name, " devices; give --num_gpus=0"));
  }
  using enum CollectiveCommunication;
  const CollectiveCommunication communication = options.workers->communication;
  if (communication == kNccl && !kind.all_reduce) {
    return absl::InvalidArgumentError(
        absl::StrCat("--collective_communication=nccl sums between GPUs, and this run trains on ", kind.name,
                     " devices; use auto, ordered or ring"));
  }
  if (kind.all_reduce && (communication == kOrdered || communication == kRing)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--collective_communication=", communication == kRing ? "ring" : "ordered",
        " sums in the memory of the host, and this run trains on ", kind.name, " devices; use auto or nccl"));
  }
  const std::string needed = kind.all_reduce ? kind.all_reduce->name : std::string(kReductionToOneDevice);
  if (options.all_reduce_alg.value_or(needed) == needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--all_reduce_alg=", *options.all_reduce_alg,
                                                 " is not for several workers; use ", needed,
                                                 ", and --collective_communication for how the workers sum"));
}

// The algorithm of the options, or else that of the kind; InvalidArgument if such devices do not have it.
absl::StatusOr<std::string> AlgorithmFor(const StrategyOptions& options, const compute::DeviceKind& kind) {
  const std::string own = kind.all_reduce ? kind.all_reduce->name : "";
  const std::string alg = options.all_reduce_alg.value_or(own.empty() ? std::string(kReductionToOneDevice) : own);
  if (FindSumOrder(alg) || (alg == own && !own.empty())) return alg;
  std::string names = own;
  for (const NamedSumOrder& named : kSumOrders) {
    const bool is_last = &named + 1 == std::end(kSumOrders);
    absl::StrAppend(&names, names.empty() ? "" : is_last ? " or " : ", ", named.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--all_reduce_alg=", alg, " is not for ", kind.name, " devices; use ", names));
}

// InvalidArgument if the options have cross_device_ops that cannot sum between such devices, or a number of packs that
// there cannot be.
absl::Status CheckCrossDeviceOps(const StrategyOptions& options, const compute::DeviceKind& kind) {
  if (options.num_packs.value_or(0) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.all_reduce_alg == kHierarchicalCopy ? "HierarchicalCopy" : "NCCL all-reduce",
                     " requires num_packs >= 0, but ", *options.num_packs, " is specified"));
  }
  if (options.cross_device_ops == nullptr) return absl::OkStatus();
  if (options.workers || options.servers) {
    return absl::InvalidArgumentError(
        "cross_device_ops sum between the devices of one process, and this job has other tasks; leave them out");
  }
  if (kind.all_reduce || kind.make_peer_streams != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cross_device_ops sum in the memory of the host, and this run trains "
                     "on ",
                     kind.name, " devices; give all_reduce_alg instead"));
  }
  if (!options.all_reduce_alg) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cross_device_ops sum instead of an algorithm; leave out them or all_reduce_alg=", *options.all_reduce_alg));
}

// InvalidArgument if the options do not name a device for each replica of this process, each another one.
absl::Status CheckDevices(const StrategyOptions& options, const compute::Share& local_replicas) {
  if (options.num_replicas < 1 || local_replicas.size() < 1) {
    return absl::InvalidArgumentError(absl::StrCat("Must specify at least one device: the strategy has ",
                                                   options.num_replicas, " replicas, and this process ",
                                                   local_replicas.size(), " of them; give num_replicas, 1 or more"));
  }
  const std::vector<int>& indices = options.device_indices;
  if (indices.empty()) return absl::OkStatus();
  const std::string listed = absl::StrJoin(indices, ", ");
  if (std::set<int>(indices.begin(), indices.end()).size() < indices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("No duplicates allowed in `devices` argument: device_indices are ", listed));
  }
  if (static_cast<int64_t>(indices.size()) == local_replicas.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("device_indices are ", listed, ", and this process has ",
                                                 local_replicas.size(), " replicas; give as many"));
}

std::vector<compute::Device*> PointersTo(absl::Span<const std::unique_ptr<compute::Device>> devices) {
  std::vector<compute::Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  return pointers;
}

absl::StatusOr<std::unique_ptr<compute::CommunicatorGroup>> MakeGroup(
    const StrategyOptions& options, const compute::DeviceKind& kind,
    absl::Span<const std::unique_ptr<compute::Device>> devices) {
  const std::chrono::seconds timeout = options.all_reduce_timeout;
  if (options.cross_device_ops != nullptr) {
    return std::make_unique<InProcessGroup>(static_cast<int>(devices.size()),
                                            MakeCrossDeviceOpsSummer(options.cross_device_ops), timeout);
  }
  ASSIGN_OR_RETURN(const std::string alg, AlgorithmFor(options, kind));
  const std::vector<compute::Device*> pointers = PointersTo(devices);
  if (kind.all_reduce && alg == kind.all_reduce->name) {
    return kind.all_reduce->make_group(pointers, timeout, std::nullopt);
  }
  const int n = static_cast<int>(devices.size());
  const SumOrder order = FindSumOrder(alg).value();
  if (kind.make_peer_streams == nullptr) {
    return std::make_unique<InProcessGroup>(n, MakeHostSummer(n, order), timeout);
  }
  ASSIGN_OR_RETURN(auto streams, kind.make_peer_streams(pointers));
  ASSIGN_OR_RETURN(auto summer, MakeDeviceSummer(pointers, std::move(streams), order));
  return std::make_unique<InProcessGroup>(n, std::move(summer), timeout);
}

// Returns a function that logs a warning, each text once. It may be called on any thread.
std::function<void(const std::string& text)> LogOnce() {
  struct Logged {
    std::mutex mutex;
    std::set<std::string> texts;
  };
  return [logged = std::make_shared<Logged>()](const std::string& text) {
    const std::lock_guard<std::mutex> lock(logged->mutex);
    const bool is_new = logged->texts.insert(text).second;
    if (is_new) {
      LOG(WARNING) << text;
    }
  };
}

// The default of StrategyOptions::end_process. Of several threads the first one ends the process; the others stay here.
void LogAndExit(const absl::Status& error) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  LOG(ERROR) << error.message();
  std::_Exit(misc::ExitCode(error));
}

}  // namespace

// A thread that runs one function at a time.
class Strategy::Thread {
 public:
  Thread() : thread_([this] { Loop(); }) {}
  ~Thread() {
    Give(nullptr);
    thread_.join();
  }

  // `work` must live until Wait returns; nullptr ends the thread.
  void Give(const std::function<void()>* work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = work;
    busy_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return busy_; });
      if (work_ == nullptr) return;
      lock.unlock();
      (*work_)();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool busy_ = false;
  std::thread thread_;  // last: starts when all else is there
};

absl::StatusOr<std::unique_ptr<Strategy>> Strategy::Create(const StrategyOptions& options) {
  std::unique_ptr<Strategy> strategy(new Strategy);
  const compute::DeviceKind* const kind = compute::FindDeviceKind(options.device_kind);
  if (kind == nullptr) return compute::MakeDevice(options.device_kind).status();
  strategy->pack_sizes_ = kind->pack_sizes;
  strategy->name_ = NameOf(options);
  strategy->num_replicas_in_sync_ = options.num_replicas;
  strategy->workers_ = options.workers;
  strategy->timeout_ = options.all_reduce_timeout;
  if (options.servers) {
    strategy->servers_ = std::make_unique<ParameterServers>(*options.servers->exchange, options.servers->num_servers,
                                                            options.all_reduce_timeout);
  }
  strategy->local_replicas_ = options.workers ? options.workers->replicas[options.workers->exchange->worker()]
                                              : compute::Share{0, options.num_replicas};
  RETURN_IF_ERROR(CheckDevices(options, strategy->local_replicas_));
  RETURN_IF_ERROR(CheckCrossDeviceOps(options, *kind));
  strategy->cross_device_ops_ = options.cross_device_ops;
  if (options.cross_device_ops != nullptr) strategy->pack_sizes_ = PacksByNumber(1);
  if (options.workers) RETURN_IF_ERROR(CheckWorkerSums(options, *kind));
  RETURN_IF_ERROR(strategy->MakeDevices(options));
  if (options.num_replicas == 1) return strategy;
  if (options.workers) {
    RETURN_IF_ERROR(strategy->MakeWorkerGroup(*kind));
  } else {
    ASSIGN_OR_RETURN(strategy->group_, MakeGroup(options, *kind, strategy->devices_));
  }
  if (options.num_packs) strategy->pack_sizes_ = PacksByNumber(*options.num_packs);
  for (size_t i = 0; i < strategy->devices_.size(); ++i) {
    strategy->devices_[i]->set_communicator(&strategy->group_->communicator(static_cast<int>(i)));
    if (i > 0) strategy->threads_.push_back(std::make_unique<Thread>());
  }
  return strategy;
}

absl::StatusOr<std::unique_ptr<Strategy>> GetDistributionStrategy(int num_gpus,
                                                                  std::optional<std::string> all_reduce_alg) {
  return Strategy::Create({.device_kind = num_gpus == 0 ? "cpu" : compute::kCudaKind,
                           .num_replicas = std::max(1, num_gpus),
                           .all_reduce_alg = std::move(all_reduce_alg)});
}

absl::Status Strategy::MakeDevices(const StrategyOptions& options) {
  const int threads = options.num_threads > 0 ? options.num_threads : compute::DefaultNumThreads();
  const auto warn = LogOnce();
  const auto n = static_cast<int>(local_replicas_.size());
  for (int i = 0; i < n; ++i) {
    const int share = std::max<int>(1, compute::ShareOf(threads, i, n).size());
    ASSIGN_OR_RETURN(auto device,
                     compute::MakeDevice(options.device_kind,
                                         {.index = options.device_indices.empty() ? i : options.device_indices[i],
                                          .num_threads = share,
                                          .allow_tf32 = options.allow_tf32}));
    device->set_recordings(options.recordings);
    device->set_warn(warn);
    device->set_end_process(options.end_process ? options.end_process : LogAndExit);
    devices_.push_back(std::move(device));
  }
  return absl::OkStatus();
}

absl::Status Strategy::MakeWorkerGroup(const compute::DeviceKind& kind) {
  Exchange& exchange = *workers_->exchange;
  if (kind.all_reduce) {
    const compute::WorldRanks world = {
        .first = static_cast<int>(local_replicas_.begin),
        .count = num_replicas_in_sync_,
        .from_first = [this](absl::StatusOr<std::string> own) { return FromChief(std::move(own)); },
        .check = [&exchange] { return exchange.Check(); }};
    ASSIGN_OR_RETURN(group_, kind.all_reduce->make_group(PointersTo(devices_), timeout_, world));
    return absl::OkStatus();
  }
  const WorkerSumOrder order =
      workers_->communication == CollectiveCommunication::kRing ? WorkerSumOrder::kRing : WorkerSumOrder::kOrdered;
  auto summer = std::make_unique<WorkerSummer>(MakeWorkerSum(order, workers_->replicas, exchange, timeout_), exchange);
  worker_summer_ = summer.get();
  group_ = std::make_unique<InProcessGroup>(num_local_replicas(), std::move(summer), timeout_);
  pack_sizes_ = kWorkerPacks;
  return absl::OkStatus();
}

Strategy::~Strategy() = default;

SumCosts Strategy::CostsOfWorkerSums() const {
  return worker_summer_ == nullptr ? SumCosts{} : worker_summer_->Costs();
}

std::string Strategy::Description() const {
  return absl::StrJoin(devices_, ", ",
                       [](std::string* out, const auto& device) { absl::StrAppend(out, device->Description()); });
}

double Strategy::SecondsOfWaiting() const {
  return seconds_of_values_ + (worker_summer_ == nullptr ? 0 : worker_summer_->SecondsOfWaiting());
}

absl::StatusOr<std::vector<std::string>> Strategy::GatherBytes(absl::string_view own) const {
  if (!workers_) return std::vector<std::string>{std::string(own)};
  const AddTime add_time(seconds_of_values_);
  return distribute::Gather(*workers_->exchange, own, timeout_);
}

absl::StatusOr<std::string> Strategy::FromChief(absl::StatusOr<std::string> own) const {
  if (exchange() == nullptr) return own;
  const AddTime add_time(seconds_of_values_);
  Exchange& exchange = *this->exchange();
  constexpr Exchange::Channel kValues = Exchange::Channel::kValues;
  if (is_chief()) {
    for (int w = 1; w < exchange.num_workers(); ++w) RETURN_IF_ERROR(exchange.Send(w, kValues, PackResult(own)));
    return own;
  }
  ASSIGN_OR_RETURN(std::string frame, exchange.Receive(0, kValues, timeout_));
  return UnpackResult(std::move(frame));
}

absl::StatusOr<std::string> Strategy::GatherOfReplicas(absl::string_view own) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> given, GatherBytes(own));
  std::string all;
  for (size_t w = 0; w < given.size(); ++w) {
    const size_t expected = own.size() / devices_.size() * workers_->replicas[w].size();
    if (given[w].size() != expected) {
      return absl::InternalError(absl::StrCat(NameOfWorker(static_cast<int>(w)), " has sent ", given[w].size(),
                                              " bytes of its values, not ", expected,
                                              "; do all workers run the same program and flags?"));
    }
    all += given[w];
  }
  return all;
}

void Strategy::Report(const absl::Status& status) {
  if (status.ok()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // That a device was cancelled since another failed is told only if that one's error is not.
    if (!first_error_.ok() && (absl::IsCancelled(status) || !absl::IsCancelled(first_error_))) return;
    first_error_ = status;
  }
  if (!absl::IsCancelled(status)) Fail(status.message());
  group_->Abort(status);
}

absl::Status Strategy::RunOnThreads(absl::FunctionRef<absl::Status(int replica)> f) {
  RETURN_IF_ERROR(broken_);
  std::vector<std::function<void()>> work;
  for (int replica = 0; replica < num_local_replicas(); ++replica) {
    // Made while there is memory.
    const absl::Status out_of_memory = absl::InternalError(absl::StrCat("out of memory on replica ", replica));
    work.push_back([this, &f, replica, out_of_memory] {
      try {
        Report(f(replica));
      } catch (const std::bad_alloc&) {
        Report(out_of_memory);
      } catch (const std::exception& exception) {
        Report(absl::InternalError(absl::StrCat("internal error on replica ", replica, ": ", exception.what())));
      }
    });
  }
  for (size_t i = 0; i < threads_.size(); ++i) threads_[i]->Give(&work[i + 1]);
  work[0]();
  for (const auto& thread : threads_) thread->Wait();
  if (first_error_.ok()) return absl::OkStatus();
  broken_ = group_->Reset();
  return std::exchange(first_error_, absl::OkStatus());
}

absl::Status Strategy::RunAlone(int replica, absl::FunctionRef<absl::Status()> f) {
  if (replica == 0) return f();
  absl::Status status;
  const std::function<void()> work = [&] { status = f(); };
  threads_[replica - 1]->Give(&work);
  threads_[replica - 1]->Wait();
  return status;
}

}  // namespace official::distribute
