// What the flags and the environment of a worker must fit together to, before it connects to the others.

#include "utils/run/cluster.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/cluster_spec.h"
#include "utils/distribute/memory_exchange.h"
#include "utils/files/files.h"
#include "utils/run/cluster_secrets.h"
#include "utils/run/coordinator.h"
#include "utils/run/devices.h"
#include "utils/run/small_run.h"
#include "utils/run/strategy.h"

namespace official::run {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

// Sets TF_CONFIG as long as it lives.
class TfConfig {
 public:
  explicit TfConfig(const std::string& text) { setenv("TF_CONFIG", text.c_str(), 1); }
  ~TfConfig() { unsetenv("TF_CONFIG"); }
};

std::string Refused(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

constexpr char kTwoWorkers[] = R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})";
constexpr char kChiefAndWorker[] =
    R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})";
constexpr char kWithPs[] = R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}})";
constexpr char kBesideEvaluator[] =
    R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"], "evaluator": ["c:1"]}, "task": {"type": "worker", "index": 0}})";
constexpr char kEvaluator[] = R"({"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})";

TEST_CASE("A process is alone, or one of the workers of its cluster") {
  const Cluster alone = FindCluster({}).value();
  CHECK_FALSE(alone.launch);
  CHECK(alone.is_chief());
  CHECK(alone.num_workers == 1);
  CHECK(CheckAlone({}, "--predict").ok());
  for (const char* text : {kTwoWorkers, kChiefAndWorker}) {
    const TfConfig tf_config(text);
    const Cluster cluster = FindCluster({}).value();
    CHECK(cluster.num_workers == 2);
    CHECK(cluster.worker == 1);
    CHECK_FALSE(cluster.is_chief());
    CHECK_THAT(Refused(CheckAlone({}, "--predict")),
               StartsWith("--predict is for one process, and TF_CONFIG describes 2 workers; start it without: env -u"));
  }
}

TEST_CASE("The directory of TF_CONFIG is that of the run") {
  Config config;
  config.train.model_dir = "/tmp/run2";
  for (const char* rest :
       {R"("cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0})", R"("task": {})"}) {
    const TfConfig tf_config(absl::StrCat(R"({"model_dir": "/tmp/run1", )", rest, "}"));
    CHECK(Refused(FindCluster(config).status()) ==
          "--model_dir=/tmp/run2 must have the same value as the model_dir in TF_CONFIG, /tmp/run1; give "
          "--model_dir=/tmp/run1, or leave it out of TF_CONFIG");
    Config same;
    same.train.model_dir = "/tmp/run1";
    CHECK(FindCluster(same).ok());
    Config without;
    without.base.has_model_dir = false;
    CHECK(FindCluster(without).ok());
  }
}

TEST_CASE("The devices of a coordinator's workers are those of the flag") {
  Config config;
  config.performance.num_cpu_devices = 2;
  bool has_run = false;
  const auto program = [&](coordinator::ClusterCoordinator& coordinator) {
    CHECK(coordinator.num_replicas_in_sync() == 2);
    has_run = true;
    return absl::OkStatus();
  };
  CHECK(Refused(RunCoordinated(config, {}, {.num_devices = 3}, program)) ==
        "CoordinatorOptions::num_devices is 3, and --num_cpu_devices=2; leave it to the flag, or make both the same");
  config.performance.num_cpu_devices = 1;
  config.base.num_gpus = 1024;
  CHECK(Refused(RunCoordinated(config, {}, {.num_devices = 3}, program)) ==
        "CoordinatorOptions::num_devices is 3, and --num_gpus=1024; leave it to the flag, or make both the same");
  CHECK_THAT(Refused(RunCoordinated(config, {}, {}, program)), StartsWith("--num_gpus=1024: this machine "));
  config.base.num_gpus = -1;
  CHECK_THAT(Refused(RunCoordinated(config, {}, {}, program)), Contains("give their number, the same on all tasks"));
  config.base.num_gpus = 1;
  config.performance.num_cpu_devices = 2;
  for (const absl::Status& refused : {RunCoordinated(config, {}, {}, program), DevicesFor(config).status()}) {
    CHECK(Refused(refused) == "--num_cpu_devices=2 cannot be combined with --num_gpus=1; use one of them");
  }
  config.base.num_gpus = 0;
  CHECK_FALSE(has_run);
  CHECK(RunCoordinated(config, {}, {}, program).ok());
  CHECK(has_run);
}

