#include "utils/distribute/grpc/connect_workers.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/grpc/backend_entry.h"
#include "utils/files/shared_object.h"

namespace official::distribute {
namespace {

constexpr char kLibrary[] = "libofficial_cluster.so";
constexpr char kPackage[] = "utils/distribute/grpc";

// Returns a function of the shared object, or of the libraries that come with it.
template <typename Function>
absl::StatusOr<Function*> Load(const char* name) {
  const std::string path = files::FindSharedObject(kLibrary, kPackage);
  if (path.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no ", kLibrary,
                                            " beside the program, which several workers "
                                            "need; copy both together"));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load ", path, ": ", dlerror(), "; install libgrpc++1.51"));
  }
  auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return function;
  return absl::NotFoundError(absl::StrCat(path, " is of another version than this program; copy both together"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exchange>> ConnectWorkers(const ConnectOptions& options) {
  ASSIGN_OR_RETURN(ConnectWorkersFunction* const connect, Load<ConnectWorkersFunction>(kConnectWorkers));
  absl::StatusOr<std::unique_ptr<Exchange>> exchange;
  connect(options, exchange);
  return exchange;
}

absl::StatusOr<std::unique_ptr<CallServer>> ListenForCalls(const std::string& address, const ConnectOptions& options) {
  ASSIGN_OR_RETURN(ListenForCallsFunction* const listen, Load<ListenForCallsFunction>(kListenForCalls));
  absl::StatusOr<std::unique_ptr<CallServer>> server;
  listen(address, options, server);
  return server;
}

absl::StatusOr<std::unique_ptr<Call>> CallServerOf(const CallOptions& options) {
  ASSIGN_OR_RETURN(CallServerFunction* const call_server, Load<CallServerFunction>(kCallServer));
  absl::StatusOr<std::unique_ptr<Call>> call;
  call_server(options, call);
  return call;
}

absl::StatusOr<std::string> GrpcVersion() {
  ASSIGN_OR_RETURN(auto* const version, Load<const char*()>("grpc_version_string"));
  return version();
}

}  // namespace official::distribute
