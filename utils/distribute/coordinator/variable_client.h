// VariableClient: the variables of all parameter servers, as the coordinator and the workers read and write them. It is
// for one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/graph/graph.h"
#include "utils/distribute/parameter_servers.h"

namespace official::coordinator {

class VariableClient {
 public:
  // A shard of a variable, or the whole of it (shards.h).
  struct Shard {
    std::string name;
    std::vector<int> servers;  // where it is: several of what an optimizer counts on each server for itself
    compute::TensorType type;
  };
  struct Placed {
    compute::TensorType type;   // of the whole
    std::vector<Shard> shards;  // in the order of their rows
  };

  // `servers` must outlive the client. Each function returns the errors of ParameterServers::Ask and VariableServer.
  explicit VariableClient(distribute::ParameterServers& servers) : servers_(servers) {}

  // Asks the servers for their variables.
  absl::Status UpdatePlacement();
  // Returns the variables by name, as of the last UpdatePlacement().
  const std::map<std::string, Placed>& placed() const { return placed_; }

  // Makes a variable of so many shards, each on the next server in turn: TensorFlow's round-robin placement.
  absl::Status Create(const std::string& name, const compute::Tensor& value, int64_t num_shards = 1);
  // Writes a variable; NotFound if there is none.
  absl::Status Write(const std::string& name, const compute::Tensor& value);
  // Returns the values of variables, a counter's from the first server that has it.
  absl::StatusOr<std::vector<compute::Tensor>> Read(absl::Span<const std::string> names);
  // Lets all servers make what the updates of a step need, such as the slots of an optimizer.
  absl::Status Prepare(const std::string& step, absl::Span<const compute::TensorType> inputs);
  // Lets the servers update what the step updates. `variables` are those that the values are for, empty for all; see
  // distribute::ReplicaStep::handed_over.
  absl::Status Update(const std::string& step, absl::Span<const compute::TensorType> inputs,
                      absl::Span<const std::string> variables, absl::Span<const compute::Tensor> values);

 private:
  // Asks each server; one whose request is empty has an empty answer.
  absl::StatusOr<std::vector<std::string>> Ask(const std::vector<std::string>& requests);
  // Returns where a variable is; NotFound if that is nowhere.
  absl::StatusOr<const Placed*> Find(const std::string& name) const;

  distribute::ParameterServers& servers_;
  std::map<std::string, Placed> placed_;
  int next_server_ = 0;
};

}  // namespace official::coordinator
