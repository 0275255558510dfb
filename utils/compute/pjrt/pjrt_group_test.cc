#include "utils/compute/pjrt/pjrt_group.h"

#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/pjrt/pjrt_device.h"
#include "utils/compute/pjrt/plugin_of_tests.h"

namespace official::compute {
namespace {

using std::chrono::seconds;

const TensorType kPair{DType::kFloat32, {2}};

// Sums x over two devices, then what came of it, `times` times in all.
std::string SumModule(int times) {
  std::string body, last = "%x";
  for (int i = 0; i < times; ++i) {
    absl::StrAppend(&body, "    %s", i, R"( = "stablehlo.all_reduce"()", last, R"() ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      "stablehlo.return"(%c) : (tensor<f32>) -> ()
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
)");
    last = absl::StrCat("%s", i);
  }
  return absl::StrCat("module @m {\n  func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {\n", body,
                      "    return ", last, " : tensor<2xf32>\n  }\n}\n");
}

// The path of the plugin of the tests with a count of its compilations.
std::string CountingPlugin() {
  setenv("COUNTING_PLUGIN_OF", PluginOfTests().c_str(), /*overwrite=*/1);
  return "utils/compute/pjrt/libcounting_plugin.so";
}

// How often it has compiled.
int NumCompilations() {
  static const auto count =
      reinterpret_cast<int (*)()>(dlsym(dlopen(CountingPlugin().c_str(), RTLD_NOW | RTLD_LOCAL), "NumCompilations"));
  return count();
}

// Two devices of a plugin that sum, and a thread for each.
class Pair {
 public:
  explicit Pair(seconds deadline, const std::string& plugin = PluginOfTests()) {
    client_ = OpenPjrtClient({.plugin = plugin, .client = {.num_cpu_devices = 2}}).value();
    for (int d = 0; d < 2; ++d) devices_.push_back(std::make_unique<PjrtDevice>(client_, d));
    Device* const devices[] = {devices_[0].get(), devices_[1].get()};
    group_ = PjrtGroup::Make(devices, deadline, std::nullopt).value();
  }

  CommunicatorGroup& group() { return *group_; }
  PjrtClient& client() { return *client_; }
  PjrtGroup::Member& member(int d) { return static_cast<PjrtGroup::Member&>(group_->communicator(d)); }

  // The sum on a device that brings {d, 10 * d} for its number d.
  absl::StatusOr<std::vector<float>> Sum(int d, int times = 1) {
    const std::shared_ptr<PjrtExecutable> executable = member(d).Compile(SumModule(times)).value();
    const std::vector<float> x = {1.0f + static_cast<float>(d), 10.0f * static_cast<float>(d)};
    std::vector<PjrtBuffer> arguments = {client_->ToDevice(devices_[d]->device(), kPair, x.data()).value()};
    auto results = member(d).Execute(*executable, std::move(arguments), 1);
    if (!results.ok()) return results.status();
    std::vector<float> sum(2);
    const absl::Status copied = client_->ToHost(results->buffers[0].get(), kPair, sum.data());
    if (!copied.ok()) return copied;
    return sum;
  }

  // The sums on both, whose modules sum so many times.
  std::vector<absl::StatusOr<std::vector<float>>> SumOnBoth(int times_of_0 = 1, int times_of_1 = 1) {
    std::vector<absl::StatusOr<std::vector<float>>> sums(2);
    std::thread other([&] { sums[1] = Sum(1, times_of_1); });
    sums[0] = Sum(0, times_of_0);
    other.join();
    return sums;
  }

