#include "utils/train/checkpointed_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/train/evaluations/evaluation_history.h"
#include "utils/train/short_list.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

bool IsSaved(absl::string_view name) { return !absl::StartsWith(name, kLocalPrefix); }

// Returns how a command gets the data of this name, which programs give to their own; empty: no flag makes it do so.
std::string FlagOf(absl::string_view dataset) {
  if (absl::EndsWith(dataset, "-synthetic")) return "--use_synthetic_data";
  if (dataset == "ratings") return "--ratings_file";
  if (absl::StartsWith(dataset, "generated ") || absl::StartsWith(dataset, "drawn ")) return "";
  return "--data_dir";
}

// The first fact of every run: it has the name that it had before there were others.
RunFact DatasetFact(const EstimatorConfig& config) {
  return {
      .name = "dataset",
      .value = config.dataset,
      .difference =
          [model_dir = config.model_dir, dataset = config.dataset, trains = config.trains](absl::string_view before) {
            const std::string flag = FlagOf(before);
            const std::string data = flag.empty() ? "" : absl::StrCat("the data of that run (", flag, ")");
            return absl::StrCat(
                "--model_dir=", model_dir, " holds a run on ", before, " and this run is on ", dataset, "; give ", data,
                trains ? absl::StrCat(data.empty() ? "" : ", ", "another --model_dir, or --clean to start again there")
                       : absl::StrCat(data.empty() ? "" : " or ", "another --model_dir"));
          },
      .must_match = true};
}

}  // namespace

CheckpointedModel::CheckpointedModel(Model model, EstimatorConfig config,
                                     std::unique_ptr<distribute::Strategy> strategy)
    : model_(std::move(model)),
      config_(std::move(config)),
      strategy_(std::move(strategy)),
      replicas_(model_, config_.dtype, config_.loss_scale, config_.grad_accum_steps, *strategy_,
                config_.winograd ? &algorithm_choices_ : nullptr),
      averages_(config_, replicas_),
      agreement_(*strategy_, config_.interruption) {
  config_.facts.insert(config_.facts.begin(), DatasetFact(config_));
  state_.seed = config_.seed;
}

absl::StatusOr<std::unique_ptr<CheckpointedModel>> CheckpointedModel::Open(
    Model model, EstimatorConfig config, std::unique_ptr<distribute::Strategy> strategy) {
  model.update = {.clip_norm = config.clip_norm, .clip_value = config.clip_value, .ema_decay = config.ema_decay};
  if (config.eval_samples == 0) model.eval_samples = nullptr;
  std::unique_ptr<CheckpointedModel> opened(
      new CheckpointedModel(std::move(model), std::move(config), std::move(strategy)));
  RETURN_IF_ERROR(opened->ShareState());
  return opened;
}

absl::Status CheckpointedModel::ShareState() {
  const auto open = [this]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(dir_, ModelDir::Open(config_, config_.use, /*saves=*/config_.trains, config_.meta_graph));
    RETURN_IF_ERROR(Restore());
    if (config_.winograd) dir_->ReadAlgorithms(algorithm_choices_);
    shares_variables_ = restored_ != nullptr || warm_start_ != nullptr;
    return absl::StrCat(shares_variables_ ? "1" : "0", saved_step_ ? "1" : "0", BytesOf(state_), "\n", origin_);
  };
  if (strategy_->is_chief()) return strategy_->FromChief(open()).status();
  ASSIGN_OR_RETURN(dir_, ModelDir::Open(config_, ModelDir::Use::kNone, /*saves=*/false));
  if (strategy_->is_back()) {
    ASSIGN_OR_RETURN(state_, TakePartAgain(*strategy_->servers(), config_.training_data));
    state_.worker_positions.clear();  // the chief alone waits for the others
    origin_ = absl::StrCat("joins the job at step ", state_.global_step);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string sent, strategy_->FromChief(""));
  const size_t line_end = sent.find('\n');
  if (sent.size() < 2 || line_end == sent.npos) return absl::DataLossError("the chief has sent no state");
  ASSIGN_OR_RETURN(state_, RunStateFrom(absl::string_view(sent).substr(2, line_end - 2)));
  origin_ = sent.substr(line_end + 1);
  shares_variables_ = sent[0] == '1';
  if (sent[1] == '1') saved_step_ = restored_step_ = state_.global_step;
  saved_position_ = state_.position;
  return absl::OkStatus();
}

