// The workers of a run: what started them, and the connections between them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/distribute/cluster/launcher_env.h"
#include "utils/distribute/exchange.h"
#include "utils/run/config.h"
#include "utils/run/devices.h"

namespace official::run {

// Restart: a new beginning of a run's workers in the same processes, after a loss. See flags::OnPeerLoss.
struct Restart {
  int count = 0;             // of the beginnings after the first
  std::vector<int> workers;  // those that are expected, by their numbers in ascending order
  int in_vain = 0;           // how often in a row without a step that was trained
};
// The variable by which a process that begins again is told of it, and its value: "2 0,1,3 0".
inline constexpr char kRestartVariable[] = "OFFICIAL_RESTART";
std::string ValueOf(const Restart& restart);

// The place of this process in its run.
struct Cluster {
  std::optional<distribute::Launch> launch = {};  // what started it as one of several; nothing: it is alone
  int worker = 0;                                 // for a parameter server its number after those of the workers
  int num_workers = 1;
  int num_servers = 0;                  // parameter servers
  std::optional<Restart> restart = {};  // nothing: it begins for the first time
  bool is_evaluator = false;            // this process is none of the workers, and evaluates what they train
  bool has_evaluator = false;           // the workers leave the evaluations to one

  bool is_chief() const { return worker == 0 && !is_evaluator; }
  bool is_server() const { return worker >= num_workers; }
  int num_tasks() const { return num_workers + num_servers; }
};

// Returns what the environment and --workers say. InvalidArgument if they contradict themselves or each other, if flags
// are given that mean nothing beside an evaluator or with parameter servers, or if the workers cannot do without one of
// them and --on_peer_loss=restart says so.
absl::StatusOr<Cluster> FindCluster(const Config& config);

// Returns how many batches of --batch_size a step takes, by the environment and the flags: with --sync_replicas
// --replicas_to_aggregate, or one of each worker; else 1. With backup workers a step may use up more. Errors: those of
// distribute::ReadLauncherEnv.
absl::StatusOr<int> BatchesPerStep(const Config& config);

// Connects the workers of a cluster with several, and returns when all are there. `devices` are those of the run.
// InvalidArgument, on all of them, if they differ in something that changes numbers, such as a flag; or if strangers
// could take part: see flags::ClusterConfig. DeadlineExceeded names the workers that did not come in time; Cancelled
// likewise if they had trained before. A job with parameter servers begins without workers other than the chief that do
// not come in half of the time. misc::NothingLeftToDo if the others were done before this one could take part.
absl::StatusOr<std::unique_ptr<distribute::Exchange>> Connect(const Config& config, const Cluster& cluster,
                                                              const Devices& devices);

// Returns OK if `value` is the same on all workers; else InvalidArgument, on all of them, with both values: "worker 1
// at 10.0.0.2:2222 has the data set X, but worker 0 has Y; <advice>".
absl::Status CheckSame(distribute::Exchange& exchange, const std::string& what, const std::string& value,
                       const std::string& advice);

// Returns InvalidArgument if the process was started as one of several; `use` says what is for one: "--predict".
absl::Status CheckAlone(const Config& config, const std::string& use);

}  // namespace official::run
