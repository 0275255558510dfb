#include "utils/distribute/cluster/launcher_env.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/mutations.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<std::optional<Launch>> Read(const Variables& variables, const std::string& workers = "") {
  return ReadLauncherEnv(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      workers);
}

// Returns the launch; the environment must describe one.
Launch LaunchOf(const Variables& variables, const std::string& workers = "") {
  const auto launch = Read(variables, workers);
  INFO(launch.status());
  REQUIRE(launch.ok());
  REQUIRE(launch->has_value());
  return **launch;
}

bool IsAlone(const Variables& variables, const std::string& workers = "") {
  const auto launch = Read(variables, workers);
  INFO(launch.status());
  REQUIRE(launch.ok());
  return !launch->has_value();
}

std::string MessageFor(const Variables& variables, const std::string& workers = "") {
  const absl::Status status = Read(variables, workers).status();
  CHECK(absl::IsInvalidArgument(status));
  const std::string message(status.message());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

// `changes` over `variables`; an empty value removes the variable.
Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
    if (value.empty()) variables.erase(name);
  }
  return variables;
}

std::vector<std::string> Workers(const Launch& launch) { return launch.started.cluster.jobs.at("worker"); }

const Variables kTfConfig = {
    {"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})"}};
const Variables kTorchrun = {{"RANK", "1"},        {"WORLD_SIZE", "4"},       {"LOCAL_RANK", "1"},
                             {"GROUP_RANK", "0"},  {"GROUP_WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
const Variables kTrainJob = {{"PET_NNODES", "3"},
                             {"PET_NPROC_PER_NODE", "1"},
                             {"PET_NODE_RANK", "2"},
                             {"PET_MASTER_ADDR", "job-node-0-0.job"},
                             {"PET_MASTER_PORT", "29400"}};
const Variables kMpirun = {
    {"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "1234"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
// Task 2 of srun -N2 -n3, as Slurm 22.05 sets them.
const Variables kSlurm = {{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "2"},         {"SLURM_NODEID", "1"},
                          {"SLURM_LOCALID", "0"},        {"SLURM_NTASKS", "3"},
                          {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_STEP_NODELIST", "node[08-09]"}};

TEST_CASE("A process that nothing started as one of several is alone") {
  CHECK(IsAlone({}));
  CHECK(IsAlone({{"TF_CONFIG", ""}}));
  CHECK(IsAlone({{"TF_CONFIG", "{}"}}));
  CHECK(IsAlone({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  CHECK(IsAlone({{"WORLD_SIZE", "1"}}));
  CHECK(IsAlone({{"RANK", "3"}}));
  CHECK(IsAlone({{"RANK", ""}, {"WORLD_SIZE", ""}}));
  CHECK(IsAlone({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}}));
  CHECK(IsAlone({{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}}));
  CHECK(IsAlone({{"JOB_COMPLETION_INDEX", "5"}}));
  CHECK(IsAlone({{"JOB_COMPLETION_INDEX", "0"}}, "a:1"));
  CHECK(IsAlone({{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  CHECK(IsAlone({{"PMIX_RANK", "0"}}));
  CHECK(IsAlone({{"OMPI_COMM_WORLD_SIZE", "4"}}));
}

TEST_CASE("A process of an allocation of Slurm, but of no step of several tasks, is alone") {
  // srun PROGRAM
  CHECK(IsAlone(With(kSlurm, {{"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})));
  // The shell of salloc -n4.
  CHECK(IsAlone({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "node[08-09]"}}));
  // The same, where it is a step of its own (LaunchParameters=use_interactive_step).
  CHECK(IsAlone(With(kSlurm, {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})));
  // A script of sbatch -n4.
  CHECK(IsAlone({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}));
}

TEST_CASE("TF_CONFIG is taken, also for one task") {
  const Launch launch = LaunchOf(kTfConfig);
  CHECK(launch.launcher == "TF_CONFIG");
  CHECK(launch.started.task == Task{"worker", 1});
  CHECK(launch.NumProcesses() == 2);
  CHECK(Describe(launch) == "cluster of TF_CONFIG: worker 0 at a:1 (chief), worker 1 at b:1 (this process)");

  const Launch one =
      LaunchOf({{"TF_CONFIG", R"({"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}})"}});
  CHECK(one.NumProcesses() == 1);
  CHECK(Describe(one) == "cluster of TF_CONFIG: chief 0 at a:1 (chief, this process)");

  const Launch evaluator =
      LaunchOf({{"TF_CONFIG", R"({"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})"}});
  CHECK(evaluator.NumProcesses() == 2);
}

TEST_CASE("torchrun tells rank, size and the address of worker 0") {
  const Launch launch = LaunchOf(kTorchrun);
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.started.task == Task{"worker", 1});
  CHECK(Workers(launch) == std::vector<std::string>{"h:29500", "", "", ""});
  CHECK(Describe(launch) ==
        "cluster of torchrun: worker 0 at h:29500 (chief), worker 1 (this process), worker 2, worker 3");
}

TEST_CASE("Where torchrun listens at the port that it tells, worker 0 has the next one") {
  const auto address = [](const std::string& agent_listens, const std::string& port) {
    return Workers(
        LaunchOf(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", agent_listens}, {"MASTER_PORT", port}})))[0];
  };
  CHECK(address("True", "29500") == "h:29501");
  CHECK(address("True", "65534") == "h:65535");
  CHECK(address("True", "65535") == "h:65534");
  CHECK(address("False", "29500") == "h:29500");
  CHECK(address("true", "29500") == "h:29500");
  CHECK(address("", "65535") == "h:65535");
}

TEST_CASE("Without torchrun, its defaults describe a process a node") {
  const Launch launch = LaunchOf(kTrainJob);
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.started.task == Task{"worker", 2});
  CHECK(Workers(launch) == std::vector<std::string>{"job-node-0-0.job:29400", "", ""});
  // torchrun has read them and gives each process its own numbers.
  CHECK(LaunchOf(With(kTrainJob, kTorchrun)).NumProcesses() == 4);
}

TEST_CASE("mpirun tells rank and size, and hides the step of Slurm that runs its daemons") {
  CHECK(LaunchOf(kMpirun).launcher == "mpirun");
  CHECK(LaunchOf(kMpirun).started.task == Task{"worker", 2});
  CHECK(Workers(LaunchOf(kMpirun)) == std::vector<std::string>(3));
  CHECK(LaunchOf(With(kMpirun, With(kSlurm, {{"SLURM_PROCID", "0"}}))).launcher == "mpirun");
}

TEST_CASE("Slurm tells the first node, on which task 0 has a port by the numbers of job and step") {
  const Launch launch = LaunchOf(kSlurm);
  CHECK(launch.launcher == "Slurm");
  CHECK(launch.started.task == Task{"worker", 2});
  CHECK(Workers(launch) == std::vector<std::string>{"node08:20112", "", ""});
  const auto address = [](const Variables& changes) { return Workers(LaunchOf(With(kSlurm, changes)))[0]; };
  CHECK(address({{"SLURM_STEP_ID", "3"}}) == "node08:20115");
  CHECK(address({{"SLURM_JOB_ID", "749"}, {"SLURM_STEP_ID", "15"}}) == "node08:31999");
  CHECK(address({{"SLURM_JOB_ID", "750"}}) == "node08:20000");
  CHECK(address({{"SLURM_JOB_ID", "4294967295"}, {"SLURM_STEP_ID", "4294967290"}}) == "node08:20010");
  CHECK(address({{"SLURM_STEP_RESV_PORTS", "12000-12001"}}) == "node08:12000");
  // However the tasks behind the first lie on the nodes.
  CHECK(address({{"SLURM_PROCID", "1"}, {"SLURM_NODEID", "1"}}) == "node08:20112");
  CHECK(address({{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}) == "node08:20112");
  // Without the number of tasks of the step: that of the job.
  CHECK(LaunchOf(With(kSlurm, {{"SLURM_STEP_NUM_TASKS", ""}, {"SLURM_NTASKS", "4"}})).NumProcesses() == 4);
}

TEST_CASE("The processes of mpirun and of srun --mpi=pmix meet by PMIx") {
  CHECK(LaunchOf(kMpirun).AddressesByPmix());
  const Variables pmix = With(kSlurm, {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}});
  CHECK(LaunchOf(pmix).launcher == "Slurm");
  CHECK(LaunchOf(pmix).AddressesByPmix());
  CHECK(Workers(LaunchOf(pmix)) == std::vector<std::string>(3));
  // A step of srun --mpi=none within that step.
  CHECK(Workers(LaunchOf(With(pmix, {{"SLURM_STEP_ID", "1"}})))[0] == "node08:20113");
  CHECK_FALSE(LaunchOf(With(pmix, {{"SLURM_STEP_ID", "1"}})).AddressesByPmix());
  CHECK_FALSE(LaunchOf(kSlurm).AddressesByPmix());
  CHECK_FALSE(LaunchOf(kTorchrun).AddressesByPmix());
  CHECK_FALSE(LaunchOf(kTfConfig).AddressesByPmix());
  CHECK_FALSE(LaunchOf({{"JOB_COMPLETION_INDEX", "1"}}, "a:1,b:1").AddressesByPmix());
  // torchrun, started by srun --mpi=pmix on each node, is no PMIx.
  CHECK_FALSE(LaunchOf(With(pmix, With(kTorchrun, {{"GROUP_WORLD_SIZE", "3"}}))).AddressesByPmix());
}

TEST_CASE("A list of workers and the index of a job of Kubernetes make a cluster") {
  const Launch launch = LaunchOf({{"JOB_COMPLETION_INDEX", "1"}}, "job-[0-2].job:2222");
  CHECK(launch.launcher == "--workers");
  CHECK(launch.started.task == Task{"worker", 1});
  CHECK(Workers(launch) == std::vector<std::string>{"job-0.job:2222", "job-1.job:2222", "job-2.job:2222"});
}

TEST_CASE("Wrong variables are refused with their value and how to start without the launcher") {
  CHECK_THAT(MessageFor({{"TF_CONFIG", " "}}), Contains("TF_CONFIG: it is empty; write {"));
  CHECK_THAT(MessageFor({{"TF_CONFIG", "[1]"}}), Contains("to train without TF_CONFIG: env -u TF_CONFIG PROGRAM ..."));

  CHECK_THAT(MessageFor({{"WORLD_SIZE", "4"}}),
             Contains("the environment variable WORLD_SIZE is 4, but RANK is not set; it needs the number of this "
                      "process, from 0 to 3; to train without torchrun: env -u RANK"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"RANK", "4"}})), Contains("RANK is '4'; it needs a number from 0 to 3"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"RANK", "-1"}})), Contains("RANK is '-1'"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"WORLD_SIZE", "0"}})), Contains("WORLD_SIZE is '0'"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"WORLD_SIZE", "two\n"}})), Contains("WORLD_SIZE is 'two\\n'"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"WORLD_SIZE", "2147483647"}})), Contains("a number from 1 to 8192"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"MASTER_ADDR", ""}})), Contains("MASTER_ADDR is not set"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"MASTER_PORT", "0"}})), Contains("MASTER_PORT is '0'"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"MASTER_ADDR", "::1"}})),
             Contains("MASTER_ADDR:MASTER_PORT: \"::1:29500\" has several colons; write an IPv6 address in brackets"));
  CHECK_THAT(MessageFor(With(kTrainJob, {{"PET_NNODES", "2:4"}})), Contains("PET_NNODES is '2:4'"));
  CHECK_THAT(MessageFor(With(kTrainJob, {{"PET_NODE_RANK", ""}})), Contains("PET_NODE_RANK is not set"));

  CHECK_THAT(MessageFor(With(kMpirun, {{"PMIX_RANK", "3"}})), Contains("PMIX_RANK is '3'"));
  CHECK_THAT(MessageFor(With(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "x"}})), Contains("OMPI_COMM_WORLD_SIZE is 'x'"));
  CHECK_THAT(
      MessageFor({{"PMIX_RANK", "1"}}),
      Contains("PMIX_RANK is 1, so that this is one of several processes, but OMPI_COMM_WORLD_SIZE does not say"));
}

