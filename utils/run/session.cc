#include "utils/run/session.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/data/every_nth.h"
#include "utils/distribute/shards.h"
#include "utils/export/export_model.h"
#include "utils/files/files.h"
#include "utils/logs/events.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/misc/model_helpers.h"
#include "utils/misc/restart.h"
#include "utils/run/batch_size.h"
#include "utils/run/estimator_config.h"
#include "utils/run/even_batches.h"
#include "utils/run/next_restart.h"
#include "utils/run/records.h"
#include "utils/run/session_log.h"
#include "utils/run/training_data.h"
#include "utils/train/checkpoint/checkpoint_dir.h"
#include "utils/train/run_state.h"

namespace official::run {
namespace {

// A directory that cannot be written is better found now than after all training.
absl::Status CheckExportDir(const std::string& export_dir) {
  const absl::Status status = files::CheckCanWriteIn(export_dir);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--export_dir=", export_dir, ": ", status.message()));
}

train::FollowOptions FollowOptionsOf(const Config& config) {
  return {.start_delay = std::chrono::seconds(config.cluster.eval_start_delay_secs),
          .throttle = std::chrono::seconds(config.cluster.eval_throttle_secs),
          .timeout = std::chrono::seconds(config.cluster.eval_timeout_secs),
          .interruption = AskSignals};
}

// An evaluator has the flags of the workers, but is alone on its machine.
Config ConfigOfEvaluator(Config config) {
  config.cluster.num_replicas.reset();
  config.performance.distribution_strategy = "default";
  return config;
}

absl::Status NothingTrained(const Config& config) {
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint in ", config.train.model_dir, "; train first, or name another --model_dir"));
}

// How a run ended, as PrintEnd says it, or "failed".
std::string Outcome(const absl::Status& status, bool passed_stop_threshold, bool stopped_early) {
  if (misc::StopSignalReceived() != 0) return "stopped";
  if (!status.ok()) return "failed";
  return passed_stop_threshold ? "stop_threshold" : stopped_early ? "early_stop" : "finished";
}

// Logs the flags that let the results of --eval_only differ from those of the training's evaluations.
void LogChangedEvaluation(const SessionOptions& options, const train::Estimator& estimator) {
  std::vector<std::string> names = {"data_dir", "use_synthetic_data", "overfit_batches", "dtype", "ema_decay"};
  if (!options.evaluates_all) names.push_back("max_train_steps");
  names.insert(names.end(), options.evaluation_flags.begin(), options.evaluation_flags.end());
  estimator.LogChangedFlags(names);
}

// The names of the results, but for global_step.
std::vector<std::string> NamesOf(const train::EvalResults& results) {
  std::vector<std::string> names;
  for (const auto& [name, value] : results) {
    if (name != "global_step") names.push_back(name);
  }
  return names;
}

}  // namespace

Session::Session(const Config& config, std::ostream& results)
    : config_(config), results_(results), records_(std::make_unique<Records>()) {}

void Session::SetBatchSize(const Config& chosen) {
  config_.base.batch_size = chosen.base.batch_size;
  config_.train.flags_text = chosen.train.flags_text;
  devices_.replica_batch = chosen.base.batch_size / devices_.num_replicas;
}

void Session::AddHook(std::unique_ptr<logs::Hook> hook) { records_->AddHook(std::move(hook)); }

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const Config& config, std::ostream& results) {
  RETURN_IF_ERROR(CheckBatchSize(config));
  std::unique_ptr<Session> session(new Session(config, results));
  ASSIGN_OR_RETURN(session->cluster_, FindCluster(config));
  const Cluster& cluster = session->cluster_;
  if (cluster.is_evaluator) {
    session->follower_.emplace(config.train.model_dir, FollowOptionsOf(config));
    ASSIGN_OR_RETURN(session->devices_, DevicesFor(ConfigOfEvaluator(config)));
    return session;
  }
  ASSIGN_OR_RETURN(session->devices_,
                   DevicesFor(config, cluster.num_workers, cluster.num_servers, cluster.is_server()));
  if (cluster.num_tasks() > 1) {
    ASSIGN_OR_RETURN(session->exchange_, Connect(config, cluster, session->devices_));
  }
  const absl::Status taken = session->is_chief() ? session->TakeDirectories() : absl::OkStatus();
  if (!taken.ok() && session->exchange_ != nullptr) session->exchange_->Fail(taken.message());
  RETURN_IF_ERROR(taken);
  if (session->exchange_ != nullptr) {
    session->loss_watch_.emplace(*session->exchange_, config.program,
                                 [&session = *session] { session.BeginAgainAtOnce(); });
  }
  return session;
}

