#include "utils/flags/cluster.h"

#include "utils/distribute/shards.h"
#include "utils/flags/config_flag.h"
#include "utils/flags/shared_groups.h"

OFFICIAL_FLAG_GROUP(cluster);

namespace official::flags {
namespace {

using distribute::CollectiveCommunication;

constexpr Choice<CollectiveCommunication> kCommunications[] = {{"auto", CollectiveCommunication::kAuto},
                                                               {"ordered", CollectiveCommunication::kOrdered},
                                                               {"ring", CollectiveCommunication::kRing},
                                                               {"nccl", CollectiveCommunication::kNccl}};

constexpr Choice<OnPeerLoss> kOnPeerLoss[] = {{"exit", OnPeerLoss::kExit}, {"restart", OnPeerLoss::kRestart}};

constexpr Choice<distribute::Placement> kPlacements[] = {{"round_robin", distribute::Placement::kRoundRobin},
                                                         {"greedy", distribute::Placement::kGreedy}};

}  // namespace
}  // namespace official::flags

OFFICIAL_FLAG(
    ClusterConfig, workers,
    "The addresses of all workers of a run, in the order of their numbers: host:port,host:port, or with ranges "
    "job-0-[0-3].job:2222. The number of this one is the environment variable JOB_COMPLETION_INDEX, which "
    "Kubernetes sets in the pods of an Indexed Job. TF_CONFIG, torchrun, mpirun and srun need no flag.",
    .unset_means = "what started the program tells the workers, if there are any", .per_worker = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, serve,
              "Address, host:port, at which this process waits for clients that are started with --remote_cluster, and "
              "runs the tasks that they give it, one at a time. The flags of this command hold for all tasks, and no "
              "client can change them. tf_config: the address that TF_CONFIG has for this process.",
              .unset_means = "the program trains", .per_worker = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, remote_cluster,
              "The addresses at which the servers of a cluster listen, which were started with --serve, in JSON: "
              "{\"chief\": [\"host:port\"], \"worker\": [\"host:port\", ...]}, also with ps and evaluator. The program "
              "does not train itself, but has the servers do so with the flags that it is given.",
              .unset_means = "the program trains", .per_worker = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, num_replicas,
              "Number of replicas, which each compute an equal part of every batch, of all workers together. Results "
              "depend on it, and not on how many workers share them. One process has that many CPU devices.",
              .range = {.min = 1, .max = 8192}, .unset_means = "one for each device of the workers",
              .per_worker = true);

OFFICIAL_CHOICE_FLAG(
    ClusterConfig, collective_communication, kCommunications,
    "How several workers sum gradients. ordered: in the order of one process, so that results do not depend, to the "
    "bit, on the number of workers. ring: each worker sends to the next one only, which suits very many workers; the "
    "last bits depend on their number. nccl: by NCCL, between the GPUs of all workers; its own order. auto: nccl on "
    "GPUs, ordered on CPUs.");

OFFICIAL_FLAG(ClusterConfig, run_secret_file,
              "File with a secret of at least 16 bytes that all workers have. A process that does not know it cannot "
              "take part. Only its owner may read the file.",
              .unset_means = "none; then all workers must be on one machine, or --tls_cert or --insecure_cluster given",
              .per_worker = true, .input = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, tls_cert,
              "File with the certificate of this worker, in PEM, for the host by which the others reach it. With "
              "--tls_key and --tls_ca, the workers of a run encrypt what they send each other, and only who has a "
              "certificate of the same authority can take part. tools/make_certs makes all files.",
              .unset_means = "connections are not encrypted", .per_worker = true, .input = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, tls_key,
              "File with the key of --tls_cert, in PEM without a password. Only its owner may read the file.",
              .unset_means = "connections are not encrypted", .per_worker = true, .input = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, tls_ca,
              "File with the certificate of the authority that has signed those of all workers, in PEM.",
              .unset_means = "connections are not encrypted", .per_worker = true, .input = true, .local = true);

OFFICIAL_FLAG(ClusterConfig, insecure_cluster,
              "Lets workers on several machines train without a secret and without certificates: whoever reaches their "
              "ports can take part.",
              .per_worker = true, .local = true);

OFFICIAL_FLAG(
    ClusterConfig, listen_on_all_interfaces,
    "Listen at the port of this process on all interfaces of the machine, as TensorFlow's servers do, instead of at "
    "its address alone: for an address by which the others reach it, but which none of its interfaces has, such as "
    "that of a published port of a container or of a router (NAT).",
    .per_worker = true, .local = true);

OFFICIAL_FLAG(
    ClusterConfig, start_timeout_secs,
    "Seconds that the workers of a run wait for each other at the start. After that they exit with an error. "
    "With parameter servers, a run begins after half of it without workers that are missing, except the first.",
    .range = AtLeast(1), .per_worker = true);

OFFICIAL_FLAG(ClusterConfig, peer_timeout_secs,
              "Seconds after which a worker that does not answer counts as lost; see --on_peer_loss.",
              .range = AtLeast(1), .per_worker = true);