TEST_CASE("Wrong variables of Slurm are refused") {
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_PROCID", "3"}})), Contains("SLURM_PROCID is '3'"));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_NODELIST", ""}})), Contains("SLURM_STEP_NODELIST is not set"));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_NODELIST", "node[08-"}})),
             Contains("SLURM_STEP_NODELIST is wrong: 'node[08-' has a bracket that is not closed"));
  CHECK(MessageFor(With(kSlurm, {{"SLURM_PROCID", "0"}})) ==
        "the environment variable SLURM_NODEID is '1', but task 0 must be on the first node, 0; use srun "
        "--distribution=block; to train without Slurm: env -u PMIX_RANK -u SLURM_STEP_ID PROGRAM ...");
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_JOB_ID", ""}})), Contains("SLURM_JOB_ID is not set"));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_ID", "0x"}})), Contains("SLURM_STEP_ID is '0x'; it needs a number"));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_NODELIST", "a/b"}})),
             Contains("SLURM_STEP_NODELIST: \"a/b:20112\""));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_RESV_PORTS", "x"}})), Contains("SLURM_STEP_RESV_PORTS is wrong"));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_RESV_PORTS", "::,::"}})),
             Contains("SLURM_STEP_RESV_PORTS: \"node08:[::,::]\""));
  CHECK_THAT(MessageFor(With(kSlurm, {{"SLURM_STEP_RESV_PORTS", "65536-65537"}})), Contains("\"node08:65536\""));
}

