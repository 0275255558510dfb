// Asynchronous training with parameter servers: a worker reads the variables before each step, computes the sums that
// an update takes, and sends each server those for the variables that are placed on it (step.h, ServerUpdate). The
// server updates them at once, so that a worker's gradients may be of older values than those that they change. Every
// update is made alone, under a lock.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/program/program.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/train/config.h"
#include "utils/train/model.h"
#include "utils/train/replicas.h"
#include "utils/train/run_state.h"
#include "utils/train/step.h"

namespace official::train {

// The variables of one server and the program that updates them.
class ParameterServer {
 public:
  // `spec` is that of the examples. The device must outlive this. Errors: those of BuildModel.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Create(const Model& model, const EstimatorConfig& config,
                                                                 const data::ElementSpec& spec, int num_servers,
                                                                 int server, compute::Device& device);

  // What a worker that comes back is told; before the first Answer. `state` is that with which the job begins, with the
  // positions of all workers where there are several, `data` a text that says what it trains on.
  void SetBeginning(RunState state, std::string data);

  // Answers a request of a ServerClient or of TakePartAgain. Several threads may call it. Unavailable until a client
  // has sent the first values, OutOfRange if an update takes a number that is not finite.
  absl::StatusOr<std::string> Answer(absl::string_view request);

 private:
  ParameterServer(BuiltModel built, compute::Device& device);
  absl::Status Write(const std::vector<compute::VariableSpec>& specs, absl::string_view bytes);
  absl::Status Read(const std::vector<compute::VariableSpec>& specs, std::string& answer) const;

  absl::StatusOr<std::string> Welcome(absl::string_view request) const;

  const BuiltModel built_;
  compute::VariableStore variables_;
  compute::Arena arena_;
  std::unique_ptr<compute::Program> update_;
  std::mutex mutex_;
  bool has_values_ = false;
  RunState state_;  // of the beginning, but for the positions of the workers
  std::string data_;
};

// For a worker that comes back: returns the state of the job, in which the data continue after the last batch of this
// worker whose update has been made. InvalidArgument if the job trains on other data than `data` says; else errors of
// ParameterServers::Ask.
absl::StatusOr<RunState> TakePartAgain(distribute::ParameterServers& servers, const std::string& data);

// The requests of a worker to the servers. Its own copies of the variables are those of its replica.
class ServerClient {
 public:
  // Errors: those of BuildModel. What is given must outlive this.
  static absl::StatusOr<std::unique_ptr<ServerClient>> Create(const Model& model, const EstimatorConfig& config,
                                                              const data::ElementSpec& spec,
                                                              distribute::ParameterServers& servers,
                                                              Replicas& replicas);

  // Each function returns the global step at that time, or errors of ParameterServers::Ask.

  // Gives the servers the values of this worker's variables.
  absl::StatusOr<int64_t> SendVariables();
  // Takes the values of the model's variables and of global_step; with `slots`, of all that is saved. Waits until the
  // servers have values, for as long as the chief is there. Cancelled if a stop is wanted meanwhile.
  absl::StatusOr<int64_t> ReadVariables(bool slots);
  // Lets the servers make an update from this worker's sums. Its data continue at `next` then.
  absl::StatusOr<int64_t> Update(float learning_rate, const data::Position& next);
  absl::StatusOr<int64_t> GlobalStep();

  // The positions of several workers, as they were when all that is saved was read the last time.
  const std::vector<data::Position>& worker_positions() const { return worker_positions_; }

 private:
  ServerClient(distribute::ParameterServers& servers, Replicas& replicas, std::function<Interruption()> interruption)
      : servers_(servers), replicas_(replicas), interruption_(std::move(interruption)) {}
  absl::Status Append(const std::vector<compute::VariableSpec>& specs, std::string& request) const;

  distribute::ParameterServers& servers_;
  Replicas& replicas_;
  const std::function<Interruption()> interruption_;
  std::vector<BuiltModel::Placed> placed_;  // by server
  std::vector<data::Position> worker_positions_;
};

}  // namespace official::train
