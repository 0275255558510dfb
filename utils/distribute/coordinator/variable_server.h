// VariableServer: the variables that are placed on one parameter server, and their updates. VariableClient
// (variable_client.h) sends it requests.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/program/program.h"
#include "utils/distribute/coordinator/functions.h"
#include "utils/distribute/custom_loop/split_step.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/distribute/shards.h"

namespace official::coordinator {

// The first byte of a request. What follows, and the answer:
enum class Request : char {
  kList = 'L',   // nothing; of each variable the name, the type, and the variable and the number that it is a shard of
  kWrite = 'W',  // the same with a tensor in place of the type: a variable that is not there is made; nothing
  kRead = 'R',   // names; the tensors
  kPrepare = 'P',  // a step and the types of its inputs: makes the slots that its updates need; nothing
  kUpdate = 'U',   // the same, and after it the elements of what the step hands over; nothing
};

class VariableServer : public distribute::ParameterServers::Answerer {
 public:
  // The arguments must outlive the server. `num_replicas` are the devices of a worker, which sum what updates take.
  VariableServer(const Functions& functions, compute::Device& device, int num_replicas = 1)
      : functions_(functions), device_(device), num_replicas_(num_replicas), variables_(device), arena_(device) {}

  // Returns the answer to a request. Several threads may call it; each update is made alone. DataLoss for bytes that
  // are no request, AlreadyExists for a variable that has the name of a shard of another, NotFound for a variable that
  // is not here or a step that is not registered; else errors of the step.
  absl::StatusOr<std::string> Answer(int worker, std::string request) override;
  void Leave(int /*worker*/) override {}

 private:
  struct Step {
    distribute::UpdateStep built;
    std::unique_ptr<compute::Program> update;
  };
  absl::StatusOr<std::string> List() const;
  absl::Status Write(absl::string_view request);
  absl::StatusOr<std::string> Read(absl::string_view request) const;
  // See distribute::PlacedHereFn.
  std::vector<compute::VariableSpec> PlacedHere(const std::string& variable) const;
  // Takes the name and the types of a step from the request, and returns the step, which is built the first time.
  absl::StatusOr<Step*> TakeStep(absl::string_view& request);

  const Functions& functions_;
  compute::Device& device_;
  const int num_replicas_;
  std::mutex mutex_;
  compute::VariableStore variables_;
  distribute::ShardNames shards_;
  compute::Arena arena_;
  std::map<std::string, Step> steps_;  // by the bytes of name and types
};

}  // namespace official::coordinator
