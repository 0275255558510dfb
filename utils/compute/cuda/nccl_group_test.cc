// What ends the waits of GPUs for NCCL's sums when a GPU, NCCL or another process has failed. Else a process could not
// even end: the calls that free memory wait for the device.

#include "utils/compute/cuda/nccl_group.h"

#include <nccl.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cuda/cuda_device.h"
#include "utils/compute/cuda/nccl_functions.h"
#include "utils/compute/cuda_emulation/nccl_faults.h"
#include "utils/compute/cuda_emulation/stream_work.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/kernel/device.h"

namespace official::compute {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr std::chrono::minutes kDeadline(1);

#define OFFICIAL_ADDRESS(function) reinterpret_cast<void*>(&::function),
const bool linked = UseNcclFunctions({OFFICIAL_NCCL_FUNCTIONS(OFFICIAL_ADDRESS)});
#undef OFFICIAL_ADDRESS

// A device with four floats, which it sums with others.
struct Gpu {
  explicit Gpu(int index) : owner(CudaDevice::Make({.index = index}, index).value()) {
    data = device.Allocate(4 * sizeof(float)).value();
  }
  // Gives the device a sum, for which it waits for the others of its group.
  absl::Status GiveSum() {
    device.MakeCurrent();
    RETURN_IF_ERROR(device.communicator()->Start({{static_cast<float*>(data.get()), 4}}));
    return device.communicator()->Finish();
  }

  const std::unique_ptr<Device> owner;
  CudaDevice& device = static_cast<CudaDevice&>(*owner);
  std::shared_ptr<void> data;
};

// Two processes with a GPU each. `check` is WorldRanks::check of the first.
struct TwoProcesses {
  explicit TwoProcesses(const std::function<absl::Status()>& check, std::chrono::seconds deadline = kDeadline) {
    std::promise<std::string> id;
    std::thread process([&] {
      const auto from_first = [&](const absl::StatusOr<std::string>&) { return id.get_future().get(); };
      other_group = NcclGroup::Make({&other.device}, kDeadline, WorldRanks{1, 2, from_first, absl::OkStatus}).value();
    });
    const auto from_first = [&](absl::StatusOr<std::string> own) {
      id.set_value(*own);
      return own;
    };
    group = NcclGroup::Make({&gpu.device}, deadline, WorldRanks{0, 2, from_first, check}).value();
    process.join();
    gpu.device.set_communicator(&group->communicator(0));
  }

