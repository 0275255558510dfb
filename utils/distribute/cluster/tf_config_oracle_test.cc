#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "utils/distribute/cluster/cluster_spec.h"
#include "utils/distribute/cluster/tf_config.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;

// What TensorFlow's multi_worker_util gives for the task: is_chief, worker_count, id_in_cluster.
struct Roles {
  bool is_chief;
  int num_workers;
  int worker_index;
};

struct Row {
  const char* name;
  const char* tf_config;
  std::optional<Roles> tensorflow;  // nothing: TensorFlow 2.15.1 raises an exception
  const char* refused;              // a part of our message, "" if the value is taken
};

// Found by running TensorFlow 2.15.1: TFConfigClusterResolver and then multi_worker_util. Where it gives roles and we
// refuse, its processes wait for each other for ever, or train something else than what was meant.
const Row kRows[] = {
    {"empty string", "", std::nullopt, ""},
    {"white space", " ", std::nullopt, "it is empty; write {"},
    {"{}", "{}", std::nullopt, ""},
    {"not json", "{cluster:", std::nullopt, "it is not JSON: there is an error at byte 2"},
    {"json list", "[1]", std::nullopt, R"(it is [1]; write {"cluster")"},
    {"json null", "null", std::nullopt, "it is null; write"},
    {"no task", R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}})", std::nullopt,
     "task is missing; write which one this is"},
    {"task without type", R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"index": 0}})",
     std::nullopt, "task.type is missing"},
    {"task without index",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "worker"}})", std::nullopt,
     "task.index is missing; write a number from 0 to 1"},
    {"index past end",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": 2}})",
     std::nullopt, "task.index is 2; write that of this worker, a number from 0 to 1"},
    {"index negative",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": -1}})",
     Roles{false, 2, -1}, "task.index is -1; write"},
    {"index string",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": "1"}})",
     Roles{false, 2, 1}, ""},
    {"index float",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": 0.5}})",
     Roles{true, 2, 0}, "task.index is 0.5; write"},
    {"unknown type",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "wrker", "index": 0}})",
     std::nullopt, R"(task.type is "wrker"; did you mean "worker"?)"},
    {"unknown job",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"], "boss": ["127.0.0.1:1"]},)"
     R"( "task": {"type": "worker", "index": 0}})",
     std::nullopt, "the job cluster.boss is unknown; write one of chief, worker"},
    {"two chiefs",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"], "chief": ["127.0.0.1:1", "127.0.0.1:2"]},)"
     R"( "task": {"type": "chief", "index": 0}})",
     std::nullopt, "cluster.chief has 2 tasks; write one"},
    {"duplicate address",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23001"]}, "task": {"type": "worker", "index": 0}})",
     Roles{true, 2, 0}, "cluster.worker[1]: "},
    {"address without port",
     R"({"cluster": {"worker": ["127.0.0.1", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": 0}})",
     Roles{true, 2, 0}, R"(cluster.worker[0]: "127.0.0.1" has no port)"},
    {"port 0", R"({"cluster": {"worker": ["127.0.0.1:0", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": 0}})",
     Roles{true, 2, 0}, "has the port '0'"},
    {"port 99999",
     R"({"cluster": {"worker": ["127.0.0.1:99999", "127.0.0.1:23002"]}, "task": {"type": "worker", "index": 0}})",
     Roles{true, 2, 0}, "has the port '99999'"},
    {"scheme",
     R"({"cluster": {"worker": ["grpc://127.0.0.1:23001", "127.0.0.1:23002"]},)"
     R"( "task": {"type": "worker", "index": 0}})",
     Roles{true, 2, 0}, R"(begins with a scheme; write "127.0.0.1:23001")"},
    {"ipv6", R"({"cluster": {"worker": ["[::1]:23001", "[::1]:23002"]}, "task": {"type": "worker", "index": 0}})",
     Roles{true, 2, 0}, ""},
    {"address number", R"({"cluster": {"worker": [5]}, "task": {"type": "worker", "index": 0}})", std::nullopt,
     "cluster.worker[0] is 5; write an address"},
    {"job is string", R"({"cluster": {"worker": "127.0.0.1:1"}, "task": {"type": "worker", "index": 0}})", std::nullopt,
     R"(cluster.worker is "127.0.0.1:1"; write a list)"},
    {"dict of indices",
     R"({"cluster": {"worker": {"0": "127.0.0.1:23001", "1": "127.0.0.1:23002"}},)"
     R"( "task": {"type": "worker", "index": 1}})",
     Roles{false, 2, 1}, ""},
    {"sparse indices", R"({"cluster": {"worker": {"3": "127.0.0.1:23001"}}, "task": {"type": "worker", "index": 3}})",
     std::nullopt, R"(none with the key "0")"},
    {"empty job", R"({"cluster": {"worker": []}, "task": {"type": "worker", "index": 0}})", std::nullopt,
     "cluster.worker is []; write"},
    {"evaluator alone", R"({"cluster": {"evaluator": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})",
     Roles{true, 1, 0}, "nobody who trains"},
    {"evaluator not in cluster",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "evaluator", "index": 0}})",
     std::nullopt, ""},
    {"evaluator 1",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]}, "task": {"type": "evaluator", "index": 1}})",
     std::nullopt, "task.index is 1; write that of this evaluator, 0"},
    {"ps only", R"({"cluster": {"ps": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}})", std::nullopt,
     "cluster has 1 ps, but nobody who trains"},
    {"single worker", R"({"cluster": {"worker": ["127.0.0.1:23001"]}, "task": {"type": "worker", "index": 0}})",
     Roles{true, 1, 0}, ""},
    {"chief and master", R"({"cluster": {"chief": ["a:1"], "master": ["b:1"]}, "task": {"type": "chief", "index": 0}})",
     std::nullopt, R"(a "chief" and a "master")"},
    {"duplicate keys",
     R"({"cluster":{"worker":["127.0.0.1:1"],"worker":["127.0.0.1:2","127.0.0.1:3"]},)"
     R"("task":{"type":"worker","index":0}})",
     Roles{true, 2, 0}, "the key cluster.worker is there twice"},
    {"unknown top key",
     R"({"cluster": {"worker": ["127.0.0.1:23001", "127.0.0.1:23002"]},)"
     R"( "task": {"type": "worker", "index": 0}, "tsk": 1})",
     Roles{true, 2, 0}, R"(the key tsk is unknown; did you mean "task"?)"},
};