TEST_CASE("CPU devices have their variables in one place") {
  Config config;
  config.base.num_gpus = 0;
  config.performance.num_cpu_devices = 2;
  config.performance.distribution_strategy = "central_storage";
  const Devices devices = DevicesFor(config).value();
  CHECK(devices.strategy == "central_storage");
  const auto strategy = MakeStrategy(config, devices).value();
  CHECK(strategy->name() == "central_storage");
  CHECK(strategy->shares_memory());
}

TEST_CASE("A strategy for a loop of one's own needs a device") {
  Config config;
  config.base.num_gpus = 1 << 10;
  CHECK_THAT(Refused(ConnectedStrategy::Create(config).status()), StartsWith("--num_gpus=1024: this machine "));
  config.base.num_gpus = 0;
  config.performance.num_cpu_devices = 0;
  CHECK(ConnectedStrategy::Create(config).status() ==
        absl::InvalidArgumentError("a strategy of 0 devices; it needs at least 1"));
}

TEST_CASE("A loop of one's own has the strategy that a flag names, if the devices can have it") {
  Config config;
  config.performance.num_cpu_devices = 2;
  CHECK(ConnectedStrategy::Create(config).value()->strategy().name() == "mirrored");
  config.performance.distribution_strategy = "central_storage";
  CHECK(ConnectedStrategy::Create(config).value()->strategy().name() == "central_storage");
  config.performance.distribution_strategy = "one_device";
  CHECK_THAT(Refused(ConnectedStrategy::Create(config).status()),
             StartsWith("--distribution_strategy=one_device is for one device, and this run has 2 CPU devices"));
}

TEST_CASE("An evaluator is none of the workers, who know of it from their cluster or a flag") {
  {
    const TfConfig tf_config(kEvaluator);
    const Cluster cluster = FindCluster({}).value();
    CHECK(cluster.is_evaluator);
    CHECK_FALSE(cluster.is_chief());
    CHECK(cluster.num_workers == 1);
    CHECK_THAT(Refused(CheckAlone({}, "--predict")),
               StartsWith("--predict is for one process, and TF_CONFIG makes this one an evaluator; start it without"));
  }
  for (const auto& [text, has] : {std::pair(kBesideEvaluator, true), std::pair(kTwoWorkers, false)}) {
    const TfConfig tf_config(text);
    const Cluster cluster = FindCluster({}).value();
    CHECK_FALSE(cluster.is_evaluator);
    CHECK(cluster.has_evaluator == has);
    CHECK(cluster.num_workers == 2);
  }
  Config config;
  config.cluster.separate_evaluator = true;
  CHECK(FindCluster(config).value().has_evaluator);
  const TfConfig tf_config(kTwoWorkers);
  CHECK(FindCluster(config).value().has_evaluator);
}