absl::Status CheckpointedModel::Restore() {
  ASSIGN_OR_RETURN(LatestCheckpoint latest, dir_->FindCheckpoint());
  restored_ = std::move(latest.reader);
  if (restored_ == nullptr) {
    if (config_.resume == Resume::kMust) {
      return absl::NotFoundError(absl::StrCat("--resume=must: there is no checkpoint in ", config_.model_dir));
    }
    if (config_.warm_start) {
      ASSIGN_OR_RETURN(warm_start_, WarmStart::Open(*config_.warm_start));
    }
    // What is known of evaluations is of an earlier run, and this one comes to the same steps.
    if (!trains_in_dir()) return absl::OkStatus();
    RETURN_IF_ERROR(dir_->ForgetEvaluatedStep());
    return EvaluationHistory::Remove(config_.model_dir);
  }
  if (config_.resume == Resume::kNever) {
    return absl::FailedPreconditionError(absl::StrCat("--resume=never, but there is the checkpoint ", latest.prefix,
                                                      "; give --clean, another --model_dir, or --resume=auto"));
  }
  RETURN_IF_ERROR(CompareFacts(*restored_, config_.facts));
  ASSIGN_OR_RETURN(state_, ReadRunState(*restored_, config_.seed));
  // With another number of workers all continue where the chief does. Who only reads the directory, as an evaluator
  // does, sees by the positions whether all workers have done their parts.
  const size_t num_workers = strategy_->servers() == nullptr ? 1 : strategy_->servers()->num_workers();
  if (dir_->writes() && state_.worker_positions.size() != num_workers) state_.worker_positions.clear();
  saved_position_ = state_.position;
  saved_positions_ = state_.worker_positions;
  // The servers give each of several workers one.
  if (saved_positions_.empty() && num_workers > 1) saved_positions_.assign(num_workers, state_.position);
  RETURN_IF_ERROR(RestoreEvaluatedStep());
  saved_step_ = restored_step_ = state_.global_step;
  origin_ = absl::StrCat("resumed from ", latest.prefix);
  if (!HasRunState(*restored_)) absl::StrAppend(&origin_, " (written by TensorFlow: data starts at the beginning)");
  averages_.Log(*restored_);
  return absl::OkStatus();
}

absl::Status CheckpointedModel::RestoreEvaluatedStep() {
  const std::optional<ModelDir::EvaluatedStep> evaluated = dir_->ReadEvaluatedStep();
  if (!evaluated) return absl::OkStatus();
  if (evaluated->step <= state_.global_step) {
    state_.evaluated_step = evaluated->step;
    state_.evaluated_metric = evaluated->metric;
    return absl::OkStatus();
  }
  state_.evaluated_step = state_.global_step - 1;
  return trains_in_dir() ? dir_->KeepEvaluatedStep({*state_.evaluated_step}) : absl::OkStatus();
}

absl::Status CheckpointedModel::Reload() {
  RETURN_IF_ERROR(averages_.Use(false));
  RETURN_IF_ERROR(Restore());
  return restored_ == nullptr ? absl::OkStatus() : RestoreVariables(replicas_.variables());
}

const RunFact& CheckpointedModel::fact(absl::string_view name) const {
  const auto found =
      std::find_if(config_.facts.begin(), config_.facts.end(), [&](const RunFact& fact) { return fact.name == name; });
  OFFICIAL_CHECK(found != config_.facts.end()) << name;
  return *found;
}

absl::Status CheckpointedModel::CheckIsOfThisModel(const std::vector<compute::VariableSpec>& added) const {
  std::vector<std::string> missing, unlike;
  for (const compute::VariableSpec& spec : added) {
    if (!IsSaved(spec.name)) continue;
    const std::string name = averages_.StoredName(spec, *restored_);
    const std::optional<StoredTensor> found = restored_->Find(name);
    // Not there in TensorFlow's, or with other flags.
    if (!found && (absl::StartsWith(spec.name, kRunPrefix) || absl::EndsWith(spec.name, kAverageSuffix))) continue;
    if (!found) {
      missing.push_back(spec.name);
    } else if (found->dtype != spec.type.dtype || found->shape != spec.type.shape) {
      unlike.push_back(absl::StrCat(name, " (", found->dtype_name, found->shape.ToString(), ", the model has ",
                                    spec.type.ToString(), ")"));
    }
  }
  if (missing.empty() && unlike.empty()) return absl::OkStatus();
  std::vector<std::string> surplus;
  for (const StoredTensor& tensor : restored_->ListTensors()) {
    if (!replicas_.HasVariable(tensor.name) && !absl::StartsWith(tensor.name, kRunPrefix)) {
      surplus.push_back(tensor.name);
    }
  }
  std::string message =
      absl::StrCat("the checkpoint in ", config_.model_dir, " is not of this model (", model_.name, ")");
  if (!missing.empty()) absl::StrAppend(&message, "; it has no ", ShortList(missing));
  if (!unlike.empty()) absl::StrAppend(&message, "; of other type or shape: ", ShortList(unlike));
  if (!surplus.empty()) absl::StrAppend(&message, "; the model has no ", ShortList(surplus));
  absl::StrAppend(&message, "; choose another --model_dir", config_.mismatch_hint);
  return absl::DataLossError(message);
}