absl::Status Session::TakeDirectories() {
  if (config_.base.export_dir) RETURN_IF_ERROR(CheckExportDir(*config_.base.export_dir));
  return Lock();
}

absl::Status Session::Lock() {
  const flags::BaseConfig& base = config_.base;
  // A mistyped directory is not made.
  if (base.eval_only && !files::Exists(config_.train.model_dir)) return NothingTrained(config_);
  RETURN_IF_ERROR(train::CheckModelDir(config_.train.model_dir));
  ASSIGN_OR_RETURN(lock_, train::RunLock::Acquire(config_.train.model_dir));
  // If the default was missing when the program began, somebody else may have made it meanwhile.
  if (!base.model_dir_given) RETURN_IF_ERROR(files::CheckOwner(config_.train.model_dir));
  if (!base.clean || cluster_.restart) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool cleaned, misc::ApplyClean(config_.train.model_dir, config_.input_paths));
  if (cleaned) {
    LOG(INFO) << "--clean flag set. Removed existing model dir: " << config_.train.model_dir;
  }
  return absl::OkStatus();
}

absl::Status Session::BeginToFollow() {
  LOG(INFO) << "waits for checkpoints in " << config_.train.model_dir;
  RETURN_IF_ERROR(follower_->WaitForFirst());
  // The chief's EvaluatorWatch has the lock for a moment now and then.
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kBetween(100);
  absl::StatusOr<std::unique_ptr<train::RunLock>> lock;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetween);
    lock = train::RunLock::Acquire(files::JoinPath(config_.train.model_dir, "eval"));
    if (!absl::IsAlreadyExists(lock.status())) break;
  }
  ASSIGN_OR_RETURN(lock_, std::move(lock));
  return absl::OkStatus();
}

absl::StatusOr<train::Estimator*> Session::Begin(train::Model model, Input input, SessionOptions options) {
  input_ = DataOf(config_, std::move(input), config_.base.batch_size);
  options_ = std::move(options);
  schedule_ = ScheduleOf(config_, options_);
  RETURN_IF_ERROR(CheckExports(config_, options_));
  if (!options_.metrics.empty()) RETURN_IF_ERROR(CheckMetricNames(config_.base, options_.name, options_.metrics));
  if (follower_) {
    signals_.emplace();
    RETURN_IF_ERROR(BeginToFollow());
  }
  loss_watch_.reset();
  if (exchange_ != nullptr) RETURN_IF_ERROR(CompareData());
  RETURN_IF_ERROR(MakeEstimator(std::move(model)));
  if (only_evaluates()) {
    if (estimator_->origin() == "fresh") return NothingTrained(config_);
    LogStart(config_, devices_, options_.name, input_.dataset, *estimator_, /*only_evaluates=*/true);
    if (!follower_) LogChangedEvaluation(options_, *estimator_);
    if (!signals_) signals_.emplace();
    running_ = true;
    return estimator_.get();
  }
  if (!cluster_.is_server()) {
    RETURN_IF_ERROR(estimator_->CheckBatchFits(BatchesOf(config_, input_)));
  }
  LogStart(config_, devices_, options_.name, input_.dataset, *estimator_, /*only_evaluates=*/false);
  if (const uint64_t seed = estimator_->state().seed; seed != config_.train.seed && config_.base.seed_given) {
    LOG(WARNING) << "--seed=" << config_.train.seed << " is not used: this run started with seed " << seed;
  }
  RETURN_IF_ERROR(ChoosePosition());
  first_step_ = estimator_->global_step();
  RETURN_IF_ERROR(OpenBestEvaluations());
  passed_stop_threshold_ = HasPassedStopThreshold(config_, estimator_->state());
  if (HasNextRound()) {
    RETURN_IF_ERROR(CheckEvenBatches(config_, input_, schedule_, *estimator_));
    RETURN_IF_ERROR(BeginTraining());
  } else {
    LogNothingToDo(config_, schedule_, why_stop_, *estimator_);
    if (is_chief()) PrintEndOf("nothing_to_do", {{"steps", 0}, {"examples_per_sec", nullptr}});
  }
  return estimator_.get();
}

