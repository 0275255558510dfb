#include "utils/compute/pjrt/pjrt_device.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/compute/pjrt/hlo_emitter.h"
#include "utils/compute/pjrt/hlo_program.h"
#include "utils/compute/pjrt/pjrt_group.h"

namespace official::compute {
namespace {

const TensorType kErrorType{DType::kInt64, {1 + HloBuilder::kMaxCheckValues}};

PjrtMemory& MemoryOf(const void* memory) { return *static_cast<PjrtMemory*>(const_cast<void*>(memory)); }

class PjrtHostBuffer : public HostBuffer {
 public:
  PjrtHostBuffer(PjrtDevice& device, int64_t num_bytes)
      : device_(device), num_bytes_(num_bytes), bytes_(std::make_shared<char[]>(num_bytes)) {}
  ~PjrtHostBuffer() override { Copied().IgnoreError(); }

  absl::Status StartCopy(const void* memory) override {
    RETURN_IF_ERROR(Copied());  // an earlier one
    num_runs_ = device_.num_runs();
    ASSIGN_OR_RETURN(copied_, MemoryOf(memory).StartCopyTo(bytes_, num_bytes_));
    return absl::OkStatus();
  }
  absl::StatusOr<const void*> Wait() override {
    const absl::Status copied = Copied();
    RETURN_IF_ERROR(device_.FinishRuns(num_runs_));  // the error of a run tells more
    RETURN_IF_ERROR(copied);
    return bytes_.get();
  }

 private:
  absl::Status Copied() { return copied_.Await("copying from a device"); }

  PjrtDevice& device_;
  const int64_t num_bytes_;
  const std::shared_ptr<char[]> bytes_;
  int64_t num_runs_ = 0;  // before the copy
  PjrtEvent copied_;
};

// A mark waits for the device.
class PjrtTimer : public DeviceTimer {
 public:
  explicit PjrtTimer(PjrtDevice& device) : device_(device) {}