absl::Status CheckpointedModel::PrepareVariables(const compute::Graph& graph) {
  std::vector<compute::VariableSpec> added;
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!replicas_.HasVariable(spec.name)) added.push_back(spec);
  }
  const auto prepare = [&]() -> absl::Status {
    RETURN_IF_ERROR(replicas_.CreateVariables(graph, state_.seed));
    RETURN_IF_ERROR(averages_.Create(graph, state_.seed, added));
    absl::Status restored = strategy_->is_chief() ? RestoreVariables(added) : absl::OkStatus();
    const bool shares = strategy_->has_other_workers() && shares_variables_;
    if (restored.ok() && (strategy_->is_chief() || !shares)) restored = averages_.Begin(added, restored_.get());
    if (shares) restored = ShareVariables(restored, added);
    return restored.ok() && averages_.used() ? averages_.Swap(added) : restored;
  };
  const absl::Status prepared = prepare();
  if (prepared.ok()) return prepared;
  // The next call would take their initial values for restored ones.
  for (const compute::VariableSpec& spec : added) replicas_.RemoveVariable(spec.name);
  return prepared;
}

absl::Status CheckpointedModel::ShareVariables(absl::Status restored, const std::vector<compute::VariableSpec>& added) {
  for (const compute::VariableSpec& spec : added) {
    if (!IsSaved(spec.name)) continue;
    const auto read = [&]() -> absl::StatusOr<std::string> {
      RETURN_IF_ERROR(restored);
      ASSIGN_OR_RETURN(const Tensor value, replicas_.Read(spec.name));
      return std::string(static_cast<const char*>(value.raw_data()), value.num_bytes());
    };
    ASSIGN_OR_RETURN(const std::string bytes, strategy_->FromChief(strategy_->is_chief() ? read() : ""));
    if (strategy_->is_chief()) continue;
    Tensor value(spec.type);
    if (static_cast<int64_t>(bytes.size()) != value.num_bytes()) {
      return absl::DataLossError(absl::StrCat("the chief has sent ", bytes.size(), " bytes of variable ", spec.name,
                                              ", not ", value.num_bytes()));
    }
    std::memcpy(value.raw_data(), bytes.data(), bytes.size());
    RETURN_IF_ERROR(replicas_.Write(spec.name, value));
  }
  return restored;
}

absl::Status CheckpointedModel::RestoreVariables(const std::vector<compute::VariableSpec>& added) {
  if (restored_ == nullptr) return warm_start_ == nullptr ? absl::OkStatus() : warm_start_->Apply(added, replicas_);
  RETURN_IF_ERROR(CheckIsOfThisModel(added));
  for (const compute::VariableSpec& spec : added) {
    const std::string name = averages_.StoredName(spec, *restored_);
    if (!IsSaved(spec.name) || !restored_->Find(name)) continue;
    ASSIGN_OR_RETURN(const Tensor value, restored_->Read(name));
    if (spec.name == kLossScale && !(value.scalar<float>() >= 1 && std::isfinite(value.scalar<float>()))) {
      return absl::DataLossError(
          absl::StrCat(spec.name, " in the checkpoint is ", value.scalar<float>(), ", which no run has written"));
    }
    RETURN_IF_ERROR(replicas_.Write(spec.name, value));
  }
  return absl::OkStatus();
}

absl::Status CheckpointedModel::CheckTrained() const {
  if (restored_step_ || state_.global_step > 0) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint in ", config_.model_dir, "; train first, or name another --model_dir"));
}

absl::Status CheckpointedModel::CheckFinite(const compute::Graph& graph) {
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!IsSaved(spec.name)) continue;
    ASSIGN_OR_RETURN(const Tensor value, replicas_.Read(spec.name));
    const std::optional<int64_t> found = compute::FindNonFinite(value);
    if (!found) continue;
    const std::string message = absl::StrCat("variable ", spec.name, " (", spec.type.ToString(), ") at step ",
                                             state_.global_step, " is not finite: its element ", *found, " is ",
                                             value.CastTo(DType::kFloat64).data<double>()[*found]);
    if (restored_step_ != state_.global_step) return absl::InternalError(message);
    return absl::DataLossError(absl::StrCat(message, ", in the checkpoint in ", config_.model_dir));
  }
  return absl::OkStatus();
}