TEST_CASE("A list of workers must fit its index") {
  CHECK_THAT(MessageFor({}, "a:1,b:1"), Contains("JOB_COMPLETION_INDEX is not set; it needs a number from 0 to 1; to "
                                                 "train without --workers: PROGRAM ... without --workers"));
  CHECK_THAT(MessageFor({{"JOB_COMPLETION_INDEX", "2"}}, "a:1,b:1"), Contains("JOB_COMPLETION_INDEX is '2'"));
  CHECK_THAT(MessageFor({{"JOB_COMPLETION_INDEX", "0"}}, "a:1,b"),
             Contains("flag --workers, worker 1: \"b\" has no port"));
  CHECK_THAT(MessageFor({{"JOB_COMPLETION_INDEX", "0"}}, "a:1,a:1"), Contains("are the same address"));
  CHECK_THAT(MessageFor({{"JOB_COMPLETION_INDEX", "0"}}, "a[0-:1"), Contains("flag --workers: 'a[0-:1' has a bracket"));
}

TEST_CASE("Launchers that agree are one cluster, and the first is taken") {
  const Variables both =
      With(kTfConfig, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  CHECK(LaunchOf(both).launcher == "TF_CONFIG");
  // A parameter server has no number among the workers.
  CHECK(LaunchOf(With(both, {{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]},
                                              "task": {"type": "ps", "index": 0}})"}}))
            .started.task == Task{"ps", 0});
  // Two torchruns of two processes each, which srun started on two nodes.
  const Variables torchruns =
      With(With(kSlurm, kTorchrun), {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}});
  CHECK(LaunchOf(torchruns).launcher == "torchrun");
  CHECK(LaunchOf(torchruns).NumProcesses() == 4);
}

