#include "utils/distribute/strategy.h"

#include <algorithm>
#include <exception>
#include <new>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/distribute/device_summer.h"
#include "utils/distribute/in_process_group.h"
#include "utils/logs/log.h"

namespace official::distribute {
namespace {

constexpr absl::string_view kHierarchicalCopy = "hierarchical_copy", kReductionToOneDevice = "reduction_to_one_device";

// The algorithm of the options, or else that of the kind; InvalidArgument if such devices do not have it.
absl::StatusOr<std::string> AlgorithmFor(const StrategyOptions& options, const compute::DeviceKind& kind) {
  const std::string own = kind.all_reduce ? kind.all_reduce->name : "";
  const std::string alg = options.all_reduce_alg.value_or(own.empty() ? std::string(kReductionToOneDevice) : own);
  if (alg == kHierarchicalCopy || alg == kReductionToOneDevice || (alg == own && !own.empty())) return alg;
  return absl::InvalidArgumentError(absl::StrCat("--all_reduce_alg=", alg, " is not for ", kind.name, " devices; use ",
                                                 own, own.empty() ? "" : ", ", kHierarchicalCopy, " or ",
                                                 kReductionToOneDevice));
}

absl::StatusOr<std::unique_ptr<compute::CommunicatorGroup>> MakeGroup(
    absl::string_view alg, const compute::DeviceKind& kind, absl::Span<const std::unique_ptr<compute::Device>> devices,
    std::chrono::seconds timeout) {
  std::vector<compute::Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  if (kind.all_reduce && alg == kind.all_reduce->name) return kind.all_reduce->make_group(pointers, timeout);
  const int n = static_cast<int>(devices.size());
  const SumOrder order = alg == kHierarchicalCopy ? SumOrder::kHierarchicalCopy : SumOrder::kReductionToOneDevice;
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

}  // namespace

// A thread that runs one function at a time.
class Strategy::Worker {
 public:
  Worker() : thread_([this] { Loop(); }) {}
  ~Worker() {
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
  const int n = options.num_replicas;
  const compute::DeviceKind* const kind = compute::FindDeviceKind(options.device_kind);
  if (kind == nullptr) return compute::MakeDevice(options.device_kind).status();
  strategy->pack_sizes_ = kind->pack_sizes;
  std::string alg;
  if (n > 1) {
    ASSIGN_OR_RETURN(alg, AlgorithmFor(options, *kind));
  }
  const int threads = options.num_threads > 0 ? options.num_threads : compute::NumThreads();
  const auto warn = LogOnce();
  for (int i = 0; i < n; ++i) {
    const int share = std::max<int>(1, compute::ShareOf(threads, i, n).size());
    ASSIGN_OR_RETURN(
        auto device,
        compute::MakeDevice(options.device_kind, {.index = i, .num_threads = share, .allow_tf32 = options.allow_tf32}));
    device->set_recordings(options.recordings);
    device->set_warn(warn);
    strategy->devices_.push_back(std::move(device));
  }
  if (n == 1) return strategy;
  ASSIGN_OR_RETURN(strategy->group_, MakeGroup(alg, *kind, strategy->devices_, options.all_reduce_timeout));
  for (int i = 0; i < n; ++i) {
    strategy->devices_[i]->set_communicator(&strategy->group_->communicator(i));
    if (i > 0) strategy->workers_.push_back(std::make_unique<Worker>());
  }
  return strategy;
}

Strategy::~Strategy() = default;

std::string Strategy::Description() const {
  return absl::StrJoin(devices_, ", ",
                       [](std::string* out, const auto& device) { absl::StrAppend(out, device->Description()); });
}

void Strategy::Report(const absl::Status& status) {
  if (status.ok()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // That a device was cancelled since another failed is told only if that one's error is not.
    if (!first_error_.ok() && (absl::IsCancelled(status) || !absl::IsCancelled(first_error_))) return;
    first_error_ = status;
  }
  group_->Abort();
}

absl::Status Strategy::RunOnThreads(absl::FunctionRef<absl::Status(int replica)> f) {
  RETURN_IF_ERROR(broken_);
  std::vector<std::function<void()>> work;
  for (int replica = 0; replica < num_replicas(); ++replica) {
    work.push_back([this, &f, replica] {
      try {
        Report(f(replica));
      } catch (const std::bad_alloc&) {
        Report(absl::InternalError(absl::StrCat("out of memory on replica ", replica)));
      } catch (const std::exception& exception) {
        Report(absl::InternalError(absl::StrCat("internal error on replica ", replica, ": ", exception.what())));
      }
    });
  }
  for (size_t i = 0; i < workers_.size(); ++i) workers_[i]->Give(&work[i + 1]);
  work[0]();
  for (const auto& worker : workers_) worker->Wait();
  if (first_error_.ok()) return absl::OkStatus();
  broken_ = group_->Reset();
  return std::exchange(first_error_, absl::OkStatus());
}

absl::Status Strategy::RunAlone(int replica, absl::FunctionRef<absl::Status()> f) {
  if (replica == 0) return f();
  absl::Status status;
  const std::function<void()> work = [&] { status = f(); };
  workers_[replica - 1]->Give(&work);
  workers_[replica - 1]->Wait();
  return status;
}

}  // namespace official::distribute