 private:
  std::shared_ptr<PjrtClient> client_;
  std::vector<std::unique_ptr<PjrtDevice>> devices_;
  std::unique_ptr<CommunicatorGroup> group_;
};

TEST_CASE("Devices of a group sum what each brings") {
  Pair pair(seconds(60));
  for (int run = 0; run < 3; ++run) {
    for (const auto& sum : pair.SumOnBoth()) CHECK(sum.value() == std::vector<float>{3, 10});
  }
}

TEST_CASE("A device that does not come is named after the deadline, and the group works after a reset") {
  Pair pair(seconds(1));
  const absl::Status late = pair.Sum(0).status();
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(late.message() == "replica 0 has waited 1 s for replica 1; --all_reduce_timeout_secs sets how long it may");
  // What comes now must not run with the arguments of the one that has left.
  CHECK(pair.Sum(1).status() == absl::CancelledError("another device has failed"));
  REQUIRE(pair.group().Reset().ok());
  for (const auto& sum : pair.SumOnBoth()) CHECK(sum.value() == std::vector<float>{3, 10});
}

TEST_CASE("Abort ends the wait of a device at once") {
  Pair pair(seconds(3600));
  absl::Status status;
  std::thread waiting([&] { status = pair.Sum(0).status(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  pair.group().Abort(absl::InternalError("ill"));
  waiting.join();
  CHECK(status == absl::CancelledError("another device has failed"));
  CHECK(absl::IsCancelled(pair.Sum(1).status()));
  REQUIRE(pair.group().Reset().ok());
  for (const auto& sum : pair.SumOnBoth()) CHECK(sum.value() == std::vector<float>{3, 10});
}

TEST_CASE("A module that does not compile is compiled once for all devices, and again after a reset") {
  Pair pair(seconds(60), CountingPlugin());
  constexpr char kWrong[] = "module @m { wrong }";
  const int before = NumCompilations();
  const absl::Status status = pair.member(0).Compile(kWrong).status();
  CHECK(!status.ok());
  CHECK(pair.member(1).Compile(kWrong).status() == status);
  CHECK(NumCompilations() == before + 1);
  REQUIRE(pair.group().Reset().ok());
  CHECK(!pair.member(1).Compile(kWrong).ok());
  CHECK(NumCompilations() == before + 2);
  for (const auto& sum : pair.SumOnBoth()) CHECK(sum.value() == std::vector<float>{3, 10});
  CHECK(NumCompilations() == before + 3);
}

TEST_CASE("A module for one device that does not compile is compiled again for who asks later") {
  Pair pair(seconds(60), CountingPlugin());
  const int before = NumCompilations();
  for (int i = 0; i < 2; ++i) CHECK(!pair.client().Compile("module @m { wrong }").ok());
  CHECK(NumCompilations() == before + 2);
}

TEST_CASE("Devices that run one module by themselves have it compiled once") {
  Pair pair(seconds(60), CountingPlugin());
  const PjrtClient& client = pair.client();
  const std::string module =
      "module @m {\n  func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {\n"
      "    %y = stablehlo.add %x, %x : tensor<2xf32>\n    return %y : tensor<2xf32>\n  }\n}\n";
  const int before = NumCompilations();
  std::vector<std::shared_ptr<PjrtExecutable>> executables(2);
  std::thread other([&] { executables[1] = client.Compile(module).value(); });
  executables[0] = client.Compile(module).value();
  other.join();
  CHECK(NumCompilations() == before + 1);
  for (int d = 0; d < 2; ++d) {
    PJRT_Device* const device = client.devices()[d];
    const std::vector<float> x = {1.0f + static_cast<float>(d), 10};
    const PjrtBuffer argument = client.ToDevice(device, kPair, x.data()).value();
    const PjrtResults results = executables[d]->Execute(device, {argument}, 1).value();
    std::vector<float> twice(2);
    REQUIRE(client.ToHost(results.buffers[0].get(), kPair, twice.data()).ok());
    CHECK(twice == std::vector<float>{2 * x[0], 20});
  }
  executables.clear();
  CHECK(client.Compile(module).ok());  // nobody had it any more
  CHECK(NumCompilations() == before + 2);
}

TEST_CASE("Devices that run different modules are refused, and may run one module after that") {
  Pair pair(seconds(60));
  for (const auto& sum : pair.SumOnBoth(1, 2)) {
    CHECK(absl::IsInvalidArgument(sum.status()));
    CHECK_THAT(std::string(sum.status().message()), Catch::StartsWith("the devices compute different programs; "));
  }
  for (const auto& sum : pair.SumOnBoth(2, 2)) CHECK(sum.value() == std::vector<float>{6, 20});
}

}  // namespace
}  // namespace official::compute
