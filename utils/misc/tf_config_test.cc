#include "utils/misc/tf_config.h"

#include <catch2/catch.hpp>
#include <string>

namespace official::misc {
namespace {

TEST_CASE("A run of one process is not refused") {
  for (const char* config : {static_cast<const char*>(nullptr), "", " \n", "{}", R"({"cluster": {}})",
                             R"({"cluster": null, "task": {"type": "worker", "index": 0}})",
                             R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})",
                             R"({"cluster": {"chief": ["a:1"], "worker": [], "ps": []}})",
                             R"({"cluster": {"worker": {"0": "a:1"}}})", R"({"environment": "cloud"})"}) {
    CAPTURE(config == nullptr ? "unset" : config);
    CHECK(CheckTfConfig(config).ok());
  }
}

TEST_CASE("A cluster is refused with what was found and what to do") {
  const absl::Status status = CheckTfConfig(
      R"({"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}, "task": {"type": "worker", "index": 1}})");
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "the environment variable TF_CONFIG describes a cluster of 4 tasks (1 chief, 1 ps, 2 worker), of which this is "
        "worker 1, but runs of several machines are not supported. To train on this machine alone, unset it: env -u "
        "TF_CONFIG PROGRAM ...");
}

TEST_CASE("One parameter server, or workers without a task, are refused") {
  CHECK_THAT(std::string(CheckTfConfig(R"({"cluster": {"ps": ["d:1"]}})").message()),
             Catch::Matchers::Contains("a cluster of 1 task (1 ps), but"));
  CHECK_THAT(std::string(CheckTfConfig(R"({"cluster": {"worker": {"0": "a:1", "1": "b:1"}}})").message()),
             Catch::Matchers::Contains("a cluster of 2 tasks (2 worker), but"));
}

TEST_CASE("What is no configuration is refused, too") {
  for (const std::string config : {"worker", "[1]", "3", R"({"cluster": 3})", R"({"cluster": {"worker")"}) {
    CAPTURE(config);
    const absl::Status status = CheckTfConfig(config.c_str());
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::Matchers::Contains("is '" + config + "', which is not JSON"));
  }
  CHECK(CheckTfConfig("{\n").message().find('\n') == absl::string_view::npos);
  CHECK(CheckTfConfig(std::string(100'000, '[').c_str()).message().size() < 400);
}

}  // namespace
}  // namespace official::misc
