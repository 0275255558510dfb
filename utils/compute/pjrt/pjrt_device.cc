#include "utils/compute/pjrt/pjrt_device.h"

#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/kernel.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_program.h"

namespace official::compute {
namespace {

PjrtMemory& MemoryOf(const void* memory) { return *static_cast<PjrtMemory*>(const_cast<void*>(memory)); }

absl::StatusOr<Kernel> MakeHloModule(const KernelSpec& spec) {
  auto& device = static_cast<PjrtDevice&>(spec.device);
  ASSIGN_OR_RETURN(std::shared_ptr<PjrtExecutable> executable,
                   device.client().Compile(spec.attrs().Get<std::string>("text")));
  std::vector<TensorType> inputs;
  for (const Value& v : spec.node.inputs()) inputs.push_back(v.type());
  const absl::Span<const TensorType> types = spec.node.output_types();
  const std::vector<int64_t> updated = spec.attrs().GetInts("updated");
  return Kernel{[&device, executable = std::move(executable), inputs = std::move(inputs),
                 outputs = std::vector<TensorType>(types.begin(), types.end()), updated,
                 checks = HloChecksOf(spec.node)](const KernelArgs& args) -> absl::Status {
    RETURN_IF_ERROR(device.Synchronize());
    std::vector<PjrtBuffer> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSIGN_OR_RETURN(PjrtBuffer buffer, MemoryOf(args.inputs[i]).Buffer(inputs[i]));
      arguments.push_back(std::move(buffer));
    }
    const size_t num_results = outputs.size() + updated.size() + (checks.empty() ? 0 : 1);
    ASSIGN_OR_RETURN(std::vector<PjrtBuffer> results,
                     executable->Execute(device.device(), arguments, static_cast<int>(num_results)));
    for (size_t i = 0; i < outputs.size(); ++i) MemoryOf(args.outputs[i]).Set(outputs[i], std::move(results[i]));
    for (size_t k = 0; k < updated.size(); ++k) {
      MemoryOf(args.inputs[updated[k]]).Set(inputs[updated[k]], std::move(results[outputs.size() + k]));
    }
    if (!checks.empty()) device.AddChecks(checks, std::move(results.back()));
    return absl::OkStatus();
  }};
}

// `open` returns the client of all devices of the kind.
DeviceKind KindOf(std::function<absl::StatusOr<std::shared_ptr<PjrtClient>>()> open) {
  AddHloEmittersToKernels();
  const auto make = [open = std::move(open)](const DeviceOptions& device) -> absl::StatusOr<std::unique_ptr<Device>> {
    ASSIGN_OR_RETURN(std::shared_ptr<PjrtClient> client, open());
    const int count = static_cast<int>(client->devices().size());
    if (device.index < 0 || device.index >= count) {
      return absl::FailedPreconditionError(absl::StrCat("there is no ", client->platform(), ":", device.index,
                                                        ": the PJRT plugin ", client->plugin().path(), " has ", count,
                                                        count == 1 ? " device" : " devices"));
    }
    return std::make_unique<PjrtDevice>(std::move(client), device.index);
  };
  return {.name = kPjrtKind, .make_device = make, .merge = EmitProgram};
}

const bool registered = RegisterKernel({.op = op::HloModule,
                                        .device_kind = kPjrtKind,
                                        .dtypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                                                   DType::kInt32, DType::kInt64, DType::kUInt8, DType::kBool},
                                        .make = MakeHloModule});

}  // namespace

absl::StatusOr<PjrtBuffer> PjrtMemory::Buffer(const TensorType& type) {
  if (buffer_ == nullptr) {
    OFFICIAL_CHECK(type.num_bytes() == static_cast<int64_t>(host_.size()))
        << type.ToString() << " in " << host_.size() << " bytes";
    ASSIGN_OR_RETURN(PjrtBuffer buffer, client_->ToDevice(device_, type, host_.data()));
    Set(type, std::move(buffer));
  }
  OFFICIAL_CHECK(type == type_) << "a value is read as " << type.ToString() << " and as " << type_.ToString();
  return buffer_;
}

void PjrtMemory::Set(const TensorType& type, PjrtBuffer buffer) {
  type_ = type;
  buffer_ = std::move(buffer);
  host_ = {};
}