absl::Status Session::MakeEstimator(train::Model model) {
  const auto use = follower_ ? train::ModelDir::Use::kEvaluate : train::ModelDir::Use::kWrite;
  train::EstimatorConfig estimator_config = EstimatorConfigOf(config_, input_, use, options_);
  // A run that begins again finds the checkpoints of its own beginning.
  if (cluster_.restart && estimator_config.resume == train::Resume::kNever) {
    estimator_config.resume = train::Resume::kAuto;
  }
  if (const auto& partitioner = config_.cluster.ps_partitioner; partitioner && cluster_.num_servers > 0) {
    ASSIGN_OR_RETURN(estimator_config.servers.partitioner,
                     distribute::ParsePartitioner(*partitioner, cluster_.num_servers));
  }
  if (config_.base.save_meta_graph && is_chief() && !only_evaluates()) {
    ASSIGN_OR_RETURN(const exporting::ServingGraph serving, options_.serving_graph(model));
    ASSIGN_OR_RETURN(checkpoint_graph_,
                     exporting::CheckpointGraphOf(serving, /*averages=*/config_.train.ema_decay.has_value()));
    estimator_config.meta_graph = checkpoint_graph_.meta_graph;
  }
  if (KeepsVariablesOnHost(devices_) && !only_evaluates()) {
    host_server_ = std::make_unique<HostServer>(
        model, estimator_config, input_.spec,
        HostServerOptions{.num_threads = config_.performance.intra_op_parallelism_threads,
                          .timeout = std::chrono::seconds(config_.performance.all_reduce_timeout_secs)});
  }
  ASSIGN_OR_RETURN(auto strategy,
                   MakeStrategy(config_, devices_, host_server_ ? &host_server_->exchange() : exchange_.get(),
                                [this] { BeginAgainAtOnce(); }));
  ASSIGN_OR_RETURN(estimator_, train::Estimator::Create(std::move(model), estimator_config, std::move(strategy)));
  return absl::OkStatus();
}

absl::Status Session::OpenBestEvaluations() {
  return DecidesByEvaluations(config_.base) ? DecideByEvaluations(nullptr) : absl::OkStatus();
}

