// The devices of a PJRT plugin as devices of kind "pjrt". They run no kernels one by one: the graph of a program is
// written as one StableHLO module (hlo_program.h), which the plugin compiles.
//
// The memory that Allocate returns stands for a value: bytes on the host until a program reads it, which knows its
// type, from then on a buffer of the plugin. A program that updates a variable takes its buffer and puts the new
// value's in its place.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/pjrt/client.h"
#include "utils/compute/pjrt/hlo_builder.h"

namespace official::compute {

struct PjrtOptions {
  std::string plugin;       // path
  int num_cpu_devices = 0;  // of a plugin for CPUs; 0: its own default
};

// Loads the plugin and makes its client. Errors: those of PjrtPlugin::Load and PjrtClient::Create.
absl::StatusOr<std::shared_ptr<PjrtClient>> OpenPjrtClient(const PjrtOptions& options);

// The kind "pjrt" of the devices of a client, for RegisterDeviceKind.
DeviceKind PjrtDeviceKind(std::shared_ptr<PjrtClient> client);
// The same, of a client that is opened when the first device is made.
DeviceKind PjrtDeviceKind(PjrtOptions options);

// Memory of a device.
class PjrtMemory {
 public:
  PjrtMemory(std::shared_ptr<const PjrtClient> client, PJRT_Device* device, int64_t bytes)
      : client_(std::move(client)), device_(device), host_(bytes, 0) {}

  // The buffer, whose elements are of this type; the value is copied to the device if it is not there yet.
  absl::StatusOr<PjrtBuffer> Buffer(const TensorType& type);
  void Set(const TensorType& type, PjrtBuffer buffer);
  absl::Status CopyFrom(const void* host, int64_t bytes);
  absl::Status CopyTo(void* host, int64_t bytes) const;

 private:
  const std::shared_ptr<const PjrtClient> client_;
  PJRT_Device* const device_;
  std::vector<char> host_;  // the bytes; empty if there is a buffer
  TensorType type_;         // of the buffer
  PjrtBuffer buffer_;
};

class PjrtDevice : public Device {
 public:
  PjrtDevice(std::shared_ptr<PjrtClient> client, int index);

  PjrtClient& client() const { return *client_; }
  PJRT_Device* device() const { return client_->devices()[index_]; }

  absl::string_view kind() const override;
  absl::string_view name() const override { return name_; }
  std::string Description() const override;
  std::string Hardware() const override { return client_->KindOf(device()); }
  absl::StatusOr<std::shared_ptr<void>> Allocate(int64_t bytes) override;
  bool uses_host_memory() const override { return false; }
  bool has_addresses() const override { return false; }
  absl::Status CopyToDevice(void* device, const void* host, int64_t bytes) override;
  absl::Status CopyToHost(void* host, const void* device, int64_t bytes) override;
  void MakeCurrent() override {}
  // Also returns the error of the last run, if its checks have found one.
  absl::Status Synchronize() override;

  // Leaves the result of the checks of a run, which HloBuilder::Module describes, to be read by the next call of
  // Synchronize or CopyToHost or the next run.
  void AddChecks(std::vector<HloCheck> checks, PjrtBuffer result) { pending_ = {std::move(checks), std::move(result)}; }

 private:
  struct PendingChecks {
    std::vector<HloCheck> checks;
    PjrtBuffer result;
  };

  const std::shared_ptr<PjrtClient> client_;
  const int index_;
  const std::string name_;
  PendingChecks pending_;
};

}  // namespace official::compute
