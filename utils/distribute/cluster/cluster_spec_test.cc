#include "utils/distribute/cluster/cluster_spec.h"

#include <catch2/catch.hpp>

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;

const ClusterSpec kWithChief = {
    {{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}, {"ps", {"d:1"}}, {"evaluator", {"e:1"}}}};
const ClusterSpec kWorkersOnly = {{{"worker", {"a:1", "b:1", "c:1"}}}};

// The numbers are those of TensorFlow's multi_worker_util: is_chief, id_in_cluster, worker_count.
TEST_CASE("The chief, or else worker 0, decides and comes first") {
  CHECK(IsChief(kWithChief, {"chief", 0}));
  CHECK_FALSE(IsChief(kWithChief, {"worker", 0}));
  CHECK(WorkerIndex(kWithChief, {"chief", 0}) == 0);
  CHECK(WorkerIndex(kWithChief, {"worker", 1}) == 2);
  CHECK(kWithChief.NumWorkers() == 3);

  CHECK(IsChief(kWorkersOnly, {"worker", 0}));
  CHECK_FALSE(IsChief(kWorkersOnly, {"worker", 1}));
  CHECK(WorkerIndex(kWorkersOnly, {"worker", 2}) == 2);
  CHECK(kWorkersOnly.NumWorkers() == 3);
}

TEST_CASE("A master is a chief") {
  const ClusterSpec cluster = {{{"master", {"a:1"}}, {"worker", {"b:1"}}}};
  CHECK(IsChief(cluster, {"master", 0}));
  CHECK_FALSE(IsChief(cluster, {"worker", 0}));
  CHECK(WorkerIndex(cluster, {"worker", 0}) == 1);
  CHECK(cluster.NumWorkers() == 2);
}

TEST_CASE("Parameter servers and the evaluator do not train") {
  CHECK_FALSE(WorkerIndex(kWithChief, {"ps", 0}));
  CHECK_FALSE(WorkerIndex(kWithChief, {"evaluator", 0}));
  CHECK_FALSE(IsChief(kWithChief, {"ps", 0}));
  CHECK(kWithChief.NumTasks() == 5);
  CHECK(kWithChief.NumTasks("ps") == 1);
  CHECK(kWorkersOnly.NumTasks("ps") == 0);
}

TEST_CASE("The chief is the first of the workers") {
  const ClusterSpec cluster = {{{"worker", {"b:1", "c:1"}}, {"chief", {"a:1"}}, {"ps", {"d:1"}}}};
  CHECK(WorkerAddresses(cluster) == std::vector<std::string>{"a:1", "b:1", "c:1"});
  CHECK(WorkerAddresses(kWorkersOnly) == kWorkersOnly.jobs.at("worker"));
}

TEST_CASE("Messages count and list the tasks") {
  CHECK(CountJobs(kWithChief) == "1 chief, 1 evaluator, 1 ps, 2 worker");
  CHECK(ListTasks(kWorkersOnly, {"worker", 1}) ==
        "worker 0 at a:1 (chief), worker 1 at b:1 (this process), worker 2 at c:1");
  CHECK(ListTasks({{{"worker", {"a:1", ""}}}}, {"worker", 0}) == "worker 0 at a:1 (chief, this process), worker 1");
  CHECK(ListTasks({{{"worker", {"a:1"}}}}, {"evaluator", 0}) == "worker 0 at a:1 (chief), evaluator 0 (this process)");
}

TEST_CASE("Of many tasks the first are listed, and this process") {
  const ClusterSpec many = {{{"worker", std::vector<std::string>(1000)}}};
  CHECK_THAT(ListTasks(many, {"worker", 19}), Catch::Matchers::EndsWith("worker 19 (this process), ... 980 more"));
  CHECK_THAT(ListTasks(many, {"worker", 20}),
             Catch::Matchers::EndsWith("worker 19, ... 980 more, worker 20 (this process)"));
}

}  // namespace
}  // namespace official::distribute
