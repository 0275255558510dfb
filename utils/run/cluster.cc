#include "utils/run/cluster.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/compute/cpu/onednn.h"
#include "utils/distribute/cluster/address.h"
#include "utils/distribute/cluster/free_address.h"
#include "utils/distribute/cluster/pmix.h"
#include "utils/distribute/cluster/tf_config.h"
#include "utils/distribute/grpc/connect_workers.h"
#include "utils/logs/log.h"
#include "utils/misc/exit_code.h"
#include "utils/misc/version.h"
#include "utils/run/cluster_secrets.h"
#include "utils/run/server_flags.h"

namespace official::run {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Those that change numbers: without bfloat16, AVX-512 or none.
std::string VectorInstructions(compute::DType dtype) {
  using compute::Isa;
  const Isa isa = dtype == compute::DType::kBFloat16 ? compute::CpuIsa() : std::min(compute::CpuIsa(), Isa::kAvx512);
  const std::string limit = compute::IsaLimit(isa);
  return limit.empty() ? compute::IsaName(isa) : absl::StrCat(compute::IsaName(isa), " (", limit, " makes all so)");
}

Facts FactsOf(const Config& config, const Cluster& cluster, const Devices& devices) {
  Facts facts = {{"program", config.program},
                 {"program version", absl::StrCat(misc::kVersion, " of commit ", config.commit)},
                 {"evaluator in its cluster", cluster.has_evaluator ? "1" : "0"},
                 {"number of ps", absl::StrCat(cluster.num_servers)}};
  if (devices.num_servers == 0) {  // else each worker has devices of its own
    facts.emplace_back("kind of device", devices.kind);
    facts.emplace_back("number of replicas", absl::StrCat(devices.num_replicas));
  }
  for (const auto& [name, value] : config.flags_of_all_workers) {
    facts.emplace_back(absl::StrCat("flag --", name), value.empty() ? "none" : value);
  }
  // After --dtype, on which they depend: the first difference is told.
  facts.emplace_back("vector instructions", VectorInstructions(config.train.dtype));
  return facts;
}

// Where PMIx connects the processes, all have worker 0's address and a secret from it.
absl::Status MeetByPmix(distribute::ConnectOptions& options) {
  std::optional<std::string> own;
  if (options.worker == 0) {
    ASSIGN_OR_RETURN(own, distribute::FreeAddress());
  }
  ASSIGN_OR_RETURN(const distribute::PmixShare share, distribute::ShareByPmix(own, options.start_timeout));
  options.addresses[0] = share.text;
  options.secret = share.secret;
  return absl::OkStatus();
}

// As TensorFlow's RunConfig, which also compares the two as they are written.
absl::Status CheckModelDir(const Config& config) {
  const char* const text = std::getenv("TF_CONFIG");
  if (text == nullptr || !config.base.has_model_dir) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string model_dir, distribute::ModelDirOfTfConfig(text));
  if (model_dir.empty() || model_dir == config.train.model_dir) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--model_dir=", config.train.model_dir,
                                                 " must have the same value as the model_dir in TF_CONFIG, ", model_dir,
                                                 "; give --model_dir=", model_dir, ", or leave it out of TF_CONFIG"));
}

// The flags that contradict an evaluator, in this process or beside it.
absl::Status CheckBesideEvaluator(const Config& config, const Cluster& cluster) {
  const auto error = [&](absl::string_view flag, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": this run has an evaluator, ", why));
  };
  if (config.base.clean) {
    return error("clean",
                 "which may evaluate what is about to be removed; leave it out, and remove --model_dir before the run");
  }
  if (config.base.stop_threshold) {
    return error("stop_threshold", "and its workers know of no evaluation; leave it out, or the evaluator");
  }
  for (const auto& [flag, is_given] : {std::pair("keep_best", config.base.keep_best.has_value()),
                                       {"early_stop", config.base.early_stop.has_value()}}) {
    if (is_given) return error(flag, "and its workers know of no evaluation; leave it out, or the evaluator");
  }
  if (cluster.is_evaluator && config.base.eval_only) {
    return error("eval_only", "which this process is; leave it out, or evaluate once without a cluster");
  }
  return absl::OkStatus();
}