  absl::Status Mark() override {
    RETURN_IF_ERROR(device_.Synchronize());
    marks_.push_back(std::chrono::steady_clock::now());
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<int64_t>> Read() override {
    std::vector<int64_t> times;
    for (const auto mark : marks_) times.push_back(std::chrono::nanoseconds(mark - marks_[0]).count());
    return times;
  }

 private:
  PjrtDevice& device_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

// `open` returns the client of all devices of the kind.
DeviceKind KindOf(std::function<absl::StatusOr<std::shared_ptr<PjrtClient>>()> open,
                  std::optional<HloOptions> hlo = {}) {
  AddHloEmittersToKernels();
  const auto make = [open](const DeviceOptions& device) -> absl::StatusOr<std::unique_ptr<Device>> {
    ASSIGN_OR_RETURN(std::shared_ptr<PjrtClient> client, open());
    const int count = static_cast<int>(client->devices().size());
    if (device.index < 0 || device.index >= count) {
      return absl::FailedPreconditionError(absl::StrCat("there is no ", client->platform(), ":", device.index,
                                                        ": the PJRT plugin ", client->plugin().path(), " has ", count,
                                                        count == 1 ? " device" : " devices"));
    }
    return std::make_unique<PjrtDevice>(std::move(client), device.index);
  };
  const auto merge = [open = std::move(open), hlo](const RewrittenGraph& program) -> absl::StatusOr<RewrittenGraph> {
    ASSIGN_OR_RETURN(const std::shared_ptr<PjrtClient> client, open());
    return EmitProgram(program, hlo ? *hlo : HloOptionsFor(client->platform()));
  };
  return {.name = kPjrtKind,
          .make_device = make,
          .all_reduce = AllReduceAlgorithm{"pjrt", PjrtGroup::Make},
          .merge = merge};
}

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
  if (bytes == 0 || buffer_ == nullptr) {
    CopyHostBytes(host, bytes);
    return absl::OkStatus();
  }
  OFFICIAL_CHECK(bytes == type_.num_bytes()) << bytes << " bytes of " << type_.ToString();
  return client_->ToHost(buffer_.get(), type_, host);
}

absl::StatusOr<PjrtEvent> PjrtMemory::StartCopyTo(std::shared_ptr<char[]> host, int64_t bytes) const {
  if (bytes == 0 || buffer_ == nullptr) {
    CopyHostBytes(host.get(), bytes);
    return PjrtEvent();
  }
  OFFICIAL_CHECK(bytes == type_.num_bytes()) << bytes << " bytes of " << type_.ToString();
  return client_->StartToHost(buffer_.get(), type_, std::move(host));
}

void PjrtMemory::CopyHostBytes(void* host, int64_t bytes) const {
  if (bytes == 0) return;
  OFFICIAL_CHECK(bytes <= static_cast<int64_t>(host_.size()));
  std::memcpy(host, host_.data(), bytes);
}

PjrtDevice::PjrtDevice(std::shared_ptr<PjrtClient> client, int index)
    : client_(std::move(client)), index_(index), name_(absl::StrCat(client_->platform(), ":", index)) {}

absl::string_view PjrtDevice::kind() const { return kPjrtKind; }

PjrtDevice::~PjrtDevice() { Synchronize().IgnoreError(); }

std::string PjrtDevice::Description() const { return absl::StrCat(name_, " (", Hardware(), ", by a PJRT plugin)"); }

absl::StatusOr<std::shared_ptr<void>> PjrtDevice::Allocate(int64_t bytes) {
  return std::make_shared<PjrtMemory>(client_, device(), bytes);
}

absl::Status PjrtDevice::CopyToDevice(void* device, const void* host, int64_t bytes) {
  // Runs that are under way have the buffer that was there before. The next one would find their errors, too.
  RETURN_IF_ERROR(BeginRun());
  return MemoryOf(device).CopyFrom(host, bytes);
}

absl::Status PjrtDevice::CopyToHost(void* host, const void* device, int64_t bytes) {
  RETURN_IF_ERROR(Synchronize());
  return MemoryOf(device).CopyTo(host, bytes);
}

absl::StatusOr<std::unique_ptr<HostBuffer>> PjrtDevice::MakeHostBuffer(int64_t bytes) {
  return std::make_unique<PjrtHostBuffer>(*this, bytes);
}

absl::StatusOr<std::unique_ptr<DeviceTimer>> PjrtDevice::MakeTimer() { return std::make_unique<PjrtTimer>(*this); }

absl::Status PjrtDevice::ErrorOf(Run& run) {
  RETURN_IF_ERROR(run.done.Await("running a program"));
  if (run.error == nullptr) return absl::OkStatus();
  int64_t error[1 + HloBuilder::kMaxCheckValues];
  RETURN_IF_ERROR(client_->ToHost(run.error.get(), kErrorType, error));
  if (error[0] < 0) return absl::OkStatus();
  const HloCheck& check = (*run.checks)[error[0]];
  return absl::Status(check.code, absl::Substitute(check.message, error[1], error[2], error[3]));
}

absl::Status PjrtDevice::FinishOldest() {
  Run run = std::move(runs_.front());
  runs_.pop_front();
  absl::Status status = ErrorOf(run);
  if (status.ok()) return status;
  for (Run& later : runs_) later.done.Await("running a program").IgnoreError();
  runs_.clear();
  error_ = nullptr;
  return status;
}

absl::Status PjrtDevice::FinishRuns(int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!runs_.empty() && num_runs_ - static_cast<int64_t>(runs_.size()) < count) RETURN_IF_ERROR(FinishOldest());
  return absl::OkStatus();
}

int64_t PjrtDevice::num_runs() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_runs_;
}

absl::Status PjrtDevice::Synchronize() { return FinishRuns(num_runs()); }

absl::Status PjrtDevice::BeginRun() { return FinishRuns(num_runs() - kMaxRunsBehind + 1); }

absl::StatusOr<PjrtBuffer> PjrtDevice::LastError() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ == nullptr) {
    constexpr int64_t kNone[1 + HloBuilder::kMaxCheckValues] = {-1};
    ASSIGN_OR_RETURN(error_, client_->ToDevice(device(), kErrorType, kNone));
  }
  return error_;
}

void PjrtDevice::EndRun(std::shared_ptr<const std::vector<HloCheck>> checks, PjrtBuffer error, PjrtEvent done) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error != nullptr) error_ = error;
  runs_.push_back({std::move(checks), std::move(error), std::move(done)});
  ++num_runs_;
}

absl::StatusOr<std::shared_ptr<PjrtClient>> OpenPjrtClient(const PjrtOptions& options) {
  ASSIGN_OR_RETURN(const PjrtPlugin* const plugin, PjrtPlugin::Load(options.plugin, options.waits));
  return PjrtClient::Create(*plugin, options.client);
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
  const std::optional<HloOptions> hlo = options.hlo;
  return KindOf(
      [options = std::move(options),
       shared = std::make_shared<Shared>()]() -> absl::StatusOr<std::shared_ptr<PjrtClient>> {
        const std::lock_guard<std::mutex> lock(shared->mutex);
        if (shared->client == nullptr) {
          ASSIGN_OR_RETURN(shared->client, OpenPjrtClient(options));
        }
        return shared->client;
      },
      hlo);
}

}  // namespace official::compute
