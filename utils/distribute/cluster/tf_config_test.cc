#include "utils/distribute/cluster/tf_config.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "utils/distribute/cluster/mutations.h"

namespace official::distribute {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

const char kValid[] = R"({"cluster": {"chief": ["a:1"], "worker": ["b:1", "[::1]:2"], "ps": {"0": "c:1", "1": "c:2"}},)"
                      R"( "task": {"type": "worker", "index": 1}, "environment": "cloud", "rpc_layer": "grpc"})";

// Returns the message, which is one line and not long.
std::string MessageFor(const std::string& config) {
  const absl::Status status = ParseTfConfig(config).status();
  CHECK(absl::IsInvalidArgument(status));
  const std::string message(status.message());
  CHECK_THAT(message, StartsWith("TF_CONFIG: "));
  CHECK(message.find('\n') == std::string::npos);
  CHECK(message.size() < 1000);
  return message;
}

std::string WithCluster(const std::string& cluster) {
  return absl::StrCat(R"({"cluster": )", cluster, R"(, "task": {"type": "worker", "index": 0}})");
}

std::string WithTask(const std::string& task) {
  return absl::StrCat(R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": )", task, "}");
}

std::string WithAddress(const std::string& address) {
  return WithCluster(absl::StrCat(R"({"worker": ["127.0.0.1:1", ")", address, R"("]})"));
}

TEST_CASE("A whole TF_CONFIG gives jobs, addresses in order, and the task") {
  const auto config = ParseTfConfig(kValid);
  REQUIRE(config.ok());
  const auto& [cluster, task] = config->value();
  CHECK(task == Task{"worker", 1});
  CHECK(cluster.jobs == std::map<std::string, std::vector<std::string>>{
                            {"chief", {"a:1"}}, {"worker", {"b:1", "[::1]:2"}}, {"ps", {"c:1", "c:2"}}});
}

TEST_CASE("An object of tasks is ordered by number") {
  const auto config = ParseTfConfig(WithCluster(
      R"({"worker": {"0": "w0:1", "1": "w1:1", "10": "w10:1", "2": "w2:1", "3": "w3:1", "4": "w4:1", "5": "w5:1",
          "6": "w6:1", "7": "w7:1", "8": "w8:1", "9": "w9:1"}})"));
  REQUIRE(config.ok());
  CHECK(config->value().cluster.jobs.at("worker")[2] == "w2:1");
  CHECK(config->value().cluster.jobs.at("worker")[10] == "w10:1");
}

TEST_CASE("Without a cluster the process is alone") {
  for (const char* config : {"", "{}", " {} \n", R"({"cluster": {}})", R"({"task": {}})",
                             R"({"cluster": null, "task": {"type": "worker", "index": 0}})",
                             R"({"cluster": {}, "task": {"type": "worker", "index": "0"}})",
                             R"({"environment": "cloud", "job": {"scale_tier": "BASIC"}, "trainer": 1})"}) {
    CAPTURE(config);
    const auto parsed = ParseTfConfig(config);
    REQUIRE(parsed.ok());
    CHECK_FALSE(parsed->has_value());
  }
}

TEST_CASE("Keys of cluster managers are left alone") {
  CHECK(ParseTfConfig(R"({"cluster": {"chief": ["a:1"]}, "job": "{}", "environment": "cloud", "service": {}, "xyz": 1,
                          "task": {"type": "chief", "index": 0, "trial": "1", "cloud": "c-1"}})")
            .ok());
}

TEST_CASE("What is no JSON object is refused") {
  CHECK_THAT(MessageFor(" \n"), Contains("it is empty; write {\"cluster\": "));
  CHECK_THAT(MessageFor("[1]"), Contains("it is [1]; write {"));
  CHECK_THAT(MessageFor("null"), Contains("it is null; write {"));
  CHECK_THAT(MessageFor("3"), Contains("it is 3; write {"));
  CHECK_THAT(MessageFor("worker"), Contains("it is not JSON: there is an error at byte 1, behind 'w'"));
  CHECK_THAT(MessageFor("{'cluster': {}}"), Contains("at byte 2, behind '{''; names and texts need double quotes"));
  CHECK_THAT(MessageFor("{\"cluster\":\n{\"worker\""), Contains("it is not JSON"));
  CHECK_THAT(MessageFor("{} {}"), Contains("it is not JSON: there is an error at byte 4"));
  CHECK_THAT(MessageFor("{\"cluster\": \"\xff\"}"), Contains("error at byte 14, behind '{\"cluster\": \""));
  CHECK_THAT(MessageFor(R"({"task": {"index": 1e999}})"), Contains("it is not JSON"));
}

