// Session: one run of a training program. It holds what surrounds the loop over training and evaluation: devices, the
// lock of --model_dir, signals, hooks, logs and records. A model whose evaluations need more than the loss and the
// metrics writes the loop itself; official/examples/estimator is the shortest program.
//
//   ASSIGN_OR_RETURN(const auto session, run::Session::Open(config, out));
//   ... load the data ...
//   ASSIGN_OR_RETURN(train::Estimator* const estimator, session->Begin(model, input, {.name = "mnist"}));
//   RETURN_IF_ERROR(session->TrainAndEvaluate("accuracy"));
//   return session->Export();
//
// With --eval_only there is one round, which trains nothing. A session that goes without End counts as failed.
//
// A process that was started as one of several workers has a session of its own, and all of them do the same. The first
// one, the chief, has --model_dir, hooks, records, results and the export to itself.
//
// An evaluator has one, too, whose rounds wait for checkpoints in --model_dir instead of training; it has the results
// to itself, and writes only eval/. The workers beside it have no evaluations.
//
// In a job with parameter servers the only round of a server makes the updates of the workers. Each of W workers trains
// on every W-th batch of the data, from another one on: together they train on every example once an epoch, as one
// process does, each at its own pace. They end when their own part is done, or with the global step of all of them. A
// worker that is lost may be started again: it continues after its last batch of which the servers have made the
// update. What it has not done when the chief has done its own part, and nobody else trains, is left out. A checkpoint
// continues, with as many workers, where each of them was; with another number, after the batches that the chief has
// done and as many of each other worker.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/distribute/exchange.h"
#include "utils/export/meta_graph.h"
#include "utils/export/serving_graph.h"
#include "utils/logs/hook.h"
#include "utils/logs/json.h"
#include "utils/logs/run_info.h"
#include "utils/misc/stop_signals.h"
#include "utils/run/best_evaluations.h"
#include "utils/run/cluster.h"
#include "utils/run/config.h"
#include "utils/run/devices.h"
#include "utils/run/evaluator_watch.h"
#include "utils/run/host_server.h"
#include "utils/run/input.h"
#include "utils/run/loss_watch.h"
#include "utils/run/report.h"
#include "utils/train/checkpoint_follower.h"
#include "utils/train/estimator.h"
#include "utils/train/model.h"
#include "utils/train/rounds.h"
#include "utils/train/run_lock.h"

namespace official::run {

// The particulars of a model's run.
struct SessionOptions {
  std::string name;  // name of the model in the run record: "mnist"
  std::vector<std::string> tensors_to_log = {"cross_entropy", "learning_rate", "train_accuracy"};
  // Train so many steps in all and evaluate after every so many, whatever the epochs.
  std::optional<train::Schedule::Steps> steps = std::nullopt;
  // Further parameters in the run record.
  std::vector<std::pair<std::string, logs::RunParameter>> run_parameters = {};
  // Upstream's name of the data set for the run record; empty: that of the input.
  std::string official_dataset = "";
  bool records_replica_batch = false;  // true: the batch_size of the run record is that of one device
  // A checkpoint or directory that a new run takes the model's variables from, where they fit (--fine_tune).
  std::optional<std::string> fine_tune = std::nullopt;
  bool evaluates_all = false;  // true: --max_train_steps does not limit evaluations
  // The names of the results of an evaluation, sorted, but for global_step; empty: they are known after the first.
  std::vector<std::string> metrics = {};
  // The program's own flags that decide the results of an evaluation: --eval_only logs those of them that differ from
  // the training's.
  std::vector<std::string> evaluation_flags = {};
  std::string mismatch_hint = "";  // ends the error for a --model_dir with a checkpoint of another model
  // Builds the model's predictions, for --export_dir and --save_meta_graph; null: Begin refuses both.
  std::function<absl::StatusOr<exporting::ServingGraph>(const train::Model&)> serving_graph = nullptr;
};

class Session {
 public:
  // Finds the devices, waits for the other workers if there are any, and locks --model_dir, emptying it with --clean;
  // results will go to `results`, which must outlive the session, all else to the log. NotFound for --eval_only without
  // a directory; other errors say what to do.
  static absl::StatusOr<std::unique_ptr<Session>> Open(const Config& config, std::ostream& results);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool is_chief() const { return !follower_ && (exchange_ == nullptr || exchange_->worker() == 0); }
  // --model_dir; empty for others than the chief, which write nothing there.
  std::string model_dir() const { return is_chief() ? config_.train.model_dir : ""; }
  // --model_dir for who records evaluations there, the chief or an evaluator; empty for others.
  std::string evaluation_dir() const { return is_chief() || follower_ ? config_.train.model_dir : ""; }
  // True for a process that trains nothing.
  bool only_evaluates() const { return config_.base.eval_only || follower_; }
  // True for a process that computes evaluations, its own or its part of those of all workers.
  bool evaluates() const;

  // Takes the batch size of `chosen`, in place of that of Open, which was left to be chosen; before Begin.
  void SetBatchSize(const Config& chosen);

  // Adds a hook to those of the flags, of the chief; before Begin.
  void AddHook(std::unique_ptr<logs::Hook> hook);

  // Puts the model on the devices and restores it from --model_dir. From here on signals are requests to stop. Returns
  // the estimator, which the session owns. NotFound for --eval_only without a checkpoint.
  absl::StatusOr<train::Estimator*> Begin(train::Model model, Input input, SessionOptions options);

