#include "utils/distribute/coordinator/run_task.h"

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/coordinator/variable_server.h"
#include "utils/distribute/coordinator/worker.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/distribute/strategy.h"

namespace official::coordinator {
namespace {

// A server that is there, but does not answer for so long, is an error.
constexpr std::chrono::seconds kServerTimeout = std::chrono::minutes(10);

absl::Status RunProgram(const Functions& functions, distribute::ParameterServers& servers,
                        const CoordinatorOptions& options, const Program& program) {
  ClusterCoordinator coordinator(functions, servers, options);
  absl::Status status = program(coordinator);
  if (status.ok()) status = coordinator.Finish();
  if (absl::IsUnavailable(status)) status = absl::CancelledError(status.message());
  // The threads of the coordinator still wait for workers.
  if (!status.ok()) servers.exchange().Fail(status.message());
  return status;
}

absl::Status RunWorker(const Functions& functions, distribute::ParameterServers& servers,
                       const CoordinatorOptions& options) {
  ASSIGN_OR_RETURN(const auto strategy, distribute::Strategy::Create(
                                            {.device_kind = options.device_kind, .num_replicas = options.num_devices}));
  return ServeWorker(functions, servers, *strategy);
}

absl::Status RunServer(const Functions& functions, distribute::ParameterServers& servers, int num_replicas) {
  ASSIGN_OR_RETURN(const auto strategy, distribute::Strategy::Create({}));
  VariableServer server(functions, strategy->device(0), num_replicas);
  return servers.Serve(server, [] { return false; });
}

}  // namespace

absl::Status CheckTasks(int num_workers, int num_servers) {
  if (num_servers < 1) return absl::InvalidArgumentError("There must be at least one ps.");
  if (num_workers < 1) return absl::InvalidArgumentError("There must be at least one worker.");
  return absl::OkStatus();
}

absl::Status RunTask(distribute::Exchange& exchange, int num_servers, const Functions& functions,
                     const CoordinatorOptions& options, const Program& program) {
  RETURN_IF_ERROR(CheckTasks(exchange.num_workers() - num_servers - 1, num_servers));
  if (options.num_devices < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("each worker has num_devices=", options.num_devices, "; it needs at least 1"));
  }
  distribute::ParameterServers servers(exchange, num_servers, kServerTimeout);
  if (servers.is_chief()) return RunProgram(functions, servers, options, program);
  const absl::Status status =
      servers.server() ? RunServer(functions, servers, options.num_devices) : RunWorker(functions, servers, options);
  if (!status.ok()) exchange.Fail(status.message());
  return status;
}

absl::Status RunInProcess(int num_workers, int num_servers, const Functions& functions,
                          const CoordinatorOptions& options, const Program& program) {
  RETURN_IF_ERROR(CheckTasks(num_workers, num_servers));
  const auto exchanges = distribute::MakeMemoryExchanges(1 + num_workers + num_servers);
  std::vector<std::jthread> threads;
  for (size_t task = 1; task < exchanges.size(); ++task) {
    // Its error is the coordinator's, too.
    threads.emplace_back([&, task] {
      (void)RunTask(*exchanges[task], num_servers, functions, options, program);  // NOLINT
    });
  }
  return RunTask(*exchanges[0], num_servers, functions, options, program);
}

}  // namespace official::coordinator