absl::Status CheckpointedModel::LoadVariables(const compute::Graph& graph) {
  RETURN_IF_ERROR(CheckTrained());
  RETURN_IF_ERROR(PrepareVariables(graph));
  return CheckFinite(graph);
}

absl::StatusOr<ReplicatedProgram*> CheckpointedModel::ProgramFor(Mode mode, const data::ElementSpec& spec,
                                                                 const data::Batch& batch,
                                                                 std::optional<int> micro_batch) {
  if (mode == Mode::kPredict) RETURN_IF_ERROR(CheckTrained());
  ASSIGN_OR_RETURN(
      ReplicatedProgram* const program,
      replicas_.ProgramFor(
          mode, spec, batch, [this](const compute::Graph& graph) { return PrepareVariables(graph); }, micro_batch));
  if (const auto chosen = algorithm_choices_.TakeNew(); chosen.count > 0) {
    LOG(INFO) << absl::StrFormat("chose %d algorithms by timing them, in %.2f s", chosen.count, chosen.seconds);
    RETURN_IF_ERROR(dir_->KeepAlgorithms(algorithm_choices_));
  }
  return program;
}

absl::Status CheckpointedModel::ReportSave() {
  const absl::Status written = dir_->WaitForSave();
  if (dir_->tries_save_again()) return absl::OkStatus();  // which the log says
  RETURN_IF_ERROR(written);
  const bool saves = dir_->writes() || !has_servers();
  if (saves && saved_step_ == state_.global_step) LogSavedOnRequest();
  return absl::OkStatus();
}

void CheckpointedModel::LogSavedOnRequest() const {
  LOG(INFO) << "saved checkpoint of step " << state_.global_step << " on SIGUSR2";
}

