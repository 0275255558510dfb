#include "utils/distribute/grpc/quiet_grpc.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <cstdlib>

namespace official::distribute {

void StartQuietGrpc() {
  // Once, before any thread that comes here reads the environment: that must not change meanwhile.
  [[maybe_unused]] static const int is_set = setenv("GRPC_DNS_RESOLVER", "native", /*overwrite=*/0);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  grpc_init();
}

}  // namespace official::distribute