// The flags that are not for a cluster with parameter servers.
absl::Status CheckServers(const Config& config, const Cluster& cluster) {
  const std::string strategy = config.performance.distribution_strategy;
  const auto refused = [&](absl::string_view flag, absl::string_view advice) {
    return absl::InvalidArgumentError(absl::StrCat(cluster.launch->launcher, " describes ", cluster.num_servers,
                                                   " ps, and ", flag, " is not for runs with parameter servers; ",
                                                   advice));
  };
  if (strategy != "default" && strategy != "parameter_server") {
    return refused(absl::StrCat("--distribution_strategy=", strategy),
                   "use --distribution_strategy=parameter_server, or leave ps out of the cluster");
  }
  if (config.base.eval_only) return refused("--eval_only", absl::StrCat("evaluate alone: ", cluster.launch->alone));
  if (config.base.stop_threshold) return refused("--stop_threshold", "leave it out");
  if (config.base.early_stop) return refused("--early_stop", "leave it out");
  RETURN_IF_ERROR(CheckServerFlags(config, refused));
  if (config.cluster.num_replicas) {
    return refused(absl::StrCat("--num_replicas=", *config.cluster.num_replicas),
                   "each worker has replicas of its own: give it --num_cpu_devices or --num_gpus instead");
  }
  if (config.cluster.min_workers) {
    return refused("--min_workers", "leave it out: the others go on without a worker that is lost");
  }
  if (config.cluster.on_peer_loss == flags::OnPeerLoss::kRestart) {
    return refused("--on_peer_loss=restart", "leave it out: the others go on without a worker that is lost");
  }
  return absl::OkStatus();
}

// The flags that say how parameter servers update.
absl::Status CheckServerUpdates(const flags::ClusterConfig& config, const Cluster& cluster) {
  const char* const given = config.sync_replicas                                        ? "--sync_replicas"
                            : config.replicas_to_aggregate                              ? "--replicas_to_aggregate"
                            : config.max_gradient_staleness                             ? "--max_gradient_staleness"
                            : config.ps_placement != distribute::Placement::kRoundRobin ? "--ps_placement"
                            : config.ps_partitioner                                     ? "--ps_partitioner"
                                                                                        : nullptr;
  if (given == nullptr) return absl::OkStatus();
  if (cluster.num_servers == 0 && !cluster.is_evaluator) {
    return absl::InvalidArgumentError(absl::StrCat(
        given, " is for runs with parameter servers, and ",
        cluster.launch ? absl::StrCat(cluster.launch->launcher, " describes no ps") : "this process is alone",
        "; leave it out, or give the cluster of TF_CONFIG a job ps"));
  }
  if (config.replicas_to_aggregate && !config.sync_replicas) {
    return absl::InvalidArgumentError(absl::StrCat("--replicas_to_aggregate=", *config.replicas_to_aggregate,
                                                   " is for synchronous steps; give --sync_replicas, too"));
  }
  if (config.max_gradient_staleness && config.sync_replicas) {
    return absl::InvalidArgumentError(absl::StrCat("--max_gradient_staleness=", *config.max_gradient_staleness,
                                                   ", but with --sync_replicas gradients of older steps are always "
                                                   "dropped; leave one of them out"));
  }
  return absl::OkStatus();
}

// Who began in this process before has written it, so that a value that makes no sense is nobody's.
std::optional<Restart> ReadRestart() {
  const char* const value = std::getenv(kRestartVariable);
  if (value == nullptr) return std::nullopt;
  const std::vector<absl::string_view> fields = absl::StrSplit(value, ' ');
  Restart restart;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &restart.count) ||
      !absl::SimpleAtoi(fields[2], &restart.in_vain)) {
    return std::nullopt;
  }
  for (const absl::string_view worker : absl::StrSplit(fields[1], ',', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(worker, &restart.workers.emplace_back())) return std::nullopt;
  }
  return restart;
}

absl::Status CheckElastic(const flags::ClusterConfig& config, const Cluster& cluster) {
  if (config.on_peer_loss != flags::OnPeerLoss::kRestart) {
    if (!config.min_workers) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--min_workers=", *config.min_workers,
                                                   " is for runs that go on without a worker; give "
                                                   "--on_peer_loss=restart, too, or leave it out"));
  }
  if (config.min_workers.value_or(1) > cluster.num_workers) {
    return absl::InvalidArgumentError(absl::StrCat("--min_workers=", *config.min_workers, ", but ",
                                                   cluster.launch->launcher, " describes only ", cluster.num_workers,
                                                   " workers; use at most as many"));
  }
  if (!cluster.launch->AddressesByPmix()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--on_peer_loss=restart needs the addresses of the workers, and ", cluster.launch->launcher,
                   " connects them by PMIx, once; leave it out, and let all of them be started again when they exit "
                   "with status 138"));
}

