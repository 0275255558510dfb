#include "utils/distribute/strategy.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/parallel.h"
#include "utils/compute/cuda_backend/cuda_backend.h"
#include "utils/distribute/device_summer.h"
#include "utils/distribute/in_process_group.h"

namespace official::distribute {
namespace {

std::string AlgorithmOf(const StrategyOptions& options) {
  return options.all_reduce_alg.value_or(options.device_kind == "cuda" ? "nccl" : "reduction_to_one_device");
}

absl::Status CheckAlgorithm(const StrategyOptions& options) {
  const std::string alg = AlgorithmOf(options);
  const bool on_gpus = options.device_kind == "cuda";
  if (alg == "hierarchical_copy" || alg == "reduction_to_one_device" || (alg == "nccl" && on_gpus)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--all_reduce_alg=", alg, " is not for ", options.device_kind,
                                                 " devices; use ", on_gpus ? "nccl, " : "",
                                                 "hierarchical_copy or reduction_to_one_device"));
}

absl::StatusOr<std::unique_ptr<compute::CommunicatorGroup>> MakeGroup(
    const StrategyOptions& options, absl::Span<const std::unique_ptr<compute::Device>> devices) {
  const std::string alg = AlgorithmOf(options);
  const int n = static_cast<int>(devices.size());
  const SumOrder order = alg == "hierarchical_copy" ? SumOrder::kHierarchicalCopy : SumOrder::kReductionToOneDevice;
  if (options.device_kind != "cuda") {
    return std::make_unique<InProcessGroup>(n, MakeHostSummer(n, order), options.all_reduce_timeout);
  }
  std::vector<compute::Device*> pointers;
  for (const auto& device : devices) pointers.push_back(device.get());
  if (alg == "nccl") return compute::MakeNcclGroup(pointers, options.all_reduce_timeout);
  ASSIGN_OR_RETURN(auto streams, compute::MakePeerStreams(pointers));
  ASSIGN_OR_RETURN(auto summer, MakeDeviceSummer(pointers, std::move(streams), order));
  return std::make_unique<InProcessGroup>(n, std::move(summer), options.all_reduce_timeout);
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
  if (n > 1) RETURN_IF_ERROR(CheckAlgorithm(options));
  const int threads = options.num_threads > 0 ? options.num_threads : compute::NumThreads();
  for (int i = 0; i < n; ++i) {
    const int share = std::max<int>(1, compute::ShareOf(threads, i, n).size());
    ASSIGN_OR_RETURN(
        auto device,
        compute::MakeDevice(options.device_kind, {.index = i, .num_threads = share, .allow_tf32 = options.allow_tf32}));
    strategy->devices_.push_back(std::move(device));
  }
  if (n == 1) return strategy;
  ASSIGN_OR_RETURN(strategy->group_, MakeGroup(options, strategy->devices_));
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

absl::Status Strategy::Run(absl::FunctionRef<absl::Status(int replica)> f) {
  if (workers_.empty()) return f(0);
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