TEST_CASE("Flags that an evaluator contradicts are refused, beside it and in it") {
  Config config;
  config.base.clean = true;
  for (const char* text : {kEvaluator, kBesideEvaluator}) {
    const TfConfig tf_config(text);
    CHECK(
        Refused(FindCluster(config).status()) ==
        "--clean: this run has an evaluator, which may evaluate what is about to be removed; leave it out, and remove "
        "--model_dir before the run");
  }
  config.base.clean = false;
  config.base.stop_threshold = 0.9;
  config.cluster.separate_evaluator = true;
  CHECK(Refused(FindCluster(config).status()) ==
        "--stop_threshold: this run has an evaluator, and its workers know of no evaluation; leave it out, or the "
        "evaluator");
  config.base.stop_threshold.reset();
  config.base.keep_best = {"loss", /*increases=*/false, 1};
  CHECK_THAT(Refused(FindCluster(config).status()), Contains("--keep_best: this run has an evaluator"));
  config.base.keep_best.reset();
  config.base.early_stop = {"loss", /*increases=*/false, 1};
  CHECK_THAT(Refused(FindCluster(config).status()), Contains("--early_stop: this run has an evaluator"));
  config.base.early_stop.reset();
  config.base.eval_only = true;
  CHECK(FindCluster(config).ok());  // which evaluates once
  const TfConfig tf_config(kEvaluator);
  CHECK(Refused(FindCluster(config).status()) ==
        "--eval_only: this run has an evaluator, which this process is; leave it out, or evaluate once without a "
        "cluster");
}

constexpr char kPs[] =
    R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1", "d:1"]}, "task": {"type": "ps", "index": 1}})";

TEST_CASE("Parameter servers come after the workers, which train by themselves") {
  const TfConfig tf_config(kPs);
  const Cluster cluster = FindCluster({}).value();
  CHECK(cluster.num_workers == 2);
  CHECK(cluster.num_servers == 2);
  CHECK(cluster.worker == 3);
  CHECK(cluster.is_server());
  Config config;
  config.base.num_gpus = 0;
  for (const char* strategy : {"default", "parameter_server"}) {
    config.performance.distribution_strategy = strategy;
    CHECK(FindCluster(config).ok());
    const Devices devices = DevicesFor(config, cluster.num_workers, cluster.num_servers).value();
    CHECK(devices.strategy == "parameter_server");
    CHECK(devices.num_replicas == 1);
    CHECK(devices.replica_batch == config.base.batch_size);
  }
  CHECK_THAT(
      Refused(CheckAlone({}, "--predict")),
      StartsWith("--predict is for one process, and TF_CONFIG describes 2 workers and parameter servers; start"));
}

TEST_CASE("With parameter servers each worker has its own CPU devices, and a server has one") {
  Config config;
  config.base.batch_size = 12;
  config.performance.num_cpu_devices = 3;
  const Devices devices = DevicesFor(config, /*num_workers=*/2, /*num_servers=*/1).value();
  CHECK(devices.num_replicas == 3);
  CHECK(devices.replica_batch == 4);
  const auto exchanges = distribute::MakeMemoryExchanges(3);
  CHECK(MakeStrategy(config, devices, exchanges[0].get()).value()->num_local_replicas() == 3);
  CHECK(MakeStrategy(config, devices, exchanges[1].get()).value()->num_replicas_in_sync() == 3);
  const Devices of_server = DevicesFor(config, 2, 1, /*is_server=*/true).value();
  CHECK(of_server.replica_batch == 12);
  CHECK(MakeStrategy(config, of_server, exchanges[2].get()).value()->num_local_replicas() == 1);
  config.performance.devices = "gpu:0,gpu:1";  // those of workers on other machines
  CHECK(DevicesFor(config, 2, 1, /*is_server=*/true).value().kind == "cpu");
  config.performance.devices.reset();
  config.base.batch_size = 13;
  CHECK_THAT(Refused(DevicesFor(config, 2, 1).status()), Contains("try --batch_size=12 or --batch_size=15 instead"));
}

