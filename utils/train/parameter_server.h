// Training with parameter servers, and what a server does. A worker (server_client.h) reads the variables before each
// step, computes the sums that an update takes, and sends each server those for the variables that are placed on it
// (step.h, ServerUpdate). Of tables such as embeddings it reads and sends the rows of its batch alone (row_reads.h).
// A variable may be divided among servers: each has some of its rows, a shard, and the worker has the whole.
// Where the optimizer moves the other rows, too, the server makes their updates before they are read (deferred_adam.h).
//
// Asynchronous: the server updates them at once, so that a worker's gradients may be of older values than those that
// they change; with a limit, gradients that are too old are dropped. Every update is made alone, under a lock.
//
// Synchronous: a server makes a step from the gradients of several workers (sync_replicas.h). A worker sends its own to
// the first server last. That one has global_step and the tokens: who has one of step N reads variables that all
// servers have brought to step N.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/program/program.h"
#include "utils/distribute/parameter_servers.h"
#include "utils/train/config.h"
#include "utils/train/model.h"
#include "utils/train/run_state.h"
#include "utils/train/step.h"
#include "utils/train/sync_replicas.h"
#include "utils/train/table_rows.h"

namespace official::train {

// The variables of one server and the program that updates them.
class ParameterServer : public distribute::ParameterServers::Answerer {
 public:
  // `spec` is that of the examples. The device must outlive this. Errors: those of BuildModel.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Create(const Model& model, const EstimatorConfig& config,
                                                                 const data::ElementSpec& spec, int num_servers,
                                                                 int server, int num_workers, compute::Device& device);

  // What a worker that comes back is told; before the first Answer. `state` is that with which the job begins, with the
  // positions of all workers where there are several, `data` a text that says what it trains on.
  void SetBeginning(RunState state, std::string data);

  // Answers a request of a ServerClient or of TakePartAgain, if need be after a wait of less than a second. Unavailable
  // until a client has sent the first values, and while other servers are ahead; OutOfRange if an update takes a number
  // that is not finite.
  absl::StatusOr<std::string> Answer(int worker, std::string request) override;
  void Leave(int worker) override;

  // The number of gradients that were dropped.
  int64_t num_dropped() const { return num_dropped_; }
  // The number of programs for different numbers of rows, which is limited: those that were used last are kept.
  size_t num_programs() const { return compiled_.size(); }

 private:
  // Builds the update from gradients of so many rows of each table.
  using BuildFn = std::function<absl::StatusOr<BuiltModel>(const RowCounts& rows)>;
  // An update, and what brings rows of tables up to date: those of a worker, and all. Null where nothing is deferred.
  struct Compiled {
    RowCounts rows;
    BuiltModel built;
    std::unique_ptr<compute::Program> update, catch_up, settle;
    int64_t last_used = 0;
  };
  using Programs = std::shared_ptr<Compiled>;

  ParameterServer(BuildFn build, const EstimatorConfig& config, int server, int num_workers, compute::Device& device);
  // Makes the variables that are placed here.
  absl::Status CreateVariables(const BuiltModel& model);
  absl::StatusOr<Programs> Compile(const RowCounts& rows);
  // Returns the programs for the rows of a request, which are made where there are none yet, without the lock, so that
  // other workers do not wait for them; null if it needs none. A synchronous server makes those for the rows of a step
  // when it has them, and all wait for it.
  absl::StatusOr<Programs> PrepareFor(char request, absl::string_view rest);
  // Returns the variables, slots and sums that are placed here, which do not depend on the number of rows.
  const BuiltModel::Placed& placed() const { return placed_; }
  absl::Status Write(const std::vector<compute::VariableSpec>& specs, absl::string_view bytes);
  void Read(const std::vector<compute::VariableSpec>& specs, std::string& answer) const;
  absl::StatusOr<int64_t> GlobalStep() const;  // 0 where that is not placed
  absl::StatusOr<std::string> Welcome(int worker, absl::string_view data) const;
  // What follows is called with the lock, which waits let go.

  // Keeps the programs until too many others have been used.
  void Keep(const Programs& programs);
  // Returns the programs for these rows, which a synchronous server makes where there are none yet.
  absl::StatusOr<Programs> CompiledFor(const RowCounts& rows);
  absl::Status SendVariables(absl::string_view values);
  // Appends the rows whose numbers a worker asks for.
  absl::Status ReadRows(absl::string_view request, std::string& answer);
  // Brings all rows up to date.
  absl::Status Settle();
  // Returns false if the gradients are dropped.
  absl::StatusOr<bool> Apply(int worker, std::string request);
  absl::Status Update(absl::string_view learning_rate_and_sums, const std::vector<TableRows>& rows);
  // Makes the synchronous step if its gradients are there. Its error is that of all later requests, too.
  absl::Status MakeStep();
  absl::Status UpdateByMean(const std::vector<std::string>& gradients);
  void StopWaitingFor(int worker);
  absl::Status WaitForStep(int64_t step, std::unique_lock<std::mutex>& lock);
  void WaitForToken(int worker, std::unique_lock<std::mutex>& lock, std::string& answer);

  const BuildFn build_;
  const ServerOptions options_;
  const int server_, num_workers_;
  const uint64_t seed_;
  compute::Device& device_;
  compute::VariableStore variables_;
  BuiltModel::Placed placed_;
  bool has_variables_ = false;
  std::mutex making_;  // of programs without the lock; locked before it
  std::mutex mutex_;
  compute::Arena arena_;
  std::map<RowCounts, Programs> compiled_;
  int64_t num_used_ = 0;  // of programs, so far
  std::condition_variable changed_;
  bool has_values_ = false;
  RunState state_;  // of the beginning
  // Where the data of a worker continue: after the batches of which the updates are made, and after that of which the
  // gradient waits for a step.
  struct Position {
    data::Position done;
    std::optional<data::Position> pending;
  };
  std::vector<Position> positions_;  // by worker; empty if there is one
  std::string data_;
  std::optional<SyncReplicas> sync_;  // from the first values on
  std::vector<bool> has_left_;        // by worker
  int64_t num_dropped_ = 0;
  absl::Status error_;  // of a synchronous step
};

}  // namespace official::train
