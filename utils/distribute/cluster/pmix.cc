#include "utils/distribute/cluster/pmix.h"

#include <dlfcn.h>
#include <sys/random.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/pmix_abi.h"

namespace official::distribute {
namespace {

constexpr char kTextKey[] = "official.text", kSecretKey[] = "official.secret";
constexpr size_t kSecretBytes = 32;
constexpr char kOtherWay[] = "or name all workers in TF_CONFIG";

// The functions of libpmix that are used.
struct Pmix {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Fence) fence;
  decltype(&PMIx_Get) get;
  decltype(&PMIx_Error_string) error_string;
};

absl::StatusOr<Pmix> LoadPmix(const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    return absl::UnavailableError(absl::StrCat(library, ", by which the processes of mpirun and srun --mpi=pmix meet, ",
                                               "cannot be loaded: ", dlerror(), "; install it (Debian: libpmix2), ",
                                               kOtherWay));
  }
  Pmix pmix;
  absl::Status status;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(loaded, name));
    if (function == nullptr) status = absl::UnavailableError(absl::StrCat(library, " is no PMIx: it has no ", name));
  };
  load("PMIx_Init", pmix.init);
  load("PMIx_Finalize", pmix.finalize);
  load("PMIx_Put", pmix.put);
  load("PMIx_Commit", pmix.commit);
  load("PMIx_Fence", pmix.fence);
  load("PMIx_Get", pmix.get);
  load("PMIx_Error_string", pmix.error_string);
  RETURN_IF_ERROR(status);
  return pmix;
}

absl::StatusOr<std::string> RandomSecret() {
  char bytes[kSecretBytes];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return absl::UnavailableError("the system gives no random bytes for the secret of the run");
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

// One process's part in the exchange. Any call may wait for other processes.
class Client {
 public:
  // Writes the call that is being made to `call`.
  Client(const Pmix& pmix, std::atomic<const char*>& call) : pmix_(pmix), call_(call) {}

  absl::StatusOr<PmixShare> Share(const std::optional<std::string>& own) {
    RETURN_IF_ERROR(Call("PMIx_Init", [&] { return pmix_.init(&self_, nullptr, 0); }));
    absl::StatusOr<PmixShare> share = ShareConnected(own);
    // Whatever it returns: nothing more is wanted.
    Call("PMIx_Finalize", [&] { return pmix_.finalize(nullptr, 0); }).IgnoreError();
    return share;
  }

 private:
  template <typename F>
  absl::Status Call(const char* name, F function) {
    call_ = name;
    const int error = function();
    if (error == pmix::kSuccess) return absl::OkStatus();
    const char* const text = pmix_.error_string(error);
    return absl::UnavailableError(absl::StrCat(name, " failed: ", text == nullptr ? "" : text, " (", error,
                                               "); start all processes with one mpirun or one srun --mpi=pmix, ",
                                               kOtherWay));
  }

  absl::StatusOr<PmixShare> ShareConnected(const std::optional<std::string>& own) {
    if (own.has_value() != (self_.rank == 0)) {
      return absl::UnavailableError(
          absl::StrCat("PMIx gives this process the number ", self_.rank, ", what started it ", own ? "0" : "another",
                       "; start all processes with one mpirun or one srun --mpi=pmix, ", kOtherWay));
    }
    if (own) {
      ASSIGN_OR_RETURN(std::string secret, RandomSecret());
      RETURN_IF_ERROR(Put(kTextKey, *own));
      RETURN_IF_ERROR(Put(kSecretKey, secret));
      RETURN_IF_ERROR(Call("PMIx_Commit", [&] { return pmix_.commit(); }));
    }
    RETURN_IF_ERROR(Fence());
    PmixShare share;
    ASSIGN_OR_RETURN(share.text, Get(kTextKey));
    ASSIGN_OR_RETURN(share.secret, Get(kSecretKey));
    return share;
  }

  absl::Status Put(const char* key, std::string bytes) {
    pmix_value_t value = {.type = pmix::kByteObject, .data = {.bo = {bytes.data(), bytes.size()}}};
    return Call("PMIx_Put", [&] { return pmix_.put(pmix::kGlobal, key, &value); });
  }

  // Waits until all processes are here; then what process 0 has put is at hand on every node.
  absl::Status Fence() {
    pmix_proc_t everyone = self_;
    everyone.rank = pmix::kEveryRank;
    pmix_info_t collect = {};
    std::strcpy(collect.key, pmix::kCollectData);
    collect.value = {.type = pmix::kBool, .data = {.flag = true}};
    return Call("PMIx_Fence", [&] { return pmix_.fence(&everyone, 1, &collect, 1); });
  }

  absl::StatusOr<std::string> Get(const char* key) {
    pmix_proc_t process_0 = self_;
    process_0.rank = 0;
    pmix_value_t* value = nullptr;
    RETURN_IF_ERROR(Call("PMIx_Get", [&] { return pmix_.get(&process_0, key, nullptr, 0, &value); }));
    const std::unique_ptr<pmix_value_t, decltype(&std::free)> owned(value, &std::free);
    if (value == nullptr || value->type != pmix::kByteObject) {
      return absl::UnavailableError(absl::StrCat("PMIx_Get gives no bytes for ", key));
    }
    const std::unique_ptr<char, decltype(&std::free)> bytes(value->data.bo.bytes, &std::free);
    return std::string(bytes.get(), value->data.bo.size);
  }

  const Pmix& pmix_;
  std::atomic<const char*>& call_;
  pmix_proc_t self_ = {};
};

}  // namespace

absl::StatusOr<PmixShare> ShareByPmix(std::optional<std::string> own, std::chrono::seconds deadline,
                                      const std::string& library) {
  ASSIGN_OR_RETURN(const Pmix pmix, LoadPmix(library));
  struct State {
    std::promise<absl::StatusOr<PmixShare>> share;
    std::atomic<const char*> call = "PMIx_Init";
  };
  // The thread outlives this function if a call does not return.
  const auto state = std::make_shared<State>();
  std::future<absl::StatusOr<PmixShare>> share = state->share.get_future();
  std::thread([state, pmix, own = std::move(own)] {
    state->share.set_value(Client(pmix, state->call).Share(own));
  }).detach();
  if (share.wait_for(deadline) == std::future_status::ready) return share.get();
  return absl::DeadlineExceededError(absl::StrCat("the other processes have not all met this one by PMIx within ",
                                                  deadline.count(), " s (", state->call.load(),
                                                  " waits); see in their output whether they started, ", kOtherWay));
}

}  // namespace official::distribute