TEST_CASE("Flags that are not for parameter servers are refused, with what to do") {
  const TfConfig tf_config(kWithPs);
  const auto refused = [](const Config& config) { return Refused(FindCluster(config).status()); };
  const auto begin = [](absl::string_view flag) {
    return StartsWith(
        absl::StrCat("TF_CONFIG describes 1 ps, and ", flag, " is not for runs with parameter servers; "));
  };
  Config config;
  config.performance.distribution_strategy = "mirrored";
  CHECK_THAT(refused(config), begin("--distribution_strategy=mirrored"));
  CHECK_THAT(refused(config), Contains("use --distribution_strategy=parameter_server, or leave ps out of the cluster"));
  config = {};
  config.base.eval_only = true;
  CHECK_THAT(refused(config), begin("--eval_only"));
  config = {};
  config.base.stop_threshold = 0.9;
  CHECK_THAT(refused(config), begin("--stop_threshold"));
  config = {};
  config.train.ema_decay = 0.9;
  CHECK_THAT(refused(config), begin("--ema_decay"));
  config = {};
  config.train.clip_norm = 1;
  CHECK_THAT(refused(config), begin("--clip_norm"));
  config = {};
  config.base.early_stop = {"loss", /*increases=*/false, 1};
  CHECK_THAT(refused(config), begin("--early_stop"));
  config = {};
  config.train.dtype = compute::DType::kBFloat16;
  CHECK_THAT(refused(config), begin("--dtype=bf16"));
  config = {};
  config.train.loss_scale.dynamic = true;
  CHECK_THAT(refused(config), begin("--loss_scale=dynamic"));
  config = {};
  config.cluster.on_peer_loss = flags::OnPeerLoss::kRestart;
  CHECK_THAT(refused(config), begin("--on_peer_loss=restart"));
  config = {};
  config.cluster.min_workers = 1;
  CHECK_THAT(refused(config), begin("--min_workers"));
  config = {};
  config.cluster.num_replicas = 2;
  CHECK_THAT(refused(config), begin("--num_replicas=2"));
}

TEST_CASE("Flags of the updates of parameter servers need those, and each other") {
  const auto refused = [](const Config& config) { return Refused(FindCluster(config).status()); };
  Config sync, number, staleness;
  sync.cluster.sync_replicas = true;
  number.cluster.replicas_to_aggregate = 2;
  staleness.cluster.max_gradient_staleness = 3;
  CHECK_THAT(refused(sync), StartsWith("--sync_replicas is for runs with parameter servers, and this process is alone; "
                                       "leave it out, or give the cluster of TF_CONFIG a job ps"));
  CHECK_THAT(refused(number), StartsWith("--replicas_to_aggregate is for runs with parameter servers"));
  Config greedy;
  greedy.cluster.ps_placement = distribute::Placement::kGreedy;
  CHECK_THAT(refused(greedy), StartsWith("--ps_placement is for runs with parameter servers"));
  Config divided;
  divided.cluster.ps_partitioner = "fixed_size:2";
  CHECK_THAT(refused(divided), StartsWith("--ps_partitioner is for runs with parameter servers"));
  CHECK_THAT(refused(staleness), StartsWith("--max_gradient_staleness is for runs with parameter servers"));
  {
    const TfConfig workers(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})");
    CHECK_THAT(refused(sync), Contains(", and TF_CONFIG describes no ps; "));
  }
  const TfConfig with_ps(kWithPs);
  CHECK(FindCluster(sync).ok());
  CHECK(FindCluster(staleness).ok());
  CHECK_THAT(refused(number),
             StartsWith("--replicas_to_aggregate=2 is for synchronous steps; give --sync_replicas, too"));
  staleness.cluster.sync_replicas = true;
  CHECK_THAT(refused(staleness), StartsWith("--max_gradient_staleness=3, but with --sync_replicas gradients of older "
                                            "steps are always dropped; leave one of them out"));
  number.cluster.sync_replicas = true;
  CHECK(FindCluster(number).ok());
}

TEST_CASE("A synchronous step takes a batch of each worker, or as many as --replicas_to_aggregate") {
  Config config;
  CHECK(BatchesPerStep(config).value() == 1);
  const TfConfig with_ps(R"({"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
                             "task": {"type": "ps", "index": 0}})");
  CHECK(BatchesPerStep(config).value() == 1);  // each worker makes steps of its own
  config.cluster.sync_replicas = true;
  CHECK(BatchesPerStep(config).value() == 3);
  config.cluster.replicas_to_aggregate = 5;
  CHECK(BatchesPerStep(config).value() == 5);
}

