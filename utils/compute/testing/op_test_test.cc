#include "utils/compute/testing/op_test.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "utils/compute/graph/op_def.h"

namespace official::compute {
namespace {

constexpr OpName kTestCopy("TestCopy"), kTestCopyOnCpu("TestCopyOnCpu");
const bool ops = RegisterOp({.name = kTestCopy, .infer = SameTypeAsInput}) &&
                 RegisterOp({.name = kTestCopyOnCpu, .infer = SameTypeAsInput});

bool RegisterCopy(OpName op, const std::string& kind) {
  return RegisterKernel(
      {.op = op, .device_kind = kind, .dtypes = {DType::kFloat32}, .make = [](const KernelSpec& spec) {
         return Kernel{[n = spec.input(0).shape.num_elements()](const KernelArgs& args) {
           std::copy_n(args.input<float>(0), n, args.output<float>(0));
           return absl::OkStatus();
         }};
       }});
}

// The kind "other" has a kernel of TestCopy only. Its devices are the CPU's; this counts them.
int num_others = 0;
const bool kernels =
    RegisterCopy(kTestCopy, "cpu") && RegisterCopy(kTestCopy, "other") && RegisterCopy(kTestCopyOnCpu, "cpu");
const bool kind = RegisterDeviceKind({.name = "other", .make_device = [](const DeviceOptions& options) {
                                        ++num_others;
                                        return MakeDevice("cpu", options);
                                      }});

TEST_CASE("A case runs on the kinds of device that have all the ops it needs") {
  testing::OpCase test{
      .op = kTestCopy,
      .inputs = {testing::RandomTensor({3}, 1)},
      .build = [](absl::Span<const Value> in) { return std::vector<Value>{Apply(kTestCopy, {in[0]})}; },
      .reference = [](const std::vector<testing::Doubles>& in) { return in; },
  };
  testing::CheckForward(test);
  CHECK(num_others == 1);

  test.build = [](absl::Span<const Value> in) {
    return std::vector<Value>{Apply(kTestCopy, {Apply(kTestCopyOnCpu, {in[0]})})};
  };
  test.needs = {kTestCopyOnCpu};
  testing::CheckForward(test);
  CHECK(num_others == 1);
}

testing::OpCase CopyOf(float x, double want) {
  return {
      .op = kTestCopyOnCpu,
      .inputs = {Tensor::Scalar(x)},
      .build = [](absl::Span<const Value> in) { return std::vector<Value>{Apply(kTestCopyOnCpu, {in[0]})}; },
      .reference = [=](const std::vector<testing::Doubles>&) { return std::vector<testing::Doubles>{{want}}; },
  };
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_CASE("Infinities of one sign are equal") {
  testing::CheckForward(CopyOf(std::numeric_limits<float>::infinity(), kInfinity));
  testing::CheckForward(CopyOf(-std::numeric_limits<float>::infinity(), -kInfinity));
}

TEST_CASE("No number is close to infinity", "[!shouldfail]") { testing::CheckForward(CopyOf(3, kInfinity)); }

TEST_CASE("No number is close to minus infinity", "[!shouldfail]") { testing::CheckForward(CopyOf(3, -kInfinity)); }

TEST_CASE("Infinity is not close to minus infinity", "[!shouldfail]") {
  testing::CheckForward(CopyOf(std::numeric_limits<float>::infinity(), -kInfinity));
}

}  // namespace
}  // namespace official::compute