absl::Status CheckpointedModel::ConnectServers(const data::ElementSpec& spec) {
  if (strategy_->servers() == nullptr || servers_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(servers_, ServerClient::Create(model_, config_, spec, *strategy_->servers(), replicas_));
  return strategy_->is_chief() ? servers_->SendVariables(state_.global_step) : absl::OkStatus();
}

absl::Status CheckpointedModel::ReadVariables(const data::ElementSpec& spec, const data::Batch& batch) {
  if (servers_ == nullptr) return absl::OkStatus();
  servers_->BeginStep();
  for (int i = 0; i < replicas_.micro_batches(); ++i) {
    ASSIGN_OR_RETURN(ReplicatedProgram* const program, ProgramFor(Mode::kTrain, spec, batch, /*micro_batch=*/i));
    RETURN_IF_ERROR(servers_->FindRows(*program));
  }
  ASSIGN_OR_RETURN(state_.global_step, servers_->ReadVariables());
  return absl::OkStatus();
}

absl::Status CheckpointedModel::FindRows(ReplicatedProgram& micro_batch) {
  // Of one micro-batch they are those that were found last.
  return servers_ == nullptr || replicas_.micro_batches() == 1 ? absl::OkStatus() : servers_->FindRows(micro_batch);
}

absl::Status CheckpointedModel::ReadGlobalStep() {
  if (servers_ == nullptr) return absl::OkStatus();
  servers_->BeginStep();
  ASSIGN_OR_RETURN(state_.global_step, servers_->ReadVariables());
  return absl::OkStatus();
}

absl::Status CheckpointedModel::TakeGradients(const ReplicatedProgram& program) {
  return servers_ == nullptr ? absl::OkStatus() : servers_->TakeGradients(program);
}

absl::Status CheckpointedModel::FinishStep(float learning_rate) {
  if (servers_ == nullptr) {
    ++state_.global_step;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(state_.global_step, servers_->Update(learning_rate, state_.position));
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointedModel::WaitForOtherWorkers() {
  distribute::ParameterServers* const servers = strategy_->servers();
  if (servers == nullptr || !servers->is_chief()) return true;
  if (servers_ != nullptr) RETURN_IF_ERROR(servers_->Rest());
  return servers->FinishAfterWorkers([this](int worker) { return WaitForWorker(worker); });
}

void CheckpointedModel::EndData() {
  data_have_ended_ = true;
  const distribute::ParameterServers* const servers = strategy_->servers();
  if (servers == nullptr || !servers->is_chief()) return;
  for (int worker = 1; worker < servers->num_workers(); ++worker) {
    if (!servers->WasLost(worker)) continue;
    LOG(WARNING) << servers->NameOf(worker)
                 << " was lost and has not come back; what it had not done of its data is left out";
  }
}

absl::StatusOr<bool> CheckpointedModel::WaitForWorker(int worker) {
  using Clock = std::chrono::steady_clock;
  distribute::ParameterServers& servers = *strategy_->servers();
  bool told = false;
  int64_t global_step = state_.global_step;
  Clock::time_point advanced = Clock::now();
  for (;;) {
    ASSIGN_OR_RETURN(const bool has_left, servers.HasLeft(worker));
    if (has_left) return true;
    const Interruption wanted = config_.interruption();
    if (wanted == Interruption::kStop) return false;
    RETURN_IF_ERROR(SaveWhileWaiting(global_step, wanted == Interruption::kSave));
    if (!std::exchange(told, true)) {
      LOG(INFO) << "waiting for " << servers.NameOf(worker) << ", which is still training";
    }
    const int64_t before = global_step;
    if (servers_ != nullptr) {
      ASSIGN_OR_RETURN(global_step, servers_->GlobalStep());
    }
    if (global_step > before) advanced = Clock::now();
    if (Clock::now() - advanced < servers.timeout()) continue;
    return absl::DeadlineExceededError(absl::StrCat("worker 0 has waited for ", servers.NameOf(worker), " for ",
                                                    servers.timeout().count(), " s, in which it made no step"));
  }
}

absl::Status CheckpointedModel::SaveWhileWaiting(int64_t global_step, bool is_asked) {
  const std::optional<int64_t> steps = config_.save_checkpoints_steps;
  const bool is_due =
      steps ? global_step / *steps > saved_step_.value_or(0) / *steps
            : std::chrono::steady_clock::now() - save_time_ >= std::chrono::seconds(config_.save_checkpoints_secs);
  if (servers_ == nullptr || (!is_due && !is_asked)) return absl::OkStatus();
  RETURN_IF_ERROR(Save());
  return is_asked ? ReportSave() : absl::OkStatus();
}

void CheckpointedModel::MarkSaved() {
  saved_step_ = state_.global_step;
  saved_position_ = state_.position;
  saved_positions_ = state_.worker_positions;
}

absl::Status CheckpointedModel::Save() {
  OFFICIAL_CHECK(!averages_.used());
  save_time_ = std::chrono::steady_clock::now();
  if (servers_ != nullptr && strategy_->is_chief()) {
    ASSIGN_OR_RETURN(state_.global_step, servers_->ReadAll());
    state_.worker_positions = servers_->worker_positions();
    // Of a synchronous step that the servers have not made yet, the batch is still to come.
    const bool may_be_pending = config_.servers.sync_replicas && !state_.worker_positions.empty();
    if (may_be_pending && !data_have_ended_) state_.position = state_.worker_positions[0];
    if (data_have_ended_) std::fill(state_.worker_positions.begin(), state_.worker_positions.end(), state_.position);
  }
  // Without a step the data go on where the gradients of other workers are dropped or a loss scale skips a batch.
  const bool again = saved_step_ == state_.global_step && saved_position_ == state_.position &&
                     saved_positions_ == state_.worker_positions;
  if (again) {
    // The run may end here, without a save of a later step that would try again. Other workers, which compare their
    // variables with this one's before a save, know nothing of it.
    dir_->WaitForSave().IgnoreError();
    if (!dir_->tries_save_again()) return absl::OkStatus();
  } else {
    RETURN_IF_ERROR(replicas_.Settle());
    RETURN_IF_ERROR(replicas_.CheckEqual());
  }
  if (!dir_->writes()) {
    MarkSaved();
    return absl::OkStatus();
  }
  CheckpointContent content;
  for (const compute::VariableSpec& spec : replicas_.variables()) {
    if (!IsSaved(spec.name)) continue;
    content.tensors[spec.name] = {spec.type.num_bytes(), [this, name = spec.name] { return replicas_.Read(name); }};
  }
  AddRunState(state_, content.tensors);
  AddFacts(config_.facts, content.strings);
  content.advice = absl::StrCat("Try a lower ", model_.learning_rate_flag);
  RETURN_IF_ERROR(dir_->saver().Save(state_.global_step, content));
  MarkSaved();
  EventWriter& events = dir_->train_events();
  RETURN_IF_ERROR(events.AddSessionLog(state_.global_step, EventWriter::SessionStatus::kCheckpoint,
                                       files::JoinPath(config_.model_dir, "model.ckpt")));
  // A run that resumes from this checkpoint does not write the events before it again.
  return events.Flush();
}

}  // namespace official::train
