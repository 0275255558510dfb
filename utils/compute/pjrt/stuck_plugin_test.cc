// A device that never does its work: no wait for it takes longer than the deadline, and no second wait takes any time.

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "utils/compute/pjrt/client.h"
#include "utils/compute/pjrt/pjrt_device.h"

namespace official::compute {
namespace {

constexpr char kPlugin[] = "utils/compute/pjrt/libstuck_plugin.so";
constexpr char kModule[] = "module @m {\n  func.func public @main(%a: tensor<2xf32>) -> (tensor<2xf32>) {\n  }\n}\n";

// What is told of a wait once it has taken two seconds, also by a plugin that outlives the test.
struct Told {
  std::mutex mutex;
  std::vector<std::string> messages;
};

TEST_CASE("Waits for a plugin that is stuck end after the deadline, with what they are for, and free nothing") {
  const TensorType type{DType::kFloat32, {2}};
  const float ones[] = {1, 1};
  const auto told = std::make_shared<Told>();
  const auto begin = std::chrono::steady_clock::now();
  {
    auto client = OpenPjrtClient({.plugin = kPlugin,
                                  .waits = {.deadline = std::chrono::seconds(3),
                                            .set_by = "--all_reduce_timeout_secs",
                                            .tell_every = std::chrono::seconds(1),
                                            .tell =
                                                [told](const std::string& message) {
                                                  const std::lock_guard<std::mutex> lock(told->mutex);
                                                  told->messages.push_back(message);
                                                }}})
                      .value();
    PjrtDevice device(client, 0);
    CHECK(device.Hardware() == "stuck");
    const auto executable = client->Compile(kModule).value();
    const std::shared_ptr<void> memory = device.Allocate(8).value();
    REQUIRE(device.CopyToDevice(memory.get(), ones, 8).ok());
    auto& value = *static_cast<PjrtMemory*>(memory.get());
    PjrtResults run = executable->Execute(device.device(), {value.Buffer(type).value()}, 1).value();
    value.Set(type, run.buffers[0]);
    device.EndRun(nullptr, nullptr, std::move(run.done));
    const auto host = device.MakeHostBuffer(8).value();
    REQUIRE(host->StartCopy(memory.get()).ok());

    CHECK(device.Synchronize() ==
          absl::DeadlineExceededError("running a program: the PJRT plugin utils/compute/pjrt/libstuck_plugin.so has "
                                      "not done this within 3 s; --all_reduce_timeout_secs sets how long it may take"));
    CHECK(absl::IsDeadlineExceeded(host->Wait().status()));
    float copy[2];
    const absl::Status copied = device.CopyToHost(copy, memory.get(), 8);
    CHECK(absl::IsDeadlineExceeded(copied));
    CHECK_THAT(std::string(copied.message()), Catch::StartsWith("copying from a device: the PJRT plugin "));
  }
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(3));
  // Only the first wait has taken any time.
  const std::lock_guard<std::mutex> lock(told->mutex);
  for (const std::string& message : told->messages) CHECK_THAT(message, Catch::StartsWith("running a program: "));
}

}  // namespace
}  // namespace official::compute
