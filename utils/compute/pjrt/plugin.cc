#include "utils/compute/pjrt/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <glob.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::compute {
namespace {

// The oldest interface that is accepted, and the end of the last function that these classes call, in the order of
// PJRT_Api.
constexpr int kOldestMinor = 40;
constexpr size_t kNeededApi = offsetof(PJRT_Api, PJRT_Buffer_ToHostBuffer) + sizeof(PJRT_Buffer_ToHostBuffer*);
// The same of those that compile without a device.
constexpr size_t kNeededForCompiling =
    offsetof(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats) + sizeof(PJRT_Executable_GetCompiledMemoryStats*);

std::string MachineName(int machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "32-bit x86";
    case EM_AARCH64:
      return "64-bit ARM";
    case EM_ARM:
      return "32-bit ARM";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "POWER";
    default:
      return absl::StrCat("ELF machine ", machine);
  }
}

bool IsThere(const char* pattern) {
  glob_t found = {};
  const bool is_there = glob(pattern, 0, nullptr, &found) == 0;
  globfree(&found);
  return is_there;
}

// What dlopen would refuse with words that mislead.
absl::Status CheckFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no PJRT plugin ", path, ": ", std::strerror(errno)));
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (file.gcount() < static_cast<std::streamsize>(EI_NIDENT + 4) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_type != ET_DYN) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a PJRT plugin: it is no shared object"));
  }
  if (header.e_machine != EM_X86_64) {  // at the same place in files for 32 bits
    return absl::FailedPreconditionError(absl::StrCat("the PJRT plugin ", path, " is for ",
                                                      MachineName(header.e_machine), " processors, this program for ",
                                                      MachineName(EM_X86_64)));
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> OpenLibrary(const std::string& path) {
  RETURN_IF_ERROR(CheckFile(path));
  // A path, even where it has no slash: what else has the name in the system's folders is not meant.
  const std::string file = path.find('/') == std::string::npos ? absl::StrCat("./", path) : path;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  return absl::FailedPreconditionError(absl::StrCat("cannot load the PJRT plugin ", path, ": ", dlerror()));
}

absl::StatusOr<const PJRT_Api*> ApiOf(void* library, const std::string& path) {
  using GetApi = const PJRT_Api*();
  auto* const get_api = reinterpret_cast<GetApi*>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a PJRT plugin: it has no function GetPjrtApi"));
  }
  const PJRT_Api* const api = get_api();
  if (api != nullptr) return api;
  return absl::InvalidArgumentError(absl::StrCat(path, " is not a PJRT plugin: its GetPjrtApi gives nothing"));
}

absl::Status CheckVersion(const std::string& path, const PJRT_Api& api, size_t needed) {
  const int major = api.pjrt_api_version.major_version, minor = api.pjrt_api_version.minor_version;
  const std::string has = absl::StrCat(" version ", major, ".", minor, " of PJRT's C interface");
  if (major != PJRT_API_MAJOR || minor < kOldestMinor) {
    return absl::FailedPreconditionError(absl::StrCat("the PJRT plugin ", path, " has", has, "; this program needs ",
                                                      PJRT_API_MAJOR, ".", kOldestMinor, " or a later ", PJRT_API_MAJOR,
                                                      ".x"));
  }
  if (api.struct_size >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the PJRT plugin ", path, " says that it has", has, ", but lacks functions of it"));
}

// Initializing libtpu.so where there is no TPU would ask the network for one, for minutes.
absl::Status CheckTpu(const std::string& path, void* library) {
  const bool is_for_tpus = dlsym(library, "TfTpu_Initialize") != nullptr;  // its entry for TensorFlow
  // Made by the driver of the TPU, or of virtual machines that have one; a container may see any of them.
  const bool has_tpu = IsThere("/dev/accel[0-9]*") || IsThere("/dev/vfio/[0-9]*");
  if (!is_for_tpus || has_tpu) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the PJRT plugin ", path,
      " is for TPUs, and this machine has none: there is neither /dev/accel0 nor /dev/vfio/0, or a later one"));
}

// What a thread that waits for an event shares with the event, which may come when the thread has given up.
class Waiting {
 public:
  Waiting(const PjrtPlugin& plugin, absl::string_view what, std::shared_ptr<const void> memory)
      : plugin_(plugin), what_(what), memory_(std::move(memory)) {}

  void SetReady(PJRT_Error* error) {
    absl::Status status = plugin_.ToStatus(error, what_);
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = std::move(status);
    changed_.notify_all();
  }
  // The status of the event; none if it takes longer.
  std::optional<absl::Status> WaitFor(std::chrono::seconds deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    // In slices, so that a process that was stopped for a while does not give up.
    for (std::chrono::seconds waited{0}; !status_ && waited < deadline;) {
      if (changed_.wait_for(lock, std::chrono::seconds(1)) == std::cv_status::timeout) ++waited;
    }
    return status_;
  }

 private:
  const PjrtPlugin& plugin_;
  const std::string what_;
  const std::shared_ptr<const void> memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::Status> status_;
};