TEST_CASE("Size and depth have limits") {
  CHECK_THAT(MessageFor(std::string(10'000'000, '[')), Contains("it has 10000000 bytes; at most 1048576 are read"));
  CHECK_THAT(MessageFor(std::string(10'000, '[')), Contains("it has more than 16 levels of objects and lists"));
  std::string objects;
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&objects, R"({"task":)");
  CHECK_THAT(MessageFor(objects), Contains("it has more than 16 levels"));
  CHECK_THAT(MessageFor("\"" + std::string(1'000'000, 'x') + "\""), Contains("it is \"xxx"));
  CHECK_THAT(MessageFor(WithTask("\"" + std::string(1'000'000, 'x') + "\"")), Contains("task is \"xxx"));
}

TEST_CASE("A key that is there twice is refused with its path") {
  CHECK_THAT(MessageFor(R"({"cluster": {}, "cluster": {}})"),
             Contains("the key cluster is there twice; write it once"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": "worker", "index": 0, "index": 1})")),
             Contains("the key task.index is there twice"));
  CHECK_THAT(MessageFor(R"({"x": [1, {"y": [{}, {"a b": 1, "a b": 2}]}]})"),
             Contains("the key x[1].y[1][\"a b\"] is there twice"));
}

TEST_CASE("Misspelt keys and jobs are refused with the nearest name") {
  CHECK_THAT(MessageFor(R"({"clutser": {}})"), Contains("the key clutser is unknown; did you mean \"cluster\"?"));
  CHECK_THAT(MessageFor(WithTask(R"({"typ": "worker", "index": 0})")),
             Contains("the key task.typ is unknown; did you mean \"type\"?"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": "Worker", "index": 0})")),
             Contains("task.type is \"Worker\"; did you mean \"worker\"?"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": "local", "index": 0})")),
             Contains("task.type is \"local\"; write one of chief, worker, ps, evaluator, master"));
  CHECK_THAT(MessageFor(WithCluster(R"({"workers": ["a:1"]})")),
             Contains("the job cluster.workers is unknown; did you mean \"worker\"?"));
  CHECK_THAT(MessageFor(WithCluster(R"({"x\ny": ["a:1"]})")),
             Contains("the job cluster[\"x\\ny\"] is unknown; write one of chief, worker, ps, evaluator, master"));
  CHECK_THAT(MessageFor(R"({"sparseCluster": {}})"), Contains("enableDynamicWorker: false"));
}

TEST_CASE("What RunConfig takes from TF_CONFIG beside the cluster") {
  CHECK(MessageFor(R"({"service": [1]})") ==
        "TF_CONFIG: If \"service\" is set in TF_CONFIG, it must be a dict. Given [1]; leave it out");
  CHECK(ParseTfConfig(R"({"service": null, "model_dir": null})").ok());
  for (const char* model_dir : {"3", "[]", "\"\""}) {
    CHECK(MessageFor(absl::StrCat(R"({"model_dir": )", model_dir, "}")) ==
          absl::StrCat("TF_CONFIG: model_dir is ", model_dir, "; write a directory, or leave it out"));
  }
  CHECK(ModelDirOfTfConfig(R"({"model_dir": "/tmp/run1"})").value() == "/tmp/run1");
  CHECK(ModelDirOfTfConfig(kValid).value().empty());
  CHECK(ModelDirOfTfConfig("").value().empty());
  CHECK(ModelDirOfTfConfig(" ").status() == ParseTfConfig(" ").status());
}

