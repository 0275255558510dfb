// The record of benchmark_run.log: the run, its parameters and its machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "utils/logs/json.h"

namespace official::logs {

// A parameter of a run; nullopt, a flag that was not given, prints as "None".
using RunParameter = std::variant<std::nullopt_t, bool, int64_t, double, std::string>;

struct RunInfo {
  std::string model_name{};              // resnet, transformer, recommendation, mnist
  std::string dataset_name{};            // e.g. "CIFAR-10", "ImageNet-synthetic"
  std::optional<std::string> test_id{};  // --benchmark_test_id
  std::vector<std::pair<std::string, RunParameter>> run_parameters{};
  int64_t gpu_count = 0;
  std::string gpu_model{};  // model of the first GPU; unused without one
  std::string version{};    // version of this toolkit; the fields are called tensorflow_version
  std::string version_git_hash{};
};

// The files that describe the machine; others in tests.
struct SystemFiles {
  std::string cpuinfo = "/proc/cpuinfo";
  std::string meminfo = "/proc/meminfo";
  std::string product_name = "/sys/class/dmi/id/product_name";
};

// Returns the record, its fields in the official order. What the machine does not tell is left out, as upstream does
// without its helper libraries. test_environment is "GCP" on Google Compute Engine, told by the machine's product name;
// upstream asks the metadata server, which costs seconds where there is none.
Json CollectRunInfo(const RunInfo& info, absl::Time now, const SystemFiles& files = {});

// Returns a text such as "2018-07-31T12:34:56.789012Z".
std::string BenchmarkTimestamp(absl::Time time);

}  // namespace official::logs
