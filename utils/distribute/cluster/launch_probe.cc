// Says what a launcher has told this process. Usage: launch_probe [WORKERS [DEADLINE_SECONDS [LATE_WORKER]]]
//
// Prints "<launcher> worker <index> of <number> <address of worker 0> <secret or ->" on one line, in which the address
// and the secret come by PMIx where the launcher tells none. WORKERS is the value of --workers. LATE_WORKER sleeps for
// three times the deadline before it calls PMIx.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/cluster/free_address.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/distribute/cluster/pmix.h"
#include "utils/misc/exit_code.h"

namespace official::distribute {
namespace {

struct Arguments {
  std::string workers;
  std::chrono::seconds deadline = std::chrono::seconds(30);
  int late_worker = -1;
};

absl::StatusOr<std::string> Probe(const Arguments& arguments) {
  const auto environment = [](const char* name) { return std::getenv(name); };
  ASSIGN_OR_RETURN(const std::optional<Launch> launch, ReadLauncherEnv(environment, arguments.workers));
  if (!launch) return absl::InvalidArgumentError("nothing started this process as one of several");
  const ClusterTask& started = launch->started;
  const std::optional<int> index = WorkerIndex(started.cluster, started.task);
  if (!index) return absl::InvalidArgumentError(absl::StrCat(NameOf(started.task), " does not train"));
  PmixShare share = {.text = started.cluster.jobs.at("worker").front(), .secret = "-"};
  if (launch->AddressesByPmix()) {
    if (*index == arguments.late_worker) std::this_thread::sleep_for(3 * arguments.deadline);
    std::optional<std::string> own;
    if (*index == 0) {
      ASSIGN_OR_RETURN(own, FreeAddress());
    }
    ASSIGN_OR_RETURN(share, ShareByPmix(own, arguments.deadline));
  }
  return absl::StrCat(launch->launcher, " worker ", *index, " of ", launch->NumProcesses(), " ", share.text, " ",
                      share.secret, "\n");
}

}  // namespace
}  // namespace official::distribute

int main(int argc, char** argv) {
  official::distribute::Arguments arguments;
  if (argc > 1) arguments.workers = argv[1];
  if (argc > 2) arguments.deadline = std::chrono::seconds(std::atoi(argv[2]));
  if (argc > 3) arguments.late_worker = std::atoi(argv[3]);
  const absl::StatusOr<std::string> line = official::distribute::Probe(arguments);
  if (!line.ok()) {
    std::cerr << absl::StrCat("launch_probe: ", line.status().message(), "\n");
    return official::misc::ExitCode(line.status());
  }
  std::cout << *line << std::flush;
}
