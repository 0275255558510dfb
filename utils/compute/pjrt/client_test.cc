#include "utils/compute/pjrt/client.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace official::compute {
namespace {

const PjrtPlugin& Plugin(const std::string& name) {
  const auto plugin = PjrtPlugin::Load(absl::StrCat(std::getenv("TEST_SRCDIR"), "/pjrt/", name, ".so"));
  INFO(plugin.status());
  REQUIRE(plugin.ok());
  return **plugin;
}

const PjrtPlugin& AnyPlugin() { return Plugin(GENERATE(as<std::string>{}, "xla_cpu", "other_xla_cpu")); }

// True if the buffer's memory is not its own any more.
bool IsDeleted(const PjrtPlugin& plugin, const PjrtBuffer& buffer) {
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Buffer_IsDeleted);
  args.buffer = buffer.get();
  REQUIRE(plugin.Call(plugin.api().PJRT_Buffer_IsDeleted, args, "asking").ok());
  return args.is_deleted;
}

constexpr char kDouble[] = R"(
module @m {
  func.func public @main(%a: tensor<2x3xf32> {tf.aliasing_output = 1 : i32}, %b: tensor<2x3xf32>)
      -> (tensor<3x2xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.transpose %b, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = stablehlo.add %a, %b : tensor<2x3xf32>
    return %0, %1 : tensor<3x2xf32>, tensor<2x3xf32>
  }
})";

TEST_CASE("A client compiles a module and runs it on each of its devices") {
  const PjrtPlugin& plugin = AnyPlugin();
  const auto client = PjrtClient::Create(plugin, {.num_cpu_devices = 2}).value();
  CHECK(client->platform() == "cpu");
  REQUIRE(client->devices().size() == 2);
  CHECK(client->KindOf(client->devices()[1]) == client->KindOf(client->devices()[0]));
  const auto executable = client->Compile(kDouble).value();
  const TensorType type{DType::kFloat32, {2, 3}};
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {10, 20, 30, 40, 50, 60};
  for (PJRT_Device* const device : client->devices()) {
    // A buffer that is a result, and so an argument of the next run.
    PjrtBuffer sum = client->ToDevice(device, type, a.data()).value();
    const PjrtBuffer right = client->ToDevice(device, type, b.data()).value();
    PjrtResults results;
    for (int run = 0; run < 3; ++run) {
      const PjrtBuffer updated = sum;
      CHECK(!IsDeleted(plugin, updated));
      results = executable->Execute(device, {sum, right}, 2).value();
      sum = results.buffers[1];
      // The module has taken the one that it updates, and leaves the other.
      CHECK(IsDeleted(plugin, updated));
      CHECK(!IsDeleted(plugin, right));
    }
    CHECK(results.done.Await("the last run").ok());
    std::vector<float> got(6);
    REQUIRE(client->ToHost(results.buffers[0].get(), {DType::kFloat32, {3, 2}}, got.data()).ok());
    CHECK(got == std::vector<float>{10, 40, 20, 50, 30, 60});
    REQUIRE(client->ToHost(sum.get(), type, got.data()).ok());
    CHECK(got == std::vector<float>{31, 62, 93, 124, 155, 186});
  }
}

constexpr char kSumOverDevices[] = R"(
module @m {
  func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      "stablehlo.return"(%s) : (tensor<f32>) -> ()
    }) {replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
})";

TEST_CASE("Devices run a module together, which sums over them") {
  const PjrtPlugin& plugin = AnyPlugin();
  const auto client = PjrtClient::Create(plugin, {.num_cpu_devices = 3}).value();
  const auto executable = client->CompileForAll(kSumOverDevices, client->devices()).value();
  const TensorType type{DType::kFloat32, {2}};
  std::vector<std::vector<PjrtBuffer>> arguments;
  for (int d = 0; d < 3; ++d) {
    const std::vector<float> a = {1.0f + d, 10.0f * d};
    arguments.push_back({client->ToDevice(client->devices()[d], type, a.data()).value()});
  }
  std::vector<PjrtResults> results = executable->ExecuteOnAll(arguments, 1).value();
  REQUIRE(results.size() == 3);
  for (PjrtResults& result : results) {
    CHECK(result.done.Await("the run").ok());
    std::vector<float> got(2);
    REQUIRE(client->ToHost(result.buffers[0].get(), type, got.data()).ok());
    CHECK(got == std::vector<float>{6, 30});
  }
}

TEST_CASE("One of the plugins is newer than the header, which has fewer functions") {
  const PJRT_Api& newer = Plugin("other_xla_cpu").api();
  CHECK(newer.pjrt_api_version.minor_version > PJRT_API_MINOR);
  CHECK(newer.struct_size > PJRT_Api_STRUCT_SIZE);
}

TEST_CASE("A module that is wrong is refused with the compiler's reason") {
  const PjrtPlugin& plugin = AnyPlugin();
  const auto client = PjrtClient::Create(plugin).value();
  const absl::Status status =
      client
          ->Compile(
              "module { func.func public @main(%a: tensor<2xf32>) -> tensor<3xf32> { return %a : tensor<2xf32> } }")
          .status();
  CHECK(!status.ok());
  CHECK_THAT(std::string(status.message()),
             Catch::StartsWith("compiling a program: ") && Catch::Contains("tensor<3xf32>"));
}

}  // namespace
}  // namespace official::compute
