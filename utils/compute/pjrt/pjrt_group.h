// PjrtGroup: the devices of a strategy that run a module together, in which their gradients are summed. Each device's
// thread brings its arguments; the last one runs the module for all.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/pjrt/client.h"
#include "utils/compute/pjrt/executable_cache.h"

namespace official::compute {

class PjrtGroup : public CommunicatorGroup {
 public:
  class Member;

  // Makes the group of the first devices of a client, as AllReduceAlgorithm::make_group. InvalidArgument with other
  // processes.
  static absl::StatusOr<std::unique_ptr<CommunicatorGroup>> Make(absl::Span<Device* const> devices,
                                                                 std::chrono::seconds deadline,
                                                                 const std::optional<WorldRanks>& world);
  ~PjrtGroup() override;

  Communicator& communicator(int rank) override;
  void Abort(const absl::Status& cause) override;
  absl::Status Reset() override;

 private:
  PjrtGroup(std::shared_ptr<const PjrtClient> client, std::vector<PJRT_Device*> devices, std::chrono::seconds deadline);
  absl::StatusOr<std::shared_ptr<PjrtExecutable>> Compile(const std::string& module);
  absl::StatusOr<PjrtResults> Execute(int rank, PjrtExecutable& executable, std::vector<PjrtBuffer> arguments,
                                      int num_results);
  void ExecuteOnAll(int num_results);

  const std::shared_ptr<const PjrtClient> client_;
  const std::vector<PJRT_Device*> devices_;  // by rank
  const std::chrono::seconds deadline_;
  std::vector<std::unique_ptr<Member>> members_;

  ExecutableCache executables_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  int64_t runs_ = 0;  // that all devices have begun together
  // Of the next run, what each device has brought, and of the last one what each has not fetched yet.
  std::vector<PjrtExecutable*> given_;
  std::vector<std::vector<PjrtBuffer>> arguments_;
  std::vector<absl::StatusOr<PjrtResults>> results_;
};

// What a device of the group uses, for its thread only.
class PjrtGroup::Member : public Communicator {
 public:
  Member(PjrtGroup& group, int rank) : group_(group), rank_(rank) {}

  // Compiles a module for the devices of the group; those that ask for the same module get the same,
  // which may be an error until the group is reset.
  absl::StatusOr<std::shared_ptr<PjrtExecutable>> Compile(const std::string& module) { return group_.Compile(module); }
  // Returns this device's results once all devices have called it. InvalidArgument if they run different modules,
  // Cancelled if another device fails, DeadlineExceeded if one does not come.
  absl::StatusOr<PjrtResults> Execute(PjrtExecutable& executable, std::vector<PjrtBuffer> arguments, int num_results) {
    return group_.Execute(rank_, executable, std::move(arguments), num_results);
  }

  // Modules sum by themselves.
  absl::Status Start(absl::Span<const Buffer> pack) override { return absl::UnimplementedError("sums are in modules"); }
  absl::Status Finish() override { return absl::UnimplementedError("sums are in modules"); }

 private:
  PjrtGroup& group_;
  const int rank_;
};

}  // namespace official::compute
