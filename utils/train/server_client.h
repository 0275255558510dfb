// ServerClient: a worker of a job with parameter servers (parameter_server.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/train/config.h"
#include "utils/train/host_variables.h"
#include "utils/train/model.h"
#include "utils/train/replicas.h"
#include "utils/train/run_state.h"
#include "utils/train/step.h"
#include "utils/train/table_rows.h"

namespace official::train {

// For a worker that comes back: returns the state of the job, in which the data continue after the last batch of this
// worker whose update has been made. InvalidArgument if the job trains on other data than `data` says; else errors of
// ParameterServers::Ask.
absl::StatusOr<RunState> TakePartAgain(distribute::ParameterServers& servers, const std::string& data);

// The requests of a worker to the servers. Its own copies of the variables are those of its replicas.
class ServerClient {
 public:
  // Errors: those of BuildModel. What is given must outlive this.
  static absl::StatusOr<std::unique_ptr<ServerClient>> Create(const Model& model, const EstimatorConfig& config,
                                                              const data::ElementSpec& spec,
                                                              distribute::ParameterServers& servers,
                                                              Replicas& replicas);

  // Each function returns errors of ParameterServers::Ask, and all but the first the global step at that time.

  // Gives the servers the values of this worker's variables.
  absl::Status SendVariables(int64_t global_step);
  // Begins a step, which has read no rows of tables yet.
  void BeginStep();
  // Finds the rows that a micro-batch reads, of the tables that are read by rows, for ReadVariables and TakeGradients,
  // and sets the program's feeds. InvalidArgument if the batch reads a row that a table does not have.
  absl::Status FindRows(ReplicatedProgram& micro_batch);
  // Takes the values of the model's variables and of global_step; of tables that are read by rows those of the rows
  // that were found since the step began. Waits until the servers have values, for as long as the chief is there, and
  // synchronous ones those of the worker's step. Cancelled if a stop is wanted meanwhile.
  absl::StatusOr<int64_t> ReadVariables();
  // The same for all that is saved, with all rows.
  absl::StatusOr<int64_t> ReadAll();
  // Adds the gradients of rows that the micro-batch whose rows were found last has computed to those for Update.
  absl::Status TakeGradients(const ReplicatedProgram& micro_batch);
  // Lets the servers make an update from this worker's sums. Its data continue at `next` then. If they are synchronous,
  // waits for a token, for as long as the others are there or until a stop is wanted, and returns its value.
  absl::StatusOr<int64_t> Update(float learning_rate, const data::Position& next);
  // Tells synchronous servers that this worker gives no more gradients, until it reads variables again.
  absl::Status Rest();
  absl::StatusOr<int64_t> GlobalStep();

  // The number of gradients, of all workers, that the first server has dropped until the last request.
  int64_t num_dropped() const { return num_dropped_; }
  // The positions of several workers, as they were when all that is saved was read the last time.
  const std::vector<data::Position>& worker_positions() const { return worker_positions_; }

 private:
  ServerClient(distribute::ParameterServers& servers, Replicas& replicas, const EstimatorConfig& config)
      : servers_(servers),
        replicas_(replicas),
        host_(replicas),
        options_(config.servers),
        stop_(config.stop),
        rows_(replicas.strategy().num_local_replicas()) {}
  using VariableLists = std::vector<const std::vector<compute::VariableSpec>*>;
  using SpecsOf = std::function<VariableLists(const BuiltModel::Placed& placed)>;
  using RowsOf = std::function<void(const BuiltModel::Placed& placed, std::string& bytes)>;
  // Asks all servers, or the first or the others alone. After the request follow the values that this worker has of the
  // variables of a server that specs_of() says, and what rows_of() appends.
  enum class Which { kAll, kFirst, kOthers };
  absl::StatusOr<std::vector<std::string>> Ask(
      Which which, const std::string& request, const SpecsOf& specs_of = [](const auto&) { return VariableLists(); },
      const RowsOf& rows_of = [](const auto&, std::string&) {});
  // Asks for values until the servers have them, and takes the counts from their answers. Returns the global step.
  absl::StatusOr<int64_t> AskForValues(const std::string& request, const RowsOf& rows_of,
                                       std::vector<std::string>& answers);
  // Where a server's variable, or shard of one, is among this worker's: so many bytes from the beginning of one.
  struct Place {
    std::string variable;
    int64_t offset;
  };
  static Place PlaceOf(const BuiltModel::Placed& placed, const compute::VariableSpec& spec);
  // Returns it in the memory of the host, to write it. FinishReading brings it to the devices.
  absl::StatusOr<char*> Memory(const BuiltModel::Placed& placed, const compute::VariableSpec& spec);
  // Takes values of a server's variables, or the rows of a group's tables, from the beginning of an answer.
  absl::Status TakeValues(const BuiltModel::Placed& placed, const std::vector<compute::VariableSpec>& specs,
                          absl::string_view& answer);
  absl::Status TakeRows(const BuiltModel::Placed& placed, const BuiltModel::RowGroup& group, absl::string_view& answer);
  absl::Status FinishReading(int64_t global_step);
  // Sums the rows of the step over the replicas.
  void JoinRows();
  // Returns the rows of the step, after JoinRows; none if no rows were found.
  const std::vector<TableRows>& joined() const { return rows_.size() == 1 ? rows_[0].groups() : joined_; }
  // Returns the row numbers of this step for a group of a server's tables.
  std::vector<int32_t> IdsOf(const BuiltModel::RowGroup& group) const;
  // Takes the global step and the number of dropped gradients from the beginning of an answer of the first server.
  absl::StatusOr<int64_t> TakeCounts(absl::string_view& answer);
  absl::StatusOr<int64_t> WaitForToken();
  bool StopIsWanted() const { return stop_ != nullptr && *stop_ != 0; }

  distribute::ParameterServers& servers_;
  Replicas& replicas_;
  HostVariables host_;
  const ServerOptions options_;
  const std::atomic<int>* const stop_;      // may be null
  std::vector<BuiltModel::Placed> placed_;  // by server
  std::vector<StepRows> rows_;              // of the step, by replica
  std::vector<TableRows> joined_;           // of several replicas
  int64_t local_step_ = 0;                  // of the variables: that of the token, or at which they were read
  bool has_token_ = false;
  int64_t num_dropped_ = 0;
  std::vector<data::Position> worker_positions_;
};

}  // namespace official::train
