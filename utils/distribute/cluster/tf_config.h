// TF_CONFIG, the environment variable in which cluster managers describe a cluster to TensorFlow's programs:
//   {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "task": {"type": "worker", "index": 1}}
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/cluster/cluster_spec.h"

namespace official::distribute {

// Returns what a TF_CONFIG says; nothing if it names no cluster, as {} does, or is empty, which is how a shell unsets
// it for one command: this process is alone. The rules are those of TensorFlow's TFConfigClusterResolver,
// multi_worker_util and RunConfig: a job is a list of addresses or an object {"0": address, ...}; an index may be a
// string; an evaluator need not be in the cluster. InvalidArgument, in one line with the JSON path, what is there and
// what to write, for what these refuse, and for what they accept to hang or to train something else: a missing or wrong
// task, repeated or misspelt keys, addresses that are none or equal, jobs without tasks, a cluster in which nobody
// trains. The text may have 1 MiB, and objects and lists 16 levels.
absl::StatusOr<std::optional<ClusterTask>> ParseTfConfig(absl::string_view text);

// Returns the "model_dir" of a TF_CONFIG, "" if it has none. Errors: those of ParseTfConfig.
absl::StatusOr<std::string> ModelDirOfTfConfig(absl::string_view text);

// Returns the TF_CONFIG of a task.
std::string TfConfigOf(const ClusterTask& task);

// Returns the cluster of a text such as {"chief": ["a:2222"], "worker": ["b:2222"]}, by the same rules.
absl::StatusOr<ClusterSpec> ParseCluster(absl::string_view text);

}  // namespace official::distribute