TEST_CASE("TF_CONFIG has the meaning that TensorFlow gives it, or is refused") {
  for (const Row& row : kRows) {
    CAPTURE(row.name, row.tf_config);
    const auto config = ParseTfConfig(row.tf_config);
    if (row.refused[0] != '\0') {
      CHECK(absl::IsInvalidArgument(config.status()));
      CHECK_THAT(std::string(config.status().message()), Contains(row.refused));
      continue;
    }
    REQUIRE(config.ok());
    if (!row.tensorflow) continue;  // the next cases
    REQUIRE(config->has_value());
    const auto& [cluster, task] = **config;
    CHECK(IsChief(cluster, task) == row.tensorflow->is_chief);
    CHECK(cluster.NumWorkers() == row.tensorflow->num_workers);
    CHECK(WorkerIndex(cluster, task) == row.tensorflow->worker_index);
  }
}

// For three rows that are taken TensorFlow raises: an empty text, which the resolver refuses as JSON and is taken as
// not set here, as other variables of launchers are; {} and an evaluator, for which only multi_worker_util raises and
// the Estimator runs alone, or evaluates.
TEST_CASE("A value without a cluster is a run alone, as to RunConfig") {
  const auto config = ParseTfConfig("{}");
  REQUIRE(config.ok());
  CHECK_FALSE(config->has_value());
}

TEST_CASE("An evaluator need not be in the cluster and is none of those that train") {
  const auto config =
      ParseTfConfig(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}})");
  REQUIRE(config.ok());
  const auto& [cluster, task] = config->value();
  CHECK(task == Task{"evaluator", 0});
  CHECK_FALSE(IsChief(cluster, task));
  CHECK_FALSE(WorkerIndex(cluster, task));
  CHECK(cluster.NumWorkers() == 2);
}

}  // namespace
}  // namespace official::distribute