TEST_CASE("A training loop of one's own has no parameter servers") {
  const TfConfig tf_config(kWithPs);
  CHECK_THAT(Refused(ConnectedStrategy::Create({}).status()),
             StartsWith("TF_CONFIG describes 1 ps, and a training loop of one's own has only workers; leave ps out"));
}

TEST_CASE("The strategy parameter_server needs parameter servers, but in a process alone one copy of the variables") {
  Config config;
  config.base.num_gpus = 0;
  config.performance.num_cpu_devices = 2;
  config.performance.distribution_strategy = "parameter_server";
  const Devices alone = DevicesFor(config).value();
  CHECK(alone.strategy == "central_storage");
  CHECK(alone.num_replicas == 2);
  CHECK(alone.num_servers == 0);
  CHECK_THAT(Refused(DevicesFor(config, /*num_workers=*/2).status()),
             StartsWith("--distribution_strategy=parameter_server needs parameter servers, and this run has none: the "
                        "cluster spec needs to have `ps` jobs; add \"ps\": [\"host:port\"]"));
}

TEST_CASE("Strangers are kept out, or it is said that they need not be") {
  const TfConfig tf_config(kTwoWorkers);
  const Cluster cluster = FindCluster({}).value();
  Config config;
  const auto refused = [&] {
    return Refused(Connect(config, cluster, {.kind = "cpu", .strategy = "", .num_replicas = 2}).status());
  };
  CHECK_THAT(refused(), StartsWith("worker 0 listens at a:1, where strangers may take part"));
  const std::string file = absl::StrCat(NewDirectory("secret"), "-file");
  config.cluster.run_secret_file = file;
  CHECK_THAT(refused(), StartsWith(absl::StrCat("--run_secret_file=", file, " cannot be read: ")));
  REQUIRE(files::WriteFileAtomically(file, "0123456789abcde").ok());
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  CHECK_THAT(refused(), StartsWith(absl::StrCat("--run_secret_file=", file, " has 15 bytes, and needs at least 16")));
  REQUIRE(files::WriteFileAtomically(file, "0123456789abcdef").ok());
  for (const mode_t mode : {0640, 0604, 0610}) {
    REQUIRE(chmod(file.c_str(), mode) == 0);
    CHECK_THAT(refused(), StartsWith(absl::StrCat("--run_secret_file=", file, " can be used by others; ")));
  }
}

TEST_CASE("Strangers are kept out of a worker that listens on all interfaces, whatever its address") {
  const TfConfig tf_config(
      R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 1}})");
  Config config;
  config.cluster.listen_on_all_interfaces = true;
  const Devices devices = {.kind = "cpu", .strategy = "", .num_replicas = 2};
  CHECK_THAT(Refused(Connect(config, FindCluster({}).value(), devices).status()),
             StartsWith("worker 1 listens at all interfaces, where strangers may take part"));
}

TEST_CASE("A secret is its owner's alone, or root's and that of a group of this user") {
  constexpr uid_t kRoot = 0, kUser = 1000;
  const auto advice = [](uid_t owner, mode_t mode, uid_t user) {
    struct stat file = {};
    file.st_uid = owner;
    file.st_mode = S_IFREG | mode;
    return HowToKeepFromOthers(file, user);
  };
  for (const mode_t mode : {0400, 0600}) {
    CHECK(advice(kUser, mode, kUser).empty());
    CHECK(advice(kRoot, mode, kRoot).empty());
  }
  for (const mode_t mode : {0440, 0640}) {
    CHECK(advice(kRoot, mode, kUser).empty());
    CHECK(advice(kUser, mode, kUser) == "make it yours alone: chmod 600 ");
    CHECK(advice(kRoot, mode, kRoot) == "make it yours alone: chmod 600 ");
  }
  for (const mode_t mode : {0444, 0660, 0450, 0641}) {
    CHECK(advice(kRoot, mode, kUser) == "a file of root may at most be read by your group: chmod 640 ");
  }
}