  Gpu gpu{0}, other{1};
  std::unique_ptr<CommunicatorGroup> group, other_group;
};

// An exchange between processes that knows after some more calls that one is lost.
struct SlowExchange {
  absl::Status Check() {
    if (calls_left && --*calls_left < 0) return absl::CancelledError("worker 1 is lost");
    return absl::OkStatus();
  }
  std::optional<int> calls_left;
};

TEST_CASE("Memory that a device uses can be freed when the sums that it waits for no longer come") {
  SlowExchange exchange;
  TwoProcesses processes([&] { return exchange.Check(); });
  Gpu& gpu = processes.gpu;
  std::unique_ptr<FeedBuffers> feeds = gpu.device.MakeFeedBuffers(std::vector<int64_t>{4}).value();
  std::unique_ptr<HostBuffer> value = gpu.device.MakeHostBuffer(4).value();
  REQUIRE(gpu.GiveSum().ok());
  REQUIRE(value->StartCopy(gpu.data.get()).ok());
  exchange.calls_left = 0;
  SECTION("That of feeds") { feeds.reset(); }
  SECTION("That of a value") { value.reset(); }
  CHECK(gpu.device.Synchronize().ok());
}

TEST_CASE("The error of a GPU, seen where memory is freed, is told with the call that saw it") {
  std::optional<absl::Status> error;
  std::string call;
  {
    TwoProcesses processes(absl::OkStatus, /*deadline=*/std::chrono::seconds(3));
    Gpu& gpu = processes.gpu;
    gpu.device.set_end_process([&](const absl::Status& status) {
      error = status;
      cuda_emulation::HoldAborts(false);
    });
    std::unique_ptr<FeedBuffers> feeds = gpu.device.MakeFeedBuffers(std::vector<int64_t>{4}).value();
    std::unique_ptr<HostBuffer> value = gpu.device.MakeHostBuffer(4).value();
    std::atomic<bool> fails = false;  // what the device does before the copy
    const auto work = [&] { return fails ? std::optional<std::string>("a kernel has failed") : std::nullopt; };
    REQUIRE(cuda_emulation::GiveWaitingWork(gpu.device.stream(), work) == cudaSuccess);
    REQUIRE(value->StartCopy(gpu.data.get()).ok());
    cuda_emulation::HoldAborts(true);
    fails = true;
    SECTION("That of feeds") {
      feeds.reset();
      call = "cudaStreamQuery";
    }
    SECTION("That of a value") {
      value.reset();
      call = "cudaEventQuery";
    }
    // Both ask the group, which tells the error when its own end takes too long.
    feeds.reset();
    value.reset();
    processes.group.reset();
    cuda_emulation::HoldAborts(false);
  }
  cudaSetDevice(0);
  CHECK(cuda_emulation::TakeError() == "a kernel has failed");
  REQUIRE(error);
  CHECK_THAT(std::string(error->message()), StartsWith(call + ": a kernel has failed"));
}

TEST_CASE("An error of NCCL while GPUs connect, whose cause is a lost process, is told as that loss") {
  SlowExchange exchange;
  Gpu gpu(0);
  const auto check = [&] {
    if (!exchange.calls_left) cuda_emulation::FailCommunicators(0, ncclRemoteError);
    exchange.calls_left = exchange.calls_left.value_or(3);
    return exchange.Check();
  };
  const auto from_first = [](absl::StatusOr<std::string> own) { return own; };
  CHECK(NcclGroup::Make({&gpu.device}, kDeadline, WorldRanks{0, 2, from_first, check}).status() ==
        absl::CancelledError("the GPUs cannot be connected: worker 1 is lost"));
}

TEST_CASE("An error of NCCL in training, whose cause is a lost process, is told as that loss") {
  SlowExchange exchange;
  TwoProcesses processes([&] { return exchange.Check(); });
  Gpu& gpu = processes.gpu;
  REQUIRE(gpu.GiveSum().ok());
  cuda_emulation::FailCommunicators(0, ncclRemoteError);
  exchange.calls_left = 3;
  const absl::Status lost = absl::CancelledError("worker 1 is lost");
  SECTION("While the host waits for the device, which then waits no longer") {
    CHECK(gpu.device.Synchronize() == lost);
    CHECK(gpu.device.Synchronize().ok());
  }
  SECTION("At the next sum") {
    CHECK(gpu.GiveSum() == lost);
    processes.group->Abort(lost);  // as Strategy does
  }
}

TEST_CASE("An error of NCCL without such a cause is told, and ends the wait of the device") {
  TwoProcesses processes(absl::OkStatus);
  Gpu& gpu = processes.gpu;
  REQUIRE(gpu.GiveSum().ok());
  cuda_emulation::FailCommunicators(0, ncclRemoteError);
  const absl::Status status = gpu.device.Synchronize();
  CHECK(absl::IsInternal(status));
  CHECK_THAT(std::string(status.message()), Contains("ncclAllReduce: remote process exited"));
  CHECK(gpu.device.Synchronize().ok());
}

TEST_CASE("A wait that NCCL does not end ends the process, with the error that led to it") {
  std::optional<absl::Status> error;
  TwoProcesses processes(absl::OkStatus, /*deadline=*/std::chrono::seconds(3));
  Gpu& gpu = processes.gpu;
  gpu.device.set_end_process([&](const absl::Status& status) {
    error = status;
    cuda_emulation::HoldAborts(false);
  });
  REQUIRE(gpu.GiveSum().ok());
  cuda_emulation::HoldAborts(true);
  processes.group->Abort(absl::CancelledError("worker 1 is lost"));
  SECTION("That for a device") { gpu.device.Synchronize().IgnoreError(); }
  SECTION("That of the destructor, not the time before it") {
    std::this_thread::sleep_for(std::chrono::seconds(4));
    CHECK_FALSE(error);
    processes.group.reset();
  }
  cuda_emulation::HoldAborts(false);
  REQUIRE(error);
  CHECK(*error == absl::CancelledError(
                      "worker 1 is lost; the process ends here, since NCCL has not ended its work for 3 s after that"));
}

TEST_CASE("Of the time after an error only that of a wait counts, and of each wait by itself") {
  std::optional<absl::Status> error;
  TwoProcesses processes(absl::OkStatus, /*deadline=*/std::chrono::seconds(3));
  Gpu& gpu = processes.gpu;
  gpu.device.set_end_process([&](const absl::Status& status) { error = status; });
  REQUIRE(gpu.GiveSum().ok());
  cuda_emulation::HoldAborts(true);
  processes.group->Abort(absl::CancelledError("worker 1 is lost"));
  for (int wait = 0; wait < 5; ++wait) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    CHECK(processes.group->communicator(0).CheckWait(/*begins=*/true).ok());
  }
  cuda_emulation::HoldAborts(false);
  CHECK(gpu.device.Synchronize().ok());
  CHECK_FALSE(error);
}

TEST_CASE("The error of a GPU ends the waits of the others of its process") {
  {
    Gpu bad(0), good(1);
    const auto group = NcclGroup::Make({&bad.device, &good.device}, kDeadline, std::nullopt).value();
    bad.device.set_communicator(&group->communicator(0));
    good.device.set_communicator(&group->communicator(1));
    const std::unique_ptr<HostBuffer> value = bad.device.MakeHostBuffer(sizeof(float)).value();
    std::atomic<bool> fails = false;  // what the device does before its sum
    const auto work = [&] { return fails ? std::optional<std::string>("a kernel has failed") : std::nullopt; };
    REQUIRE(cuda_emulation::GiveWaitingWork(bad.device.stream(), work) == cudaSuccess);
    REQUIRE(bad.GiveSum().ok());
    REQUIRE(good.GiveSum().ok());
    fails = true;
    absl::Status status;
    float sum = 0;
    SECTION("Seen while the host waits") { status = bad.device.Synchronize(); }
    SECTION("Seen by a copy that waits") { status = bad.device.CopyToHost(&sum, bad.data.get(), sizeof(sum)); }
    SECTION("Seen by a copy that does not") { status = value->StartCopy(bad.data.get()); }
    CHECK(absl::IsInternal(status));
    CHECK_THAT(std::string(status.message()), Contains("a kernel has failed"));
    CHECK(good.device.Synchronize().ok());
  }
  cudaSetDevice(0);
  CHECK(cuda_emulation::TakeError() == "a kernel has failed");
}

}  // namespace
}  // namespace official::compute
