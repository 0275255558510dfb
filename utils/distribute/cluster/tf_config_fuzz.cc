// The input is a TF_CONFIG.
#include "absl/strings/match.h"
#include "utils/compute/core/check.h"
#include "utils/distribute/cluster/tf_config.h"
#include "utils/fuzzing/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = official::distribute::ParseTfConfig(official::fuzzing::AsBytes(data, size));
  if (!config.ok()) {
    OFFICIAL_CHECK(absl::IsInvalidArgument(config.status())) << config.status();
    OFFICIAL_CHECK(!absl::StrContains(config.status().message(), '\n')) << config.status();
    OFFICIAL_CHECK(config.status().message().size() < 2000) << config.status();
    return 0;
  }
  if (!config->has_value()) return 0;
  const auto& [cluster, task] = **config;
  OFFICIAL_CHECK(cluster.NumWorkers() > 0 && cluster.NumTasks() >= cluster.NumWorkers());
  OFFICIAL_CHECK(task.type == "evaluator" || task.index < cluster.NumTasks(task.type));
  return 0;
}
