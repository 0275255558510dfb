#include "utils/run/standalone/main.h"

#include <csignal>
#include <iostream>

#include "utils/compute/core/status.h"
#include "utils/flags/cluster.h"
#include "utils/flags/config_flag.h"
#include "utils/run/config.h"
#include "utils/run/environment_report.h"
#include "utils/run/standalone/remote_cluster.h"
#include "utils/run/standalone/serve.h"

namespace official::run {
namespace {

absl::Status ServeOrRun(const flags::CommandLine& command_line, const flags::Body& body) {
  const auto cluster = flags::FromFlags<flags::ClusterConfig>();
  if (!cluster.serve && !cluster.remote_cluster) return body(command_line);
  if (cluster.serve && cluster.remote_cluster) {
    return absl::InvalidArgumentError(
        "--serve waits for a client, and --remote_cluster is one; start two processes, with one of them each");
  }
  const Config config = ConfigFromFlags(command_line);
  RETURN_IF_ERROR(InitLogging(config));
  return cluster.serve ? Serve(command_line, config) : RunOnRemoteCluster(command_line, config, std::cout);
}

}  // namespace

int RunMain(int argc, char** argv, const flags::Program& program, const flags::Body& body) {
  // Until there is something to save, a request to save does nothing.
  if (std::signal(SIGUSR2, [](int) {}) == SIG_IGN) std::signal(SIGUSR2, SIG_IGN);
  flags::Program with_report = program;
  with_report.environment = EnvironmentReport;
  return flags::RunMain(argc, argv, with_report,
                        [&](const flags::CommandLine& command_line) { return ServeOrRun(command_line, body); });
}

}  // namespace official::run