absl::Status PjrtMemory::CopyFrom(const void* host, int64_t bytes) {
  if (buffer_ == nullptr) {
    OFFICIAL_CHECK(bytes <= static_cast<int64_t>(host_.size()));
    if (bytes > 0) std::memcpy(host_.data(), host, bytes);
    return absl::OkStatus();
  }
  OFFICIAL_CHECK(bytes == type_.num_bytes()) << bytes << " bytes of " << type_.ToString();
  ASSIGN_OR_RETURN(buffer_, client_->ToDevice(device_, type_, host));
  return absl::OkStatus();
}

absl::Status PjrtMemory::CopyTo(void* host, int64_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  if (buffer_ == nullptr) {
    OFFICIAL_CHECK(bytes <= static_cast<int64_t>(host_.size()));
    std::memcpy(host, host_.data(), bytes);
    return absl::OkStatus();
  }
  OFFICIAL_CHECK(bytes == type_.num_bytes()) << bytes << " bytes of " << type_.ToString();
  return client_->ToHost(buffer_.get(), type_, host);
}

PjrtDevice::PjrtDevice(std::shared_ptr<PjrtClient> client, int index)
    : client_(std::move(client)), index_(index), name_(absl::StrCat(client_->platform(), ":", index)) {}

absl::string_view PjrtDevice::kind() const { return kPjrtKind; }

std::string PjrtDevice::Description() const { return absl::StrCat(name_, " (", Hardware(), ", by a PJRT plugin)"); }

absl::StatusOr<std::shared_ptr<void>> PjrtDevice::Allocate(int64_t bytes) {
  return std::make_shared<PjrtMemory>(client_, device(), bytes);
}

absl::Status PjrtDevice::CopyToDevice(void* device, const void* host, int64_t bytes) {
  RETURN_IF_ERROR(Synchronize());
  return MemoryOf(device).CopyFrom(host, bytes);
}

absl::Status PjrtDevice::CopyToHost(void* host, const void* device, int64_t bytes) {
  RETURN_IF_ERROR(Synchronize());
  return MemoryOf(device).CopyTo(host, bytes);
}

absl::Status PjrtDevice::Synchronize() {
  if (pending_.result == nullptr) return absl::OkStatus();
  const PendingChecks pending = std::exchange(pending_, {});
  int64_t result[1 + HloBuilder::kMaxCheckValues];
  RETURN_IF_ERROR(client_->ToHost(pending.result.get(), {DType::kInt64, {1 + HloBuilder::kMaxCheckValues}}, result));
  if (result[0] < 0) return absl::OkStatus();
  const HloCheck& check = pending.checks[result[0]];
  return absl::Status(check.code, absl::Substitute(check.message, result[1], result[2], result[3]));
}

absl::StatusOr<std::shared_ptr<PjrtClient>> OpenPjrtClient(const PjrtOptions& options) {
  ASSIGN_OR_RETURN(const PjrtPlugin* const plugin, PjrtPlugin::Load(options.plugin));
  return PjrtClient::Create(*plugin, options.num_cpu_devices);
}

DeviceKind PjrtDeviceKind(std::shared_ptr<PjrtClient> client) {
  const PjrtPlugin& plugin = client->plugin();
  DeviceKind kind =
      KindOf([client = std::move(client)]() -> absl::StatusOr<std::shared_ptr<PjrtClient>> { return client; });
  kind.library_versions = [&plugin] { return absl::StrCat("PJRT ", plugin.Version(), " of ", plugin.path()); };
  return kind;
}

DeviceKind PjrtDeviceKind(PjrtOptions options) {
  struct Shared {
    std::mutex mutex;
    std::shared_ptr<PjrtClient> client;  // of all devices
  };
  return KindOf([options = std::move(options),
                 shared = std::make_shared<Shared>()]() -> absl::StatusOr<std::shared_ptr<PjrtClient>> {
    const std::lock_guard<std::mutex> lock(shared->mutex);
    if (shared->client == nullptr) {
      ASSIGN_OR_RETURN(shared->client, OpenPjrtClient(options));
    }
    return shared->client;
  });
}

}  // namespace official::compute