OFFICIAL_CHOICE_FLAG(
    ClusterConfig, on_peer_loss, kOnPeerLoss,
    "What the other workers do when one is lost. exit: they exit with status 138, so that what started them starts all "
    "again. restart: they begin again themselves, in the same processes, from the last checkpoint and with as many "
    "replicas, which those who are left share; a worker that comes back takes part from the next checkpoint on. The "
    "first worker cannot be missing.");

OFFICIAL_FLAG(ClusterConfig, sync_replicas,
              "With parameter servers: each step of the training takes the mean of the gradients of several workers, "
              "which wait for it, as with TensorFlow's SyncReplicasOptimizer.");

OFFICIAL_FLAG(ClusterConfig, replicas_to_aggregate,
              "With --sync_replicas: number of gradients of a step. With fewer than there are workers, those of the "
              "slowest are dropped, so that nobody waits for them; with more, workers give several to a step.",
              .range = {.min = 1, .max = 8192}, .unset_means = "one of each worker");

OFFICIAL_FLAG(ClusterConfig, max_gradient_staleness,
              "With parameter servers: a gradient is dropped if more steps than these were made since its worker read "
              "the variables, as with TensorFlow's DropStaleGradientOptimizer.",
              .range = AtLeast(0), .unset_means = "none is dropped");

OFFICIAL_CHOICE_FLAG(ClusterConfig, ps_placement, kPlacements,
                     "How variables are placed on parameter servers, as they are created. round_robin: on one after "
                     "the other. greedy: on the one that has the fewest bytes until then.");

OFFICIAL_FLAG(
    ClusterConfig, ps_partitioner,
    "How variables are divided along their first dimension into shards, which are placed on parameter servers "
    "as variables of their own. fixed_size:SHARDS: into so many. min_size:BYTES: into one for each so many "
    "bytes, and one for the rest, but no more than there are servers. max_size:BYTES: into shards of no more "
    "bytes, or of one row. min_size:BYTES:MAX_SHARDS and max_size:BYTES:MAX_SHARDS: no more than MAX_SHARDS. "
    "As TensorFlow's fixed_size_partitioner, min_max_variable_partitioner (MinSizePartitioner) and "
    "variable_axis_size_partitioner (MaxSizePartitioner).",
    .unset_means = "each variable is whole on one server");

OFFICIAL_FLAG(ClusterConfig, separate_evaluator,
              "An evaluator evaluates the checkpoints of the run, and its workers only train: a process with the task "
              "type evaluator in its TF_CONFIG and the same --model_dir. Needed where the evaluator is not in the "
              "cluster of the workers' TF_CONFIG, as in a TFJob of Kubeflow.");

OFFICIAL_FLAG(ClusterConfig, eval_start_delay_secs,
              "Seconds that an evaluator waits before its first evaluation; EvalSpec's start_delay_secs.",
              .range = AtLeast(0), .per_worker = true);

OFFICIAL_FLAG(
    ClusterConfig, eval_throttle_secs,
    "Seconds from the begin of an evaluation to that of the next by an evaluator, but for the last one, which "
    "does not wait; EvalSpec's throttle_secs.",
    .range = AtLeast(0), .per_worker = true);

OFFICIAL_FLAG(ClusterConfig, eval_timeout_secs,
              "Seconds without a new checkpoint after which an evaluator exits with status 69.", .range = AtLeast(1),
              .per_worker = true);

OFFICIAL_FLAG(ClusterConfig, min_workers,
              "With --on_peer_loss=restart: with fewer workers the run waits, for --start_timeout_secs.",
              .range = AtLeast(1), .unset_means = "all of them at the start, one after a loss", .per_worker = true);

namespace official::flags {
namespace {

absl::Status CheckPartitioner(const CommandLine&) {
  const std::optional<std::string> text = absl::GetFlag(FLAGS_ps_partitioner);
  if (!text) return absl::OkStatus();
  const absl::Status status = distribute::ParsePartitioner(*text, /*num_servers=*/1).status();
  return status.ok() ? status : FlagError("ps_partitioner", status.message());
}

}  // namespace

FlagGroup ClusterFlags() {
  FlagGroup group = ThisGroup();
  group.validators = {CheckPartitioner};
  return group;
}

FlagGroup ConnectionFlags(const std::vector<absl::string_view>& more) {
  FlagGroup group = {.name = ThisGroup().name, .flags = {}};
  for (const absl::string_view name : more) group.flags.push_back(SharedFlag(name));
  for (const absl::string_view name :
       {"serve", "remote_cluster", "run_secret_file", "tls_cert", "tls_key", "tls_ca", "insecure_cluster",
        "listen_on_all_interfaces", "start_timeout_secs", "peer_timeout_secs"}) {
    group.flags.push_back(SharedFlag(name));
    if (name == "peer_timeout_secs") {
      group.flags.back().help = "Seconds after which a task that does not answer counts as lost.";
    }
  }
  return group;
}

}  // namespace official::flags
