// The flags of a run by several workers. What started this process as one of them says the rest
// (utils/distribute/cluster/launcher_env.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "utils/distribute/placement.h"
#include "utils/distribute/worker_sum.h"
#include "utils/flags/flag_group.h"

namespace official::flags {

// OnPeerLoss: what the other workers do when one is lost.
enum class OnPeerLoss { kExit, kRestart };

struct ClusterConfig {
  std::optional<std::string> workers;         // the addresses of all workers; see distribute::ReadLauncherEnv
  std::optional<std::string> serve;           // where this process listens for clients that give it tasks
  std::optional<std::string> remote_cluster;  // the servers to give the tasks to, as in TF_CONFIG's "cluster"
  std::optional<int> num_replicas;            // of all workers together; unset: one for each of their devices
  distribute::CollectiveCommunication collective_communication = distribute::CollectiveCommunication::kAuto;
  std::optional<std::string> run_secret_file;
  std::optional<std::string> tls_cert, tls_key, tls_ca;  // the files of mutual TLS, in PEM: all three or none
  bool insecure_cluster = false;          // true: workers on several machines may do without a secret and without TLS
  bool listen_on_all_interfaces = false;  // true: the address of this process need be none of its machine's
  int start_timeout_secs = 300;           // how long workers wait for each other at the start
  int peer_timeout_secs = 10;             // how long a worker may be silent until it counts as lost
  OnPeerLoss on_peer_loss = OnPeerLoss::kExit;
  // As train::ServerOptions.
  bool sync_replicas = false;
  std::optional<int> replicas_to_aggregate, max_gradient_staleness;
  distribute::Placement ps_placement = distribute::Placement::kRoundRobin;
  std::optional<std::string> ps_partitioner;  // as distribute::ParsePartitioner takes it
  // True: an evaluator evaluates the checkpoints as they come, and the workers only train. A cluster
  // that has the task need not be told.
  bool separate_evaluator = false;
  int eval_start_delay_secs = 120, eval_throttle_secs = 600;  // as train::FollowOptions
  int eval_timeout_secs = 86400;
  std::optional<int> min_workers;  // with restart: a run with fewer waits; unset: all at the start, 1 after a loss
};

FlagGroup ClusterFlags();

// Returns those of the flags by which the tasks of a run find each other, keep strangers out and notice losses, and
// shared flags of these names, for a program with a training loop of its own: Program::more_flags takes them.
// --serve and --remote_cluster need run::RunMain as its main function.
FlagGroup ConnectionFlags(const std::vector<absl::string_view>& more = {});

}  // namespace official::flags