TEST_CASE("A missing or wrong task is refused") {
  CHECK_THAT(MessageFor(R"({"cluster": {"worker": ["a:1"]}})"), Contains("task is missing; write which one this is"));
  CHECK_THAT(MessageFor(WithTask("null")), Contains("task is null; write an object"));
  CHECK_THAT(MessageFor(WithTask(R"(["worker", 0])")), Contains("task is [\"worker\",0]; write an object"));
  CHECK_THAT(MessageFor(WithTask(R"({"index": 0})")), Contains("task.type is missing; write the job of this process"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": 1, "index": 0})")),
             Contains("task.type is 1; write one of chief, worker"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": "tpu_worker_x", "index": 0})")), Contains("write one of chief, worker"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": "ps", "index": 0})")),
             Contains("task.type is \"ps\", but cluster has 2 worker; write the task's job in both"));
  CHECK_THAT(MessageFor(R"({"task": {"type": "chief", "index": 0}})"),
             Contains("task.type is \"chief\", but cluster has no jobs"));
  CHECK_THAT(MessageFor(R"({"task": {"type": "evaluator", "index": 0}})"), Contains("but there is no cluster"));
}

TEST_CASE("An index is the number of a task of the job") {
  CHECK_THAT(MessageFor(WithTask(R"({"type": "worker"})")),
             Contains("task.index is missing; write a number from 0 to 1"));
  for (const std::string index : {"-1", "0.5", "\"x\"", "2", "9223372036854775808", "18446744073709551616", "null",
                                  "true", "[0]", "\"\"", "1.0", "\"-1\"", "\"0.5\"", "4294967296"}) {
    CAPTURE(index);
    const std::string message = MessageFor(WithTask(absl::StrCat(R"({"type": "worker", "index": )", index, "}")));
    CHECK_THAT(message, StartsWith("TF_CONFIG: task.index is "));
    CHECK_THAT(message, Contains("; write that of this worker, a number from 0 to 1"));
  }
  CHECK_THAT(MessageFor(R"({"task": {"type": "worker", "index": 1}})"),
             Contains("task.index is 1; write that of this worker, 0, the only one"));
  CHECK_THAT(MessageFor(WithTask(R"({"type": "evaluator", "index": 1})")), Contains("that of this evaluator, 0"));
}

TEST_CASE("Jobs that contradict each other are refused") {
  CHECK_THAT(MessageFor(WithCluster(R"({"chief": ["a:1", "b:1"]})")),
             Contains("cluster.chief has 2 tasks; write one, and the others under \"worker\""));
  CHECK_THAT(MessageFor(WithCluster(R"({"master": ["a:1", "b:1"]})")), Contains("cluster.master has 2 tasks"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": ["c:1"], "evaluator": ["a:1", "b:1"]})")),
             Contains("cluster.evaluator has 2 tasks; write one"));
  CHECK_THAT(MessageFor(WithCluster(R"({"chief": ["a:1"], "master": ["b:1"]})")),
             Contains("cluster has a \"chief\" and a \"master\""));
  CHECK_THAT(MessageFor(WithCluster(R"({"ps": ["a:1", "b:1"]})")), Contains("cluster has 2 ps, but nobody who trains"));
  CHECK_THAT(MessageFor(WithCluster(R"({"evaluator": ["a:1"]})")), Contains("cluster has 1 evaluator, but nobody"));
  CHECK_THAT(MessageFor(R"({"cluster": {"master": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})"),
             Contains("in a cluster with a \"master\" that one evaluates"));
}

TEST_CASE("A job is a list of addresses") {
  CHECK_THAT(MessageFor(WithCluster("[1]")), Contains("cluster is [1]; write an object"));
  CHECK_THAT(MessageFor(WithCluster("3")), Contains("cluster is 3; write an object"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": []})")), Contains("cluster.worker is []; write the addresses"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": {}})")), Contains("cluster.worker is {}; write the addresses"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": ["a:1"], "ps": []})")), Contains("cluster.ps is []"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": "a:1"})")), Contains("cluster.worker is \"a:1\"; write a list"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": null})")), Contains("cluster.worker is null; write a list"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": ["a:1", 5]})")),
             Contains("cluster.worker[1] is 5; write an address"));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": {"0": "a:1", "2": "b:1"}})")),
             Contains("cluster.worker has 2 tasks, but none with the key \"1\"; number them from \"0\""));
  CHECK_THAT(MessageFor(WithCluster(R"({"worker": {"0": "a:1", "01": "b:1"}})")), Contains("none with the key \"1\""));
}