TEST_CASE("Certificates can be given instead of a secret, and need all of their files") {
  const TfConfig tf_config(kTwoWorkers);
  const Cluster cluster = FindCluster({}).value();
  Config config;
  const auto refused = [&] {
    return Refused(Connect(config, cluster, {.kind = "cpu", .strategy = "", .num_replicas = 2}).status());
  };
  const std::string folder = NewDirectory("certificates");
  const std::string cert = absl::StrCat(folder, "-cert"), key = absl::StrCat(folder, "-key");
  config.cluster.tls_cert = cert;
  CHECK_THAT(refused(), StartsWith("there is no --tls_key; give all of --tls_cert=FILE"));
  config.cluster.tls_key = key;
  CHECK_THAT(refused(), StartsWith("there is no --tls_ca; "));
  config.cluster.tls_ca = cert;
  CHECK_THAT(refused(), StartsWith(absl::StrCat("--tls_cert=", cert, " cannot be read: ")));
  REQUIRE(files::WriteFileAtomically(cert, "no certificate").ok());
  REQUIRE(files::WriteFileAtomically(key, "no key").ok());
  REQUIRE(chmod(key.c_str(), 0640) == 0);
  CHECK_THAT(refused(), StartsWith(absl::StrCat("--tls_key=", key, " can be used by others; ")));
  REQUIRE(chmod(key.c_str(), 0600) == 0);
  CHECK_THAT(refused(), StartsWith(absl::StrCat("--tls_cert=", cert, " has no certificate in PEM ")));
}

TEST_CASE("CUDA loads kernels at once where GPUs sum together, unless the environment says otherwise") {
  const auto loading = [](int num_gpus, int num_workers, std::optional<std::string> devices = std::nullopt) {
    Config config;
    config.base.num_gpus = num_gpus;
    config.performance.devices = std::move(devices);
    unsetenv("CUDA_MODULE_LOADING");
    DevicesFor(config, num_workers).status().IgnoreError();  // there may be no such GPUs
    const char* const value = std::getenv("CUDA_MODULE_LOADING");
    return std::string(value == nullptr ? "" : value);
  };
  CHECK(loading(/*num_gpus=*/1, /*num_workers=*/1).empty());
  CHECK(loading(0, 2).empty());
  CHECK(loading(2, 1) == "EAGER");
  CHECK(loading(-1, 1) == "EAGER");
  CHECK(loading(1, 2) == "EAGER");
  CHECK(loading(1, 1, "gpu:0,gpu:1") == "EAGER");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  Config config;
  config.base.num_gpus = 2;
  DevicesFor(config).status().IgnoreError();
  CHECK(std::string(std::getenv("CUDA_MODULE_LOADING")) == "LAZY");
  unsetenv("CUDA_MODULE_LOADING");
}

TEST_CASE("Replicas are at least as many as workers, and as their devices where those are counted") {
  Config config;
  config.base.num_gpus = 0;
  config.base.batch_size = 12;
  CHECK(DevicesFor(config).value().num_replicas == 1);
  CHECK(DevicesFor(config, 3).value().num_replicas == 3);
  CHECK(DevicesFor(config, 3).value().strategy == "multi_worker_mirrored");
  CHECK(DevicesFor(config, 3).value().replica_batch == 4);
  config.performance.num_cpu_devices = 2;
  CHECK(DevicesFor(config, 3).value().num_replicas == 6);
  config.cluster.num_replicas = 6;
  CHECK(DevicesFor(config, 3).value().num_replicas == 6);
  config.cluster.num_replicas = 4;
  CHECK(Refused(DevicesFor(config, 3).status()) ==
        "--num_replicas=4 contradicts --num_cpu_devices, which makes 2 on each of 3 workers; leave one of the two out");
  config.performance.num_cpu_devices = 1;
  CHECK(DevicesFor(config, 3).value().replica_batch == 3);
  CHECK(DevicesFor(config, 1).value().num_replicas == 4);
  CHECK(DevicesFor(config, 1).value().strategy == "mirrored");
  config.cluster.num_replicas = 2;
  CHECK(Refused(DevicesFor(config, 3).status()) ==
        "--num_replicas=2 is less than the 3 workers, of which each needs one; use at least 3, or fewer workers");
  config.cluster.num_replicas = 5;
  CHECK_THAT(Refused(DevicesFor(config, 3).status()),
             Contains("Found 5 replicas with a batch size of 12; try --batch_size=10 or --batch_size=15 instead"));
}