  // True until all is trained and evaluated, the stop threshold is passed or --early_stop ends the training.
  bool HasNextRound() const;
  // Trains to the next evaluation; nothing if one is due already. Cancelled, with everything saved, if a signal stopped
  // the run. An evaluator waits for the next checkpoint; see train::CheckpointFollower.
  absl::Status Train();
  // False if the round had no training data left, so that there is nothing new to evaluate.
  bool EvaluationIsDue() const;
  absl::StatusOr<train::EvalResults> Evaluate();
  // Estimator::MeetRequests, for what a program computes besides Evaluate. After Cancelled the run is to end.
  absl::Status MeetRequests();
  // Returns the number, from 1, of the evaluation in the whole training.
  int64_t EvaluationNumber() const { return train::EvaluationNumber(schedule_, estimator_->state()); }
  // Prints and records the results of an evaluation, which is finished then, compares `metric` of them, the
  // chief's, with --stop_threshold, and does what --keep_best and --early_stop say.
  absl::Status Report(const train::EvalResults& results, absl::string_view metric);

  // Trains and evaluates, in rounds, until HasNextRound() is false, and ends the run: tf.estimator.train_and_evaluate,
  // by the task that this process is. `metric` is that of Report. Errors: those of the functions that it calls.
  absl::Status TrainAndEvaluate(absl::string_view metric);

  // Ends the run and records its throughput. Cancelled if a signal came after the last step.
  absl::Status End();

  // Writes SessionOptions::serving_graph with the values of the variables to --export_dir, if there is one, and
  // `extra_files`, contents by name, to assets.extra/ there; on the chief only. Cancelled, with nothing left there, if
  // a signal came before the end.
  absl::Status Export(const std::map<std::string, std::string>& extra_files = {}) const;

 private:
  Session(const Config& config, std::ostream& results);
  // Checks and takes the directories that are written.
  absl::Status TakeDirectories();
  absl::Status Lock();
  // Waits for a checkpoint and takes the directory of evaluations.
  absl::Status BeginToFollow();
  // True for a worker beside an evaluator.
  bool leaves_evaluations() const { return cluster_.has_evaluator && !only_evaluates(); }
  // Makes estimator_, with its strategy and, where they are wanted, host_server_ and checkpoint_graph_.
  absl::Status MakeEstimator(train::Model model);
  // Checks that all workers have the same data.
  absl::Status CompareData();
  // Sets the position in the data at which the training continues, the same on all workers.
  absl::Status ChoosePosition();
  absl::Status BeginTraining();
  absl::Status PassEmptyRound(int64_t end_epoch);
  // With --keep_best or --early_stop: reads what is known of earlier evaluations, on the chief.
  absl::Status OpenBestEvaluations();
  // Gives them the results of another one, none when they are opened, on the chief, and learns whether to stop.
  absl::Status DecideByEvaluations(const train::EvalResults* results);
  // Returns the chief's value of a metric, by which all workers decide alike.
  absl::StatusOr<double> FromChief(double own) const;
  absl::Status Serve();
  // Prints PrintEnd's line of results.
  void PrintEndOf(absl::string_view outcome, const logs::Json::Object& throughput) const;
  // Tells all how the run ended, once.
  absl::Status Finish(const absl::Status& status);
  // Asks for this process to begin again, if workers are missing now, or others wait to take part.
  void BeginAgainIfWanted();
  // The same where this process ends at once (EndProcess), on any thread, while that of this session waits: it begins
  // again then, or the function returns.
  void BeginAgainAtOnce();

  Config config_;
  std::ostream& results_;
  SessionOptions options_;
  train::Schedule schedule_;
  Devices devices_;
  Cluster cluster_;
  std::unique_ptr<distribute::Exchange> exchange_;     // with the other workers; null: there are none
  std::unique_ptr<HostServer> host_server_;            // of central_storage on several GPUs
  std::optional<LossWatch> loss_watch_;                // until the data are there
  std::optional<train::CheckpointFollower> follower_;  // of an evaluator
  std::optional<EvaluatorWatch> evaluator_watch_;      // of the chief beside an evaluator, while it trains
  bool served_ = false;                                // as a parameter server
  std::unique_ptr<train::RunLock> lock_;
  Input input_;
  std::unique_ptr<train::Estimator> estimator_;
  exporting::CheckpointGraph checkpoint_graph_;   // with --save_meta_graph, of the chief
  const std::unique_ptr<class Records> records_;  // of the chief; other workers' stay empty
  std::optional<misc::StopSignals> signals_;
  bool running_ = false;  // from the beginning of the training or the evaluation to its end
  bool reported_ = false;
  bool ended_ = false;            // in order, or the session is being destroyed
  int64_t first_step_ = 0;        // of this process
  bool others_know_end_ = false;  // true: other workers wait for nothing any more, or know why
  bool passed_stop_threshold_ = false;
  std::optional<BestEvaluations> best_evaluations_;  // of the chief, with the flags for them
  std::string why_stop_;                             // of --early_stop; empty: the training goes on
};

// Returns false if a run reads nothing of the training data, which then need not be there: --eval_only, and an
// evaluator, unless --overfit_batches evaluates on them, --batch_size=auto tries sizes on them or --print_schedule
// counts their steps. `session` is null for a rehearsal.
bool ReadsTrainingData(const Config& config, const Session* session);

// Returns what was trained in --model_dir, on one device, to predict with; nothing is written. `facts` are compared
// with those of its training.
absl::StatusOr<std::unique_ptr<train::Estimator>> OpenTrained(const Config& config, train::Model model,
                                                              std::vector<train::RunFact> facts = {});

}  // namespace official::run
