// PjrtClient: the devices of a plugin, buffers in their memory and modules compiled for them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/pjrt/executable_cache.h"
#include "utils/compute/pjrt/plugin.h"

namespace official::compute {

// XLA's CompileOptionsProto, serialized: for one replica, which any of a client's devices runs, or for several devices
// that run the module together.
std::string PjrtCompileOptions(int num_replicas = 1);
// The text of a StableHLO module, which must outlive the result.
PJRT_Program PjrtProgramOf(absl::string_view module);

// A tensor in the memory of one device. It is freed when the last copy of this is gone.
using PjrtBuffer = std::shared_ptr<PJRT_Buffer>;

// Something that a device does. Who does not wait for it may let it go, unless it writes memory.
class PjrtEvent {
 public:
  PjrtEvent() = default;
  // `memory` is what the device writes until then.
  PjrtEvent(const PjrtPlugin& plugin, PJRT_Event* event, std::shared_ptr<const void> memory = nullptr)
      : plugin_(&plugin), event_(event), memory_(std::move(memory)) {}
  PjrtEvent(PjrtEvent&& other) noexcept { *this = std::move(other); }
  PjrtEvent& operator=(PjrtEvent&& other) noexcept {
    std::swap(plugin_, other.plugin_);
    std::swap(event_, other.event_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~PjrtEvent();

  // Waits for it and returns its error, "<what>: ..."; OK if there is nothing to wait for, or was waited before.
  // Errors: as PjrtPlugin::Await.
  absl::Status Await(absl::string_view what);

 private:
  const PjrtPlugin* plugin_ = nullptr;
  PJRT_Event* event_ = nullptr;
  std::shared_ptr<const void> memory_;
};

// The results of a module on a device, which are there once it has been given the work.
struct PjrtResults {
  std::vector<PjrtBuffer> buffers;
  PjrtEvent done;
};

class PjrtClient;

// A module that a client has compiled: for one device at a time, or for several that run it together.
class PjrtExecutable {
 public:
  PjrtExecutable(std::shared_ptr<const PjrtClient> client, const PjrtPlugin& plugin, PJRT_LoadedExecutable* executable)
      : client_(std::move(client)), plugin_(plugin), executable_(executable) {}
  PjrtExecutable(const PjrtExecutable&) = delete;
  PjrtExecutable& operator=(const PjrtExecutable&) = delete;
  ~PjrtExecutable();

  // Runs the module on a device, where the arguments are; it has `num_results` results. Buffers of arguments that the
  // module updates are gone then.
  absl::StatusOr<PjrtResults> Execute(PJRT_Device* device, absl::Span<const PjrtBuffer> arguments, int num_results);
  // The same on all devices of CompileForAll, in their order.
  absl::StatusOr<std::vector<PjrtResults>> ExecuteOnAll(absl::Span<const std::vector<PjrtBuffer>> arguments,
                                                        int num_results);

 private:
  friend class PjrtClient;
  absl::StatusOr<std::vector<PjrtResults>> Run(PJRT_Device* device, absl::Span<const std::vector<PJRT_Buffer*>> inputs,
                                               int num_results);

  const std::shared_ptr<const PjrtClient> client_;  // outlives what it has compiled
  const PjrtPlugin& plugin_;
  PJRT_LoadedExecutable* const executable_;
  std::vector<size_t> places_;  // among the devices of CompileForAll, of those that the plugin lists
};

struct PjrtClientOptions {
  int num_cpu_devices = 0;  // of a plugin for CPUs, which alone let one choose; 0: its own default
};

class PjrtClient : public std::enable_shared_from_this<PjrtClient> {
 public:
  // Makes the client of a plugin. FailedPrecondition if it has no device.
  static absl::StatusOr<std::shared_ptr<PjrtClient>> Create(const PjrtPlugin& plugin,
                                                            const PjrtClientOptions& options = {});
  PjrtClient(const PjrtClient&) = delete;
  PjrtClient& operator=(const PjrtClient&) = delete;
  ~PjrtClient();

  const PjrtPlugin& plugin() const { return plugin_; }
  // "cpu", "tpu"
  const std::string& platform() const { return platform_; }
  // The devices of this process.
  const std::vector<PJRT_Device*>& devices() const { return devices_; }
  // The model of a device, such as "TPU v5 lite"; its number is not part of it.
  std::string KindOf(PJRT_Device* device) const;

  // Compiles the text of a StableHLO module; all who ask for the same text get the same.
  absl::StatusOr<std::shared_ptr<PjrtExecutable>> Compile(const std::string& module) const;
  // The same for these devices, the client's first ones, which run it together: as replicas, which can sum.
  absl::StatusOr<std::unique_ptr<PjrtExecutable>> CompileForAll(absl::string_view module,
                                                                absl::Span<PJRT_Device* const> devices) const;
  // Copies row-major elements to a device. `data` has been read on return.
  absl::StatusOr<PjrtBuffer> ToDevice(PJRT_Device* device, const TensorType& type, const void* data) const;
  // Copies a buffer's elements in row-major order, as many as `type` has, once they are computed.
  absl::Status ToHost(PJRT_Buffer* buffer, const TensorType& type, void* data) const;
  // The same without waiting.
  absl::StatusOr<PjrtEvent> StartToHost(PJRT_Buffer* buffer, const TensorType& type,
                                        std::shared_ptr<char[]> data) const;

 private:
  PjrtClient(const PjrtPlugin& plugin, PJRT_Client* client) : plugin_(plugin), client_(client) {}
  absl::Status Describe();
  absl::StatusOr<std::unique_ptr<PjrtExecutable>> CompileWith(absl::string_view module, int num_replicas) const;

  const PjrtPlugin& plugin_;
  PJRT_Client* const client_;
  std::string platform_;
  std::vector<PJRT_Device*> devices_;
  mutable ExecutableCache executables_;  // of Compile
};

}  // namespace official::compute