absl::Status Session::DecideByEvaluations(const train::EvalResults* results) {
  const auto decide = [&]() -> absl::StatusOr<std::string> {
    if (!is_chief()) return "";
    if (!best_evaluations_) {  // here, so that with --early_stop the others are told of an error
      ASSIGN_OR_RETURN(best_evaluations_,
                       BestEvaluations::Open(config_.base, config_.train.model_dir, estimator_->state()));
    }
    if (results != nullptr) RETURN_IF_ERROR(best_evaluations_->Add(estimator_->global_step(), *results));
    return best_evaluations_->WhyStop().value_or("");
  };
  // Workers that train in step stop together; several that do not have no --early_stop. --keep_best changes nothing on
  // the others, which may lack the flag.
  if (cluster_.num_servers > 0 || !config_.base.early_stop) return decide().status();
  ASSIGN_OR_RETURN(why_stop_, host_server_ ? decide() : estimator_->strategy().FromChief(decide()));
  if (results != nullptr && !why_stop_.empty()) {
    LOG(INFO) << "--early_stop ends the training: " << why_stop_;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Session::FromChief(double own) const {
  if (host_server_) return own;
  ASSIGN_OR_RETURN(const std::string sent, estimator_->strategy().FromChief(absl::StrFormat("%.17g", own)));
  double value;
  if (absl::SimpleAtod(sent, &value)) return value;
  return absl::DataLossError(absl::StrCat("the chief has sent no metric of an evaluation: ", sent));
}

absl::Status Session::CompareData() {
  // The servers compare those of a worker that comes back.
  if (exchange_->incarnation() > 0) return absl::OkStatus();
  const bool all_evaluate = cluster_.num_servers == 0 && evaluates();
  const absl::Status same =
      CheckSame(*exchange_, "the data set", DescribeData(input_, all_evaluate), "give all workers the same data");
  others_know_end_ = absl::IsInvalidArgument(same);  // all are told of a difference
  return same;
}

absl::Status Session::ChoosePosition() {
  if (estimator_->strategy().is_back()) return absl::OkStatus();  // it has its own
  // What the checkpoint says of the data only the chief knows.
  if (is_chief()) ContinueInsideEpoch(input_, *estimator_);
  ASSIGN_OR_RETURN(const std::string sent, estimator_->strategy().FromChief(train::BytesOf(estimator_->state())));
  ASSIGN_OR_RETURN(const train::RunState of_chief, train::RunStateFrom(sent));
  const std::vector<data::Position>& of_workers = of_chief.worker_positions;
  estimator_->ContinueAt(of_chief.position, of_workers);
  if (is_chief() || cluster_.is_server() || of_workers.empty()) return absl::OkStatus();
  if (train::IsTrained(schedule_, estimator_->state())) return absl::OkStatus();  // the chief sends no variables
  estimator_->ContinueAt(of_workers[exchange_->worker()]);
  return absl::OkStatus();
}

absl::Status Session::BeginTraining() {
  if (is_chief()) {
    RETURN_IF_ERROR(records_->Open(config_, input_, estimator_->state().seed, estimator_->origin() != "fresh"));
  }
  if (!checkpoint_graph_.graph_text.empty()) {
    RETURN_IF_ERROR(files::WriteFileAtomically(files::JoinPath(config_.train.model_dir, "graph.pbtxt"),
                                               checkpoint_graph_.graph_text));
  }
  // Until here there was nothing to save, and a signal has ended the process.
  signals_.emplace();
  running_ = true;
  if (is_chief() && leaves_evaluations()) evaluator_watch_.emplace(files::JoinPath(config_.train.model_dir, "eval"));
  if (!is_chief()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int batches_per_step, BatchesPerStep(config_));
  const train::EpochSize epoch = EpochOf(config_, input_, batches_per_step);
  return records_->Begin(config_, options_, input_, devices_, schedule_, epoch, estimator_->state());
}

bool Session::evaluates() const {
  if (follower_) return true;
  // Where workers do not train in step, the chief evaluates.
  return !leaves_evaluations() && (cluster_.num_servers == 0 || is_chief());
}

bool Session::EvaluationIsDue() const {
  if (!evaluates()) return false;
  if (follower_) return !train::IsEvaluated(estimator_->state());
  return config_.base.eval_only || train::EvaluationIsDue(schedule_, estimator_->state());
}

bool Session::HasNextRound() const {
  if (config_.base.eval_only) return !reported_;
  if (follower_) return !train::IsTrained(schedule_, estimator_->state()) || EvaluationIsDue();
  if (cluster_.is_server()) return !served_;
  return !passed_stop_threshold_ && why_stop_.empty() &&
         (!train::IsTrained(schedule_, estimator_->state()) || EvaluationIsDue());
}

absl::Status Session::Train() {
  if (follower_) {
    return follower_->WaitForNext(*estimator_,
                                  [this](const train::RunState& state) { return train::IsTrained(schedule_, state); });
  }
  if (cluster_.is_server()) return Serve();
  if (EvaluationIsDue()) return absl::OkStatus();
  const data::Position before = estimator_->state().position;
  const train::TrainUntil until = train::NextEvaluation(schedule_, estimator_->state());
  const logs::RoundInfo round = {.first_epoch = before.epoch + 1, .num_epochs = until.end_epoch - before.epoch};
  for (const auto& hook : records_->hooks()) RETURN_IF_ERROR(hook->BeginRound(round));
  const auto train_input = [&](data::Position start) -> absl::StatusOr<data::BatchSourcePtr> {
    data::HeldRows rows = estimator_->held_rows(train::Mode::kTrain);
    if (cluster_.num_servers > 0 && cluster_.num_workers > 1) {
      rows.of_batches = cluster_.num_workers;
      rows.batch = exchange_->worker();
    }
    ASSIGN_OR_RETURN(
        data::BatchSourcePtr batches,
        input_.train({.seed = estimator_->state().seed, .start = start, .end_epoch = until.end_epoch, .rows = rows}));
    if (rows.of_batches > 1) batches = data::EveryNth(std::move(batches), rows.of_batches, rows.batch);
    const bool ahead = input_.made_by_computing_threads && !estimator_->strategy().device(0).uses_host_memory();
    return data::Prefetch(std::move(batches), ahead ? 2 : 0);
  };
  const absl::Status trained =
      estimator_->Train(train_input, until.max_steps, records_->hooks(), train::EndOf(schedule_, until));
  others_know_end_ = absl::IsCancelled(trained);  // all of them stop, or one has failed
  if (!trained.ok() && host_server_) return host_server_->End(trained);
  RETURN_IF_ERROR(trained);
  // Who had nothing left has only waited for other workers.
  const bool is_empty = before.epoch < until.end_epoch && estimator_->state().position == before;
  if (is_empty) RETURN_IF_ERROR(PassEmptyRound(until.end_epoch));
  for (const auto& hook : records_->hooks()) RETURN_IF_ERROR(hook->EndRound(round));
  return absl::OkStatus();
}

absl::Status Session::Serve() {
  served_ = true;
  const absl::Status served = estimator_->Serve(input_.spec);
  others_know_end_ = !served.ok();
  return served;
}

// A round without a single batch would come again for ever.
absl::Status Session::PassEmptyRound(int64_t end_epoch) {
  const data::Position position = estimator_->state().position;
  if (end_epoch == data::kEndless) {
    return absl::DataLossError(absl::StrCat("the training data have no batch from example ", position.index,
                                            " of epoch ", position.epoch + 1, " on, so step ",
                                            estimator_->global_step() + 1, " cannot be trained"));
  }
  LOG(WARNING) << "the training data have no batch after example " << position.index << " of epoch "
               << position.epoch + 1 << ": the rest up to epoch " << end_epoch << " counts as finished";
  estimator_->ContinueAt({end_epoch, 0});
  return absl::OkStatus();
}

absl::StatusOr<train::EvalResults> Session::Evaluate() {
  const int64_t epoch = train::LastEpoch(estimator_->state());
  for (const auto& hook : records_->hooks()) RETURN_IF_ERROR(hook->BeginEvaluation(epoch));
  const auto eval_input = [&](data::Position) { return input_.eval(estimator_->held_rows(train::Mode::kEval)); };
  absl::StatusOr<train::EvalResults> results = estimator_->Evaluate(eval_input, MaxEvalBatches(config_, options_));
  others_know_end_ = absl::IsCancelled(results.status());
  if (!results.ok() && host_server_) return host_server_->End(results.status());
  return results;
}

absl::Status Session::MeetRequests() {
  const absl::Status met = estimator_->MeetRequests();
  others_know_end_ = absl::IsCancelled(met);  // all of them stop, or one has failed
  return met;
}

absl::Status Session::Report(const train::EvalResults& results, absl::string_view metric) {
  const flags::BaseConfig& base = config_.base;
  OFFICIAL_CHECK(options_.metrics.empty() || options_.metrics == NamesOf(results));
  reported_ = true;
  const int64_t epoch = train::LastEpoch(estimator_->state());
  for (const auto& hook : records_->hooks()) RETURN_IF_ERROR(hook->EndEvaluation(epoch, results));
  RETURN_IF_ERROR(records_->LogEvaluation(results, estimator_->global_step()));
  if (is_chief() || follower_) PrintEvaluation(base.output == "json", results, results_);
  if (base.eval_only) return absl::OkStatus();
  if (DecidesByEvaluations(base)) {
    RETURN_IF_ERROR(CheckMetricNames(base, options_.name, NamesOf(results)));
    RETURN_IF_ERROR(DecideByEvaluations(&results));
  }
  std::optional<double> value;
  if (base.stop_threshold) {
    ASSIGN_OR_RETURN(value, FromChief(MetricOf(results, metric)));
  }
  RETURN_IF_ERROR(estimator_->KeepEvaluatedStep(value));
  passed_stop_threshold_ = HasPassedStopThreshold(config_, estimator_->state());
  if (passed_stop_threshold_) {
    LOG(INFO) << "Stop threshold of " << *base.stop_threshold << " was passed with metric value " << *value;
  }
  return absl::OkStatus();
}

absl::Status Session::TrainAndEvaluate(absl::string_view metric) {
  while (HasNextRound()) {
    RETURN_IF_ERROR(Train());
    if (!EvaluationIsDue()) continue;
    ASSIGN_OR_RETURN(const train::EvalResults results, Evaluate());
    RETURN_IF_ERROR(Report(results, metric));
  }
  return End();
}

void Session::PrintEndOf(absl::string_view outcome, const logs::Json::Object& throughput) const {
  PrintEnd(config_.base.output == "json", outcome, estimator_->global_step(), throughput, results_);
}

absl::Status Session::Finish(const absl::Status& status) {
  if (!std::exchange(running_, false)) return absl::OkStatus();
  const std::string outcome = Outcome(status, passed_stop_threshold_, !why_stop_.empty());
  evaluator_watch_.reset();
  const bool ended = status.ok() || (outcome == "stopped" && !only_evaluates());
  if ((is_chief() || follower_) && ended) {
    PrintEndOf(outcome, records_->progress() == nullptr ? logs::Json::Object() : records_->progress()->SummaryFields());
  }
  if (status.ok()) {
    const std::string what =
        cluster_.is_server()
            ? "served until the chief had ended"
            : absl::StrCat(only_evaluates() ? "evaluated step " : "trained to step ", estimator_->global_step());
    LogEnd(outcome, what, *estimator_, records_->progress());
  }
  const bool success = status.ok() && (passed_stop_threshold_ || !config_.base.stop_threshold);
  return records_->Finish(status, success, estimator_->global_step());
}

absl::Status Session::End() {
  const bool trained = running_ && !only_evaluates();
  const absl::Status recorded = Finish(absl::OkStatus());
  const bool stopped = misc::StopSignalReceived() != 0;
  signals_.reset();
  RETURN_IF_ERROR(recorded);
  absl::Status left = estimator_->WaitForOtherWorkers();
  if (left.ok()) left = estimator_->LeaveServers();
  RETURN_IF_ERROR(host_server_ ? host_server_->End(left) : left);
  others_know_end_ = ended_ = true;
  if (exchange_ != nullptr) exchange_->Finish();
  if (!trained || !stopped) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("stopped at step ", estimator_->global_step(), ", which is saved"));
}

Session::~Session() {
  loss_watch_.reset();
  Finish(absl::UnknownError("the run failed")).IgnoreError();
  // The others wait for a worker whose program ends on its own error, outside of training.
  if (!others_know_end_ && exchange_ != nullptr) exchange_->Fail("its own log says why");
  BeginAgainIfWanted();
  // That is decided. BeginAgainAtOnce may still be called, and must not ask an estimator that is being destroyed.
  ended_ = true;
}

void Session::BeginAgainIfWanted() {
  if (exchange_ == nullptr || config_.cluster.on_peer_loss != flags::OnPeerLoss::kRestart) return;
  if (misc::StopSignalReceived() != 0 || ended_) return;
  const bool has_trained = estimator_ != nullptr && estimator_->global_step() > first_step_;
  const std::optional<Restart> next = NextRestart(*exchange_, estimator_.get(), has_trained, cluster_.restart);
  if (!next) return;
  std::this_thread::sleep_for(std::chrono::seconds(std::clamp(next->in_vain - 2, 0, 10)));
  misc::RequestRestart(kRestartVariable, ValueOf(*next));
}

void Session::BeginAgainAtOnce() {
  BeginAgainIfWanted();
  misc::RestartIfRequested();
}

absl::Status Session::Export(const std::map<std::string, std::string>& extra_files) const {
  if (!config_.base.export_dir || !is_chief()) return absl::OkStatus();
  using flags::ExportFormat;
  const ExportFormat format = config_.base.export_format;
  const exporting::Destination to{.export_dir = *config_.base.export_dir,
                                  .saved_model = format != ExportFormat::kOnnx,
                                  .onnx = format != ExportFormat::kSavedModel};
  const absl::string_view what = !to.onnx ? "SavedModel" : !to.saved_model ? "ONNX model" : "SavedModel and ONNX model";
  // A signal now ends the export in order, so that nothing of it is left.
  std::optional<misc::StopSignals> signals;
  if (!signals_) signals.emplace();
  const logs::TaskProgress progress({.title = absl::StrCat("writing the ", what)});
  ASSIGN_OR_RETURN(const exporting::ServingGraph serving, options_.serving_graph(estimator_->model()));
  ASSIGN_OR_RETURN(const std::string path, exporting::ExportModel(*estimator_, serving, to, extra_files));
  logs::LogEvent("export", absl::StrCat(what, " written to: ", path), {{"path", path}});
  return absl::OkStatus();
}

bool ReadsTrainingData(const Config& config, const Session* session) {
  const bool only_evaluates =
      session != nullptr ? session->only_evaluates() : config.base.eval_only && config.rehearsal == Rehearsal::kDryRun;
  return !only_evaluates || config.base.overfit_batches || config.base.batch_size == 0;
}

absl::StatusOr<std::unique_ptr<train::Estimator>> OpenTrained(const Config& config, train::Model model,
                                                              std::vector<train::RunFact> facts) {
  RETURN_IF_ERROR(CheckAlone(config, "a prediction"));
  Config one = config;
  one.base.eval_only = true;  // nothing is updated
  if (config.performance.distribution_strategy == "tpu") one.cluster.num_replicas = 1;
  ASSIGN_OR_RETURN(Devices devices, DevicesFor(one));
  devices.num_replicas = 1;
  Input input;
  input.facts = std::move(facts);
  ASSIGN_OR_RETURN(auto strategy, MakeStrategy(one, devices));
  return train::Estimator::Create(std::move(model), EstimatorConfigOf(one, input, train::ModelDir::Use::kRead),
                                  std::move(strategy));
}

}  // namespace official::run