// What an address can be is in address_test.
TEST_CASE("An address has a host and a port of its own") {
  for (const auto& [address, why] : std::vector<std::pair<std::string, std::string>>{
           {"127.0.0.1", "\"127.0.0.1\" has no port"},
           {"a:0", "has the port '0'"},
           {"a:70000", "has the port '70000'"},
           {"grpc://a:1", "begins with a scheme; write \"a:1\""},
           {"::1:1", "has several colons"},
           {"127.0.0.1:1", "\"127.0.0.1:1\" of cluster.worker[0] are the same address"},
           {"localhost:1", "\"localhost:1\" and \"127.0.0.1:1\" of cluster.worker[0] are the same address"}}) {
    CAPTURE(address);
    const std::string message = MessageFor(WithAddress(address));
    CHECK_THAT(message, StartsWith("TF_CONFIG: cluster.worker[1]: "));
    CHECK_THAT(message, Contains(why));
  }
  CHECK_THAT(MessageFor(WithCluster(R"({"chief": ["a:1"], "worker": ["A:1"]})")),
             Contains("cluster.worker[0]: \"A:1\" and \"a:1\" of cluster.chief[0] are the same address"));
}

TEST_CASE("Damaged values are refused in one line or give a task of the cluster") {
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = Mutate(kValid, random);
    CAPTURE(text);
    const auto config = ParseTfConfig(text);
    if (!config.ok()) {
      ++refused;
      MessageFor(text);
    } else if (config->has_value()) {
      const auto& [cluster, task] = **config;
      CHECK((task.type == "evaluator" || task.index < cluster.NumTasks(task.type)));
      CHECK(cluster.NumWorkers() > 0);
    }
  }
  CHECK(refused > 10'000);
  CHECK(refused < 20'000);
}

TEST_CASE("The TF_CONFIG of a task says what it was made from") {
  const ClusterTask made = {{{{"chief", {"a:1"}}, {"worker", {"b:1", "[::1]:2"}}, {"evaluator", {"c:1"}}}},
                            {"worker", 1}};
  const auto parsed = ParseTfConfig(TfConfigOf(made));
  REQUIRE(parsed.ok());
  CHECK(parsed->value().cluster.jobs == made.cluster.jobs);
  CHECK(parsed->value().task == made.task);
}

TEST_CASE("A cluster alone has the rules of TF_CONFIG's, and its messages do not name that") {
  CHECK(ParseCluster(R"({"chief": ["a:1"], "worker": {"0": "b:1"}})")->jobs ==
        std::map<std::string, std::vector<std::string>>{{"chief", {"a:1"}}, {"worker", {"b:1"}}});
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"ps": ["a:1"]})",
            "cluster has 1 ps, but nobody who trains; write the tasks that train under \"worker\""},
           {R"({"chief": ["a:1", "b:1"]})", "cluster.chief has 2 tasks; write one, and the others under \"worker\""},
           {R"({"workers": ["a:1"]})", "the job cluster.workers is unknown; did you mean \"worker\"?"},
           {R"({"worker": 5})", "cluster.worker is 5; write a list of addresses, [\"host:port\", ...]"},
           {R"({"worker": [5]})", "cluster.worker[0] is 5; write an address, \"host:port\""},
           {"5", "cluster is 5; write an object, {\"worker\": [\"host:port\", ...]}"}}) {
    CHECK(ParseCluster(text).status() == absl::InvalidArgumentError(message));
  }
  CHECK_FALSE(ParseCluster("").ok());
  CHECK_FALSE(ParseCluster("{").ok());
}

}  // namespace
}  // namespace official::distribute
