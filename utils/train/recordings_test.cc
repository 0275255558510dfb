// What replicas do with recordings of their programs: either all replay theirs, or none does. And that devices that sum
// together finish their runs before a program is compiled.

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/ops/optimizer/optimizer.h"
#include "utils/train/line_model.h"

namespace official::train {
namespace {

using compute::Tensor;

// What the devices of kind "recorder" were asked to do.
struct Calls {
  int recorded = 0, refused = 0, replayed = 0;
} calls;

std::atomic<int> num_waits = 0;  // of both devices

class NoReplay : public compute::Recording {
 public:
  absl::Status Replay() override {
    ++calls.replayed;
    return absl::InternalError("replayed");
  }
};

// Computes as the CPU, but as a device with memory of its own, and makes recordings. The second device cannot.
class RecorderDevice : public compute::Device {
 public:
  explicit RecorderDevice(const compute::DeviceOptions& options)
      : name_(absl::StrCat("recorder:", options.index)), cpu_(compute::MakeDevice("cpu", options).value()) {}
  absl::string_view kind() const override { return "recorder"; }
  absl::string_view name() const override { return name_; }
  std::string Description() const override { return name_; }
  std::string Hardware() const override { return "recorder"; }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override { return cpu_->Allocate(bytes); }
  bool uses_host_memory() const override { return false; }
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override {
    return cpu_->CopyToDevice(device, host, bytes);
  }
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override {
    return cpu_->CopyToHost(host, device, bytes);
  }
  void MakeCurrent() override { cpu_->MakeCurrent(); }
  absl::Status Synchronize() override {
    ++num_waits;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<compute::Recording>> Record(absl::FunctionRef<absl::Status()> run) override {
    if (absl::EndsWith(name_, ":1")) {
      ++calls.refused;
      return absl::UnavailableError("no recordings here");
    }
    ++calls.recorded;
    return std::make_unique<NoReplay>();
  }

 private:
  const std::string name_;
  const std::unique_ptr<compute::Device> cpu_;
};

// The kernels of the CPU are those of these devices, too.
void RegisterRecorders() {
  static const bool once = [] {
    for (const compute::KernelDef* cpu : compute::KernelRegistry::Global().All()) {
      compute::KernelDef kernel = *cpu;
      kernel.device_kind = "recorder";
      compute::RegisterKernel(std::move(kernel));
    }
    return compute::RegisterDeviceKind({.name = "recorder", .make_device = [](const compute::DeviceOptions& options) {
                                          return std::make_unique<RecorderDevice>(options);
                                        }});
  }();
  REQUIRE(once);
  calls = {};
  num_waits = 0;
}

// The status of a training of six steps on two recorders; with `w`, the weights afterwards.
absl::Status Train(compute::Recordings recordings, std::vector<float>* w = nullptr) {
  RegisterRecorders();
  auto strategy =
      distribute::Strategy::Create({.device_kind = "recorder", .num_replicas = 2, .recordings = recordings}).value();
  Model model = Line();
  model.optimizer = [](const compute::UpdateInputs& inputs, absl::Span<const compute::VariableGradient> variables) {
    return compute::Adam(inputs, variables, {});
  };
  const auto estimator = Estimator::Create(std::move(model), Config(), std::move(strategy)).value();
  const absl::Status status = estimator->Train(Input(1), 6, {});
  if (w != nullptr) {
    const Tensor value = estimator->Variable("w").value();
    w->assign(value.data<float>(), value.data<float>() + value.num_elements());
  }
  return status;
}

TEST_CASE("Where one replica cannot be recorded, none replays") {
  std::vector<float> w, without;
  const absl::Status status = Train(compute::Recordings::kAuto, &w);
  INFO(status);
  REQUIRE(status.ok());
  CHECK(calls.recorded == 1);
  CHECK(calls.refused == 1);
  CHECK(calls.replayed == 0);
  REQUIRE(Train(compute::Recordings::kOff, &without).ok());
  CHECK(calls.recorded + calls.refused == 0);
  CHECK(w == without);
  CHECK(w[0] != 0);
}

TEST_CASE("Where recordings must be made, a replica that cannot ends the training") {
  const absl::Status status = Train(compute::Recordings::kMust);
  INFO(status);
  CHECK_THAT(std::string(status.message()), Catch::Contains("no recordings here"));
  CHECK(calls.replayed == 0);
}

TEST_CASE("Devices that sum together wait for their runs before the program of a step is compiled") {
  REQUIRE(Train(compute::Recordings::kOff).ok());
  CHECK(num_waits == 2);
}

}  // namespace
}  // namespace official::train