TEST_CASE("Devices that are named are there, or it is said what is") {
  Config config;
  config.performance.devices = "cpu:0,cpu:1";
  config.base.batch_size = 12;
  CHECK(DevicesFor(config).value().num_replicas == 2);
  CHECK(DevicesFor(config).value().indices.empty());
  config.performance.devices = "gpu:0,gpu:1000";
  CHECK_THAT(Refused(DevicesFor(config).status()),
             StartsWith("--devices=gpu:0,gpu:1000: there is no gpu:1000: this machine "));
}

TEST_CASE("Several workers do not sum as the devices of one do") {
  const TfConfig tf_config(kTwoWorkers);
  Config config;
  config.base.num_gpus = 0;
  for (const char* name : {"mirrored", "one_device", "off"}) {
    config.performance.distribution_strategy = name;
    CHECK_THAT(Refused(DevicesFor(config, 2).status()), Contains("use --distribution_strategy=multi_worker_mirrored"));
  }
}

TEST_CASE("The devices of a PJRT plugin train in one process, which is told before a plugin is looked for") {
  Config config;
  config.performance.distribution_strategy = "tpu";
  config.performance.pjrt_plugin = "missing.so";
  for (const auto& [workers, servers] : {std::pair(2, 0), std::pair(1, 1)}) {
    CHECK_THAT(Refused(DevicesFor(config, workers, servers).status()),
               StartsWith("--distribution_strategy=tpu: this run has several processes"));
  }
  // A loop of one's own computes on the CPU.
  CHECK_THAT(Refused(ConnectedStrategy::Create(config).status()),
             StartsWith("--distribution_strategy=tpu is not for this run, which trains on 1 CPU devices"));
}

TEST_CASE("A run that goes on without a worker knows how many there must be, and their addresses") {
  const TfConfig tf_config(kTwoWorkers);
  Config config;
  config.cluster.min_workers = 1;
  CHECK_THAT(Refused(FindCluster(config).status()), StartsWith("--min_workers=1 is for runs that go on without"));
  config.cluster.on_peer_loss = flags::OnPeerLoss::kRestart;
  CHECK(FindCluster(config).ok());
  config.cluster.min_workers = 3;
  CHECK_THAT(Refused(FindCluster(config).status()), StartsWith("--min_workers=3, but TF_CONFIG describes only 2"));
}

TEST_CASE("Processes that PMIx connects cannot begin again in place") {
  setenv("PMIX_RANK", "1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  Config config;
  config.cluster.on_peer_loss = flags::OnPeerLoss::kRestart;
  CHECK_THAT(Refused(FindCluster(config).status()),
             StartsWith("--on_peer_loss=restart needs the addresses of the workers, and mpirun connects them by PMIx"));
  unsetenv("PMIX_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST_CASE("A process that begins again knows how often, and with whom") {
  const TfConfig tf_config(kTwoWorkers);
  CHECK_FALSE(FindCluster({}).value().restart);
  setenv(kRestartVariable, ValueOf({.count = 3, .workers = {0, 1}, .in_vain = 2}).c_str(), 1);
  const Cluster cluster = FindCluster({}).value();
  unsetenv(kRestartVariable);
  REQUIRE(cluster.restart);
  CHECK(cluster.restart->count == 3);
  CHECK(cluster.restart->in_vain == 2);
  CHECK(cluster.restart->workers == std::vector<int>{0, 1});
}

}  // namespace
}  // namespace official::run