TEST_CASE("Launchers that disagree are refused with what both say") {
  CHECK(MessageFor(With(kTfConfig, kSlurm)) ==
        "TF_CONFIG says that this is worker 1 of 2 processes, but Slurm that it is worker 2 of 3 processes; use only "
        "one of them: env -u PMIX_RANK -u SLURM_STEP_ID PROGRAM ... or env -u TF_CONFIG PROGRAM ...");
  // The same number of processes, but another place.
  CHECK_THAT(MessageFor(With(kTfConfig, {{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}})),
             Contains("TF_CONFIG says that this is worker 1 of 2 processes, but mpirun that it is worker 0 of 2"));
  // A TF_CONFIG of one task, in each of several processes.
  CHECK_THAT(MessageFor(With(kSlurm, {{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]},
                                                       "task": {"type": "worker", "index": 0}})"}})),
             Contains("worker 0 of 1 processes, but Slurm that it is worker 2 of 3"));
  CHECK_THAT(MessageFor(With(kSlurm, kTorchrun)),
             Contains("torchrun says that this is worker 1 of 4 processes, but Slurm"));
  CHECK_THAT(MessageFor(With(kTorchrun, {{"JOB_COMPLETION_INDEX", "0"}}), "a:1,b:1"),
             Contains("--workers says that this is worker 0 of 2 processes, but torchrun that it is worker 1 of 4"));
}

TEST_CASE("Damaged environments are refused in one line or give a task of the cluster") {
  std::mt19937 random(2);
  const std::vector<Variables> valid = {kTorchrun,
                                        kTrainJob,
                                        kMpirun,
                                        kSlurm,
                                        With(kSlurm, kMpirun),
                                        With(kSlurm, {{"PMIX_NAMESPACE", "slurm.pmix.7.0"}}),
                                        With(kSlurm, {{"SLURM_STEP_RESV_PORTS", "12000-12003"}})};
  int refused = 0, taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    Variables variables = valid[i % valid.size()];
    auto damaged = variables.begin();
    std::advance(damaged, random() % variables.size());
    damaged->second = Mutate(damaged->second, random);
    CAPTURE(damaged->first, damaged->second);
    const auto launch = Read(variables);
    if (!launch.ok()) {
      ++refused;
      MessageFor(variables);
    } else if (launch->has_value()) {
      ++taken;
      const auto& [cluster, task] = (*launch)->started;
      CHECK(task.index < cluster.NumTasks(task.type));
    }
  }
  CHECK(refused > 1'000);
  CHECK(taken > 1'000);
}

}  // namespace
}  // namespace official::distribute