// A PJRT_Event_OnReadyCallback, whose argument is a std::shared_ptr<Waiting> on the heap.
void SetReady(PJRT_Error* error, void* waiting) {
  const std::unique_ptr<std::shared_ptr<Waiting>> shared(static_cast<std::shared_ptr<Waiting>*>(waiting));
  (*shared)->SetReady(error);
}

}  // namespace

absl::StatusOr<const PjrtPlugin*> PjrtPlugin::Load(const std::string& path, const PjrtWaits& waits) {
  return LoadOnce(path, /*for_compiling=*/false, waits);
}

absl::StatusOr<const PjrtPlugin*> PjrtPlugin::LoadCompiler(const std::string& path, const PjrtWaits& waits) {
  return LoadOnce(path, /*for_compiling=*/true, waits);
}

absl::StatusOr<const PjrtPlugin*> PjrtPlugin::LoadOnce(const std::string& path, bool for_compiling,
                                                       const PjrtWaits& waits) {
  static auto* const mutex = new std::mutex;
  static auto* const plugins = new std::map<std::pair<std::string, bool>, const PjrtPlugin*>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const PjrtPlugin*& plugin = (*plugins)[{path, for_compiling}];
  if (plugin != nullptr) return plugin;
  std::unique_ptr<PjrtPlugin> loaded(new PjrtPlugin(path, waits));
  RETURN_IF_ERROR(loaded->Open(for_compiling));
  return plugin = loaded.release();
}

absl::Status PjrtPlugin::Open(bool for_compiling) {
  {
    const CallWatch::Call call(watch_, "loading");
    ASSIGN_OR_RETURN(void* const library, OpenLibrary(path_));
    ASSIGN_OR_RETURN(api_, ApiOf(library, path_));
    RETURN_IF_ERROR(CheckVersion(path_, *api_, for_compiling ? kNeededForCompiling : kNeededApi));
    if (!for_compiling) RETURN_IF_ERROR(CheckTpu(path_, library));
  }
  auto args = OFFICIAL_PJRT_ARGS(PJRT_Plugin_Initialize);
  PJRT_Error* const error = CallWatched(api_->PJRT_Plugin_Initialize, args, "initializing");
  return ToStatus(error, absl::StrCat("the PJRT plugin ", path_));
}

std::string PjrtPlugin::Version() const {
  return absl::StrCat(api_->pjrt_api_version.major_version, ".", api_->pjrt_api_version.minor_version);
}

void PjrtPlugin::Destroy(PJRT_Error* error) const {
  auto destroy = OFFICIAL_PJRT_ARGS(PJRT_Error_Destroy);
  destroy.error = error;
  api_->PJRT_Error_Destroy(&destroy);
}

absl::Status PjrtPlugin::ToStatus(PJRT_Error* error, absl::string_view what) const {
  if (error == nullptr) return absl::OkStatus();
  const CallWatch::Call call(watch_, what);
  auto code = OFFICIAL_PJRT_ARGS(PJRT_Error_GetCode);
  code.error = error;
  PJRT_Error* const no_code = api_->PJRT_Error_GetCode(&code);
  if (no_code != nullptr) Destroy(no_code);
  // An error without a code is one nevertheless.
  if (no_code != nullptr || code.code == PJRT_Error_Code_OK) code.code = PJRT_Error_Code_UNKNOWN;
  auto message = OFFICIAL_PJRT_ARGS(PJRT_Error_Message);
  message.error = error;
  api_->PJRT_Error_Message(&message);
  // The codes are those of absl::Status.
  absl::Status status(static_cast<absl::StatusCode>(code.code),
                      absl::StrCat(what, ": ", absl::string_view(message.message, message.message_size)));
  Destroy(error);
  return status;
}

absl::Status PjrtPlugin::Await(PJRT_Event* event, absl::string_view what, std::shared_ptr<const void> memory) const {
  if (event == nullptr) return absl::OkStatus();
  const auto waiting = std::make_shared<Waiting>(*this, what, std::move(memory));
  auto on_ready = OFFICIAL_PJRT_ARGS(PJRT_Event_OnReady);
  on_ready.event = event;
  on_ready.callback = SetReady;
  on_ready.user_arg = new std::shared_ptr<Waiting>(waiting);
  // After an error the argument and the event stay: whether the callback still comes is not known.
  RETURN_IF_ERROR(Call(api_->PJRT_Event_OnReady, on_ready, what));
  std::optional<absl::Status> status;
  {
    const CallWatch::Call wait = watch_.Wait(what);
    status = waiting->WaitFor(is_stuck_ ? std::chrono::seconds(0) : watch_.deadline());
  }
  if (!status) {
    is_stuck_ = true;
    return watch_.PastDeadline(what);
  }
  if (is_stuck_) return *status;
  auto destroy = OFFICIAL_PJRT_ARGS(PJRT_Event_Destroy);
  destroy.event = event;
  status->Update(Call(api_->PJRT_Event_Destroy, destroy, what));
  return *status;
}

}  // namespace official::compute
