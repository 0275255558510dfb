// The devices of a PJRT plugin as devices of kind "pjrt". They run no kernels one by one: the graph of a program is
// written as one StableHLO module (hlo_program.h), which the plugin compiles.
//
// The memory that Allocate returns stands for a value: bytes on the host until a program reads it, which knows its
// type, from then on a buffer of the plugin. A program that updates a variable takes its buffer and puts the new
// value's in its place.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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
  std::string plugin;  // path
  PjrtClientOptions client = {};
  PjrtWaits waits = {};
  std::optional<HloOptions> hlo = {};  // without it HloOptionsFor the plugin's platform
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
  // The same without waiting for the device.
  absl::StatusOr<PjrtEvent> StartCopyTo(std::shared_ptr<char[]> host, int64_t bytes) const;

 private:
  void CopyHostBytes(void* host, int64_t bytes) const;

  const std::shared_ptr<const PjrtClient> client_;
  PJRT_Device* const device_;
  std::vector<char> host_;  // the bytes; empty if there is a buffer
  TensorType type_;         // of the buffer
  PjrtBuffer buffer_;
};

class PjrtDevice : public Device {
 public:
  PjrtDevice(std::shared_ptr<PjrtClient> client, int index);

  ~PjrtDevice() override;

  PjrtClient& client() const { return *client_; }
  std::shared_ptr<const PjrtClient> shared_client() const { return client_; }
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
  absl::StatusOr<std::unique_ptr<HostBuffer>> MakeHostBuffer(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeTimer() override;
  void MakeCurrent() override {}
  // Also returns the first error that the checks of a run have found.
  absl::Status Synchronize() override;

  // A run of a module. The device may lag behind by kMaxRunsBehind runs: BeginRun waits for older ones and returns
  // their error.
  absl::Status BeginRun();
  // The error of the runs so far, as HloBuilder::Module takes it.
  absl::StatusOr<PjrtBuffer> LastError();
  // `error`, null if the module has none, is what its checks have found; `done` is when the device is through.
  void EndRun(std::shared_ptr<const std::vector<HloCheck>> checks, PjrtBuffer error, PjrtEvent done);
  // Waits for the first `count` runs of all and returns the first error.
  absl::Status FinishRuns(int64_t count);
  int64_t num_runs();

 private:
  struct Run {
    std::shared_ptr<const std::vector<HloCheck>> checks;
    PjrtBuffer error;
    PjrtEvent done;
  };

  // Waits for the oldest run that is under way. After an error the others, which have changed nothing, are over, too.
  absl::Status FinishOldest();
  absl::Status ErrorOf(Run& run);

  const std::shared_ptr<PjrtClient> client_;
  const int index_;
  const std::string name_;
  std::mutex mutex_;      // of what follows: a HostBuffer may be waited for on any thread
  std::deque<Run> runs_;  // that are under way
  int64_t num_runs_ = 0;  // of all
  PjrtBuffer error_;      // of the last run; null: there is none
};

}  // namespace official::compute
