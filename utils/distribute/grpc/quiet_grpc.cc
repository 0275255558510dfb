#include "utils/distribute/grpc/quiet_grpc.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <cstdlib>

namespace official::distribute {

void StartQuietGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  grpc_init();
}

}  // namespace official::distribute