// What the meeting of the workers has to know of that.
std::optional<distribute::Elastic> ElasticOf(const flags::ClusterConfig& config, const Cluster& cluster) {
  if (config.on_peer_loss != flags::OnPeerLoss::kRestart) return std::nullopt;
  if (!cluster.restart) return distribute::Elastic{.min_workers = config.min_workers.value_or(cluster.num_workers)};
  return distribute::Elastic{.min_workers = config.min_workers.value_or(1), .expected = cluster.restart->workers};
}

absl::StatusOr<std::optional<distribute::Launch>> FindLaunch(const Config& config) {
  const auto environment = [](const char* name) { return std::getenv(name); };
  return distribute::ReadLauncherEnv(environment, config.cluster.workers.value_or(""));
}

}  // namespace

std::string ValueOf(const Restart& restart) {
  return absl::StrCat(restart.count, " ", absl::StrJoin(restart.workers, ","), " ", restart.in_vain);
}

absl::StatusOr<Cluster> FindCluster(const Config& config) {
  Cluster cluster = {.has_evaluator = config.cluster.separate_evaluator};
  ASSIGN_OR_RETURN(cluster.launch, FindLaunch(config));
  RETURN_IF_ERROR(CheckModelDir(config));
  if (!cluster.launch) {
    RETURN_IF_ERROR(CheckServerUpdates(config.cluster, cluster));
    if (cluster.has_evaluator) RETURN_IF_ERROR(CheckBesideEvaluator(config, cluster));
    return cluster;
  }
  const distribute::ClusterTask& started = cluster.launch->started;
  cluster.worker = distribute::WorkerIndex(started.cluster, started.task).value_or(0);
  cluster.is_evaluator = started.task.type == distribute::kEvaluator;
  cluster.has_evaluator = cluster.has_evaluator || started.cluster.NumTasks(distribute::kEvaluator) > 0;
  if (cluster.is_evaluator || cluster.has_evaluator) RETURN_IF_ERROR(CheckBesideEvaluator(config, cluster));
  cluster.num_workers = cluster.is_evaluator ? 1 : started.cluster.NumWorkers();
  cluster.num_servers = cluster.is_evaluator ? 0 : started.cluster.NumTasks(distribute::kPs);
  if (started.task.type == distribute::kPs) cluster.worker = cluster.num_workers + started.task.index;
  if (cluster.num_servers > 0) RETURN_IF_ERROR(CheckServers(config, cluster));
  RETURN_IF_ERROR(CheckServerUpdates(config.cluster, cluster));
  if (cluster.num_workers > 1) RETURN_IF_ERROR(CheckElastic(config.cluster, cluster));
  cluster.restart = ReadRestart();
  LOG(INFO) << distribute::Describe(*cluster.launch)
            << (cluster.restart ? absl::StrCat(", begins again (", cluster.restart->count, ")") : "");
  return cluster;
}

absl::StatusOr<int> BatchesPerStep(const Config& config) {
  if (!config.cluster.sync_replicas) return 1;
  if (config.cluster.replicas_to_aggregate) return *config.cluster.replicas_to_aggregate;
  ASSIGN_OR_RETURN(const std::optional<distribute::Launch> launch, FindLaunch(config));
  return launch ? launch->started.cluster.NumWorkers() : 1;
}

absl::StatusOr<std::unique_ptr<distribute::Exchange>> Connect(const Config& config, const Cluster& cluster,
                                                              const Devices& devices) {
  distribute::ConnectOptions options;
  options.worker = cluster.worker;
  const distribute::ClusterSpec& spec = cluster.launch->started.cluster;
  options.addresses = distribute::WorkerAddresses(spec);
  options.num_servers = cluster.num_servers;
  if (cluster.num_servers > 0) {
    const std::vector<std::string>& servers = spec.jobs.at(std::string(distribute::kPs));
    options.addresses.insert(options.addresses.end(), servers.begin(), servers.end());
  }
  options.facts = FactsOf(config, cluster, devices);
  options.bind_all = config.cluster.listen_on_all_interfaces;
  options.start_timeout = std::chrono::seconds(config.cluster.start_timeout_secs);
  ASSIGN_OR_RETURN(options.tls, ReadTlsFiles(config.cluster));
  if (cluster.launch->AddressesByPmix()) {
    RETURN_IF_ERROR(MeetByPmix(options));
    if (config.cluster.run_secret_file) {
      ASSIGN_OR_RETURN(options.secret, ReadSecret(*config.cluster.run_secret_file));
    }
  } else {
    std::vector<distribute::PlacedAddress> listeners;
    for (int w = 0; w < static_cast<int>(options.addresses.size()); ++w) {
      const bool is_everywhere = options.bind_all && w == options.worker;
      listeners.push_back({distribute::TaskName(options, w), is_everywhere ? "all interfaces" : options.addresses[w]});
    }
    ASSIGN_OR_RETURN(options.secret, SecretFor(config.cluster, listeners));
  }
  options.peer_timeout = std::chrono::seconds(config.cluster.peer_timeout_secs);
  options.elastic = ElasticOf(config.cluster, cluster);
  if (options.elastic && devices.kind != "cpu" && options.elastic->min_workers < cluster.num_workers) {
    // A GPU has one replica, and so the others cannot have those of one that is missing.
    options.elastic->min_workers = cluster.num_workers;
    if (config.cluster.min_workers) {
      return absl::InvalidArgumentError(absl::StrCat("--min_workers=", *config.cluster.min_workers,
                                                     ": on GPUs a run needs all of its ", cluster.num_workers,
                                                     " workers, since each GPU has one replica; leave it out"));
    }
  }
  options.log = [](const std::string& line) { LOG(INFO) << line; };
  absl::StatusOr<std::unique_ptr<distribute::Exchange>> exchange = distribute::ConnectWorkers(options);
  if (absl::IsOutOfRange(exchange.status())) return misc::NothingLeftToDo(exchange.status().message());
  return exchange;
}

absl::Status CheckSame(distribute::Exchange& exchange, const std::string& what, const std::string& value,
                       const std::string& advice) {
  using distribute::Exchange;
  constexpr Exchange::Channel kValues = Exchange::Channel::kValues;
  // Reading the data may take some workers much longer than others.
  constexpr std::chrono::seconds kLong = std::chrono::hours(24);
  std::string difference;
  if (exchange.worker() > 0) {
    RETURN_IF_ERROR(exchange.Send(0, kValues, value));
    ASSIGN_OR_RETURN(difference, exchange.Receive(0, kValues, kLong));
  } else {
    for (int w = 1; w < exchange.num_workers(); ++w) {
      const absl::StatusOr<std::string> given = exchange.Receive(w, kValues, kLong);
      if (absl::IsUnavailable(given.status())) continue;  // lost, and the job goes on without it
      RETURN_IF_ERROR(given.status());
      const std::string& other = *given;
      if (other == value || !difference.empty()) continue;
      difference =
          absl::StrCat(exchange.NameOf(w), " has ", what, " ", other, ", but worker 0 has ", value, "; ", advice);
    }
    for (int w = 1; w < exchange.num_workers(); ++w) RETURN_IF_ERROR(exchange.Send(w, kValues, difference));
  }
  return difference.empty() ? absl::OkStatus() : absl::InvalidArgumentError(difference);
}

absl::Status CheckAlone(const Config& config, const std::string& use) {
  ASSIGN_OR_RETURN(const Cluster cluster, FindCluster(config));
  if (cluster.num_tasks() == 1 && !cluster.is_evaluator) return absl::OkStatus();
  const std::string of_others = cluster.is_evaluator
                                    ? "makes this one an evaluator"
                                    : absl::StrCat("describes ", cluster.num_workers, " workers",
                                                   cluster.num_servers > 0 ? " and parameter servers" : "");
  return absl::InvalidArgumentError(absl::StrCat(use, " is for one process, and ", cluster.launch->launcher, " ",
                                                 of_others, "; start it without: ", cluster.launch->alone));
}

}  // namespace official::run
