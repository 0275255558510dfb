#include "utils/train/estimator.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/events.h"
#include "utils/logs/log.h"
#include "utils/logs/task_progress.h"
#include "utils/train/short_list.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

// Our own state in a checkpoint. TensorFlow's Saver ignores it; a checkpoint without it is TensorFlow's.
constexpr char kSeed[] = "_run/seed";
constexpr char kEpoch[] = "_run/epoch";
constexpr char kIndex[] = "_run/index";
constexpr char kRunPrefix[] = "_run/";

constexpr int64_t kMaxAlgorithmsBytes = 1 << 20, kMaxFlagsBytes = 1 << 20;

bool HasPrefix(absl::string_view name, absl::string_view prefix) { return name.substr(0, prefix.size()) == prefix; }

bool IsSaved(absl::string_view name) { return !HasPrefix(name, kLocalPrefix); }

// More than any run writes, and so few that no sum or product of steps overflows.
constexpr int64_t kMaxCount = int64_t{1} << 53;                     // of steps or examples
constexpr int64_t kMaxEpoch = std::numeric_limits<int32_t>::max();  // --train_epochs is an int

// The scalar int64 `name` of a bundle, or `missing` if it has none.
absl::StatusOr<int64_t> ReadInt(const BundleReader& bundle, const std::string& name, int64_t missing) {
  const std::optional<BundleTensor> found = bundle.Find(name);
  if (!found) return missing;
  if (found->dtype != DType::kInt64 || found->shape.rank() != 0) {
    return absl::DataLossError(absl::StrCat(name, " in the checkpoint is ", found->dtype_name, found->shape.ToString(),
                                            " instead of int64[]"));
  }
  ASSIGN_OR_RETURN(const Tensor tensor, bundle.Read(name));
  return tensor.scalar<int64_t>();
}

// The same of something counted; 0 if the bundle has none, DataLoss if it is negative or above `max`.
absl::StatusOr<int64_t> ReadCount(const BundleReader& bundle, const std::string& name, int64_t max) {
  ASSIGN_OR_RETURN(const int64_t value, ReadInt(bundle, name, 0));
  if (value >= 0 && value <= max) return value;
  return absl::DataLossError(absl::StrCat(name, " in the checkpoint ", bundle.prefix(), " is ", value,
                                          ", which no run has written (at most ", max,
                                          "); remove that checkpoint, or choose another --model_dir"));
}

// Bytes of memory that can be had without swapping; -1 if the system does not tell.
int64_t AvailableMemory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  int64_t kilobytes;
  while (meminfo >> key >> kilobytes) {
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return -1;
}

// The first fact of every run: it has the name that it had before there were others.
RunFact DatasetFact(const EstimatorConfig& config) {
  return {.name = "dataset",
          .value = config.dataset,
          .difference =
              [model_dir = config.model_dir, dataset = config.dataset](absl::string_view before) {
                return absl::StrCat("--model_dir=", model_dir, " holds a run on ", before, " and this run is on ",
                                    dataset, "; choose another --model_dir, or --clean to start afresh there");
              },
          .must_match = true};
}

std::string Gigabytes(double bytes) { return absl::StrCat(std::round(bytes / 1e8) / 10, " GB"); }

}  // namespace

Estimator::Estimator(Model model, EstimatorConfig config, std::unique_ptr<distribute::Strategy> strategy)
    : model_(std::move(model)),
      config_(std::move(config)),
      strategy_(std::move(strategy)),
      replicas_(model_, config_.dtype, config_.loss_scale, config_.grad_accum_steps, *strategy_,
                config_.time_algorithms ? &algorithm_choices_ : nullptr) {
  config_.facts.insert(config_.facts.begin(), DatasetFact(config_));
}

Estimator::~Estimator() = default;

absl::StatusOr<std::unique_ptr<Estimator>> Estimator::Create(Model model, EstimatorConfig config,
                                                             std::unique_ptr<distribute::Strategy> strategy) {
  std::unique_ptr<Estimator> estimator(new Estimator(std::move(model), std::move(config), std::move(strategy)));
  RETURN_IF_ERROR(estimator->OpenModelDir());
  if (estimator->config_.time_algorithms) estimator->ReadAlgorithms();
  return estimator;
}

std::string Estimator::AlgorithmsFile() const { return files::JoinPath(config_.model_dir, "algorithms.txt"); }

void Estimator::ReadAlgorithms() {
  if (!files::Exists(AlgorithmsFile())) return;
  const absl::StatusOr<std::string> text = files::ReadFile(AlgorithmsFile(), kMaxAlgorithmsBytes);
  const absl::Status status = text.ok() ? algorithm_choices_.Parse(*text) : text.status();
  if (status.ok()) return;
  LOG(WARNING) << AlgorithmsFile() << ": " << status.message() << "; algorithms are timed anew, so this run may differ "
               << "in the last bits from what an unbroken one would have computed";
}

absl::Status Estimator::OpenModelDir() {
  if (config_.write_model_dir) {
    ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSaver> saver,
                     CheckpointSaver::Open(config_.model_dir, config_.keep_checkpoint_max));
    saver_ = std::make_unique<BackgroundSaver>(std::move(saver));
    // What cannot be written is told now, and not after the first evaluation.
    for (const std::string& path : {FlagsFile(), AlgorithmsFile(), EvaluatedStepFile()}) {
      RETURN_IF_ERROR(files::CheckRegularOrMissing(path));
    }
  }
  ASSIGN_OR_RETURN(LatestCheckpoint latest, FindLatestCheckpoint(config_.model_dir));
  if (!latest.note.empty()) {
    LOG(WARNING) << latest.note;
  }
  restored_ = std::move(latest.reader);
  if (restored_ == nullptr) {
    if (config_.resume == Resume::kMust) {
      return absl::NotFoundError(absl::StrCat("--resume=must: there is no checkpoint in ", config_.model_dir));
    }
    if (config_.warm_start) {
      ASSIGN_OR_RETURN(warm_start_, WarmStart::Open(*config_.warm_start));
    }
    return absl::OkStatus();
  }
  if (config_.resume == Resume::kNever) {
    return absl::FailedPreconditionError(absl::StrCat("--resume=never, but there is the checkpoint ", latest.prefix,
                                                      "; give --clean, another --model_dir, or --resume=auto"));
  }
  RETURN_IF_ERROR(CompareFacts(*restored_, config_.facts));
  ASSIGN_OR_RETURN(global_step_, ReadCount(*restored_, kGlobalStep, kMaxCount));
  ASSIGN_OR_RETURN(position_.epoch, ReadCount(*restored_, kEpoch, kMaxEpoch));
  ASSIGN_OR_RETURN(position_.index, ReadCount(*restored_, kIndex, kMaxCount));
  ASSIGN_OR_RETURN(const int64_t seed, ReadInt(*restored_, kSeed, static_cast<int64_t>(config_.seed)));
  config_.seed = static_cast<uint64_t>(seed);
  saved_step_ = restored_step_ = global_step_;
  int64_t evaluated;
  const absl::StatusOr<std::string> text = files::ReadFile(EvaluatedStepFile(), 100);
  if (text.ok() && absl::SimpleAtoi(*text, &evaluated)) evaluated_step_ = evaluated;
  origin_ = absl::StrCat("resumed from ", latest.prefix);
  if (!restored_->Find(kEpoch)) absl::StrAppend(&origin_, " (written by TensorFlow: data starts at the beginning)");
  return absl::OkStatus();
}

const RunFact& Estimator::fact(absl::string_view name) const {
  const auto found =
      std::find_if(config_.facts.begin(), config_.facts.end(), [&](const RunFact& fact) { return fact.name == name; });
  OFFICIAL_CHECK(found != config_.facts.end()) << name;
  return *found;
}

absl::Status Estimator::PrepareVariables(const compute::Graph& graph) {
  std::vector<compute::VariableSpec> added;
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!replicas_.HasVariable(spec.name)) added.push_back(spec);
  }
  RETURN_IF_ERROR(replicas_.CreateVariables(graph, config_.seed));
  if (restored_ == nullptr) return warm_start_ == nullptr ? absl::OkStatus() : warm_start_->Apply(added, replicas_);
  std::vector<std::string> missing, unlike;
  for (const compute::VariableSpec& spec : added) {
    if (!IsSaved(spec.name)) continue;
    const std::optional<BundleTensor> found = restored_->Find(spec.name);
    if (!found && HasPrefix(spec.name, kRunPrefix)) continue;  // not there in TensorFlow's, or with other flags
    if (!found) {
      missing.push_back(spec.name);
    } else if (found->dtype != spec.type.dtype || found->shape != spec.type.shape) {
      unlike.push_back(absl::StrCat(spec.name, " (", found->dtype_name, found->shape.ToString(), ", the model has ",
                                    spec.type.ToString(), ")"));
    }
  }
  if (!missing.empty() || !unlike.empty()) {
    std::vector<std::string> surplus;
    for (const BundleTensor& tensor : restored_->ListTensors()) {
      if (!replicas_.HasVariable(tensor.name) && !HasPrefix(tensor.name, kRunPrefix)) surplus.push_back(tensor.name);
    }
    std::string message =
        absl::StrCat("the checkpoint in ", config_.model_dir, " is not of this model (", model_.name, ")");
    if (!missing.empty()) absl::StrAppend(&message, "; it lacks ", ShortList(missing));
    if (!unlike.empty()) absl::StrAppend(&message, "; of other type or shape: ", ShortList(unlike));
    if (!surplus.empty()) absl::StrAppend(&message, "; it has besides ", ShortList(surplus));
    absl::StrAppend(&message, "; choose another --model_dir", config_.mismatch_hint);
    return absl::DataLossError(message);
  }
  for (const compute::VariableSpec& spec : added) {
    if (!IsSaved(spec.name) || !restored_->Find(spec.name)) continue;
    ASSIGN_OR_RETURN(const Tensor value, restored_->Read(spec.name));
    if (spec.name == kLossScale && !(value.scalar<float>() >= 1 && std::isfinite(value.scalar<float>()))) {
      return absl::DataLossError(
          absl::StrCat(spec.name, " in the checkpoint is ", value.scalar<float>(), ", which no run has written"));
    }
    RETURN_IF_ERROR(replicas_.Write(spec.name, value));
  }
  return absl::OkStatus();
}

absl::Status Estimator::CheckTrained() const {
  if (restored_ != nullptr || global_step_ > 0) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("there is no checkpoint in ", config_.model_dir, "; train first, or name another --model_dir"));
}

absl::Status Estimator::CheckFinite(const compute::Graph& graph) const {
  for (const compute::VariableSpec& spec : graph.variables()) {
    if (!IsSaved(spec.name)) continue;
    ASSIGN_OR_RETURN(const Tensor value, replicas_.Read(spec.name));
    const std::optional<int64_t> found = compute::FindNonFinite(value);
    if (!found) continue;
    const std::string message = absl::StrCat("variable ", spec.name, " (", spec.type.ToString(), ") at step ",
                                             global_step_, " is not finite: its element ", *found, " is ",
                                             value.CastTo(DType::kFloat64).data<double>()[*found]);
    if (restored_step_ != global_step_) return absl::InternalError(message);
    return absl::DataLossError(absl::StrCat(message, ", in the checkpoint in ", config_.model_dir));
  }
  return absl::OkStatus();
}

absl::Status Estimator::ExplainNonFinite(absl::string_view what, ReplicatedProgram& program) {
  absl::Status found = CheckFinite(*program.model().graph);
  if (found.ok()) {
    found = strategy_->Run([&](int r) -> absl::Status {
      if (r >= static_cast<int>(program.replicas.size())) return absl::OkStatus();
      const ReplicatedProgram::Replica& replica = program.replicas[r];
      if (replica.program == nullptr) return absl::OkStatus();
      std::vector<Tensor> feeds;
      AppendTensors(replica.share, feeds);
      return replica.program->Run(feeds, {.check_numerics = true});
    });
  }
  const absl::string_view reason = found.ok() ? "what is averaged is finite" : found.message();
  const absl::StatusCode code = absl::IsDataLoss(found) ? absl::StatusCode::kDataLoss : absl::StatusCode::kInternal;
  return absl::Status(
      code, absl::StrCat(what, " is not finite: ", reason, ". Train again with a lower ", model_.learning_rate_flag,
                         config_.dtype == DType::kFloat16 ? " or --dtype=bf16" : "",
                         ", from an earlier checkpoint if there is one"));
}

absl::StatusOr<BuiltModel> Estimator::BuildForExport(const data::ElementSpec& spec) {
  ASSIGN_OR_RETURN(BuiltModel model, BuildModel(model_, Mode::kPredict, DType::kFloat32, {}, Batched(spec, 1),
                                                /*has_examples=*/true, /*num_replicas=*/1));
  RETURN_IF_ERROR(LoadVariables(*model.graph));
  return model;
}

absl::Status Estimator::LoadVariables(const compute::Graph& graph) {
  RETURN_IF_ERROR(CheckTrained());
  RETURN_IF_ERROR(PrepareVariables(graph));
  return CheckFinite(graph);
}

absl::StatusOr<ReplicatedProgram*> Estimator::ProgramFor(Mode mode, const data::ElementSpec& spec,
                                                         const data::Batch& batch, std::optional<int> turn) {
  if (mode == Mode::kPredict) RETURN_IF_ERROR(CheckTrained());
  ASSIGN_OR_RETURN(
      ReplicatedProgram* const program,
      replicas_.ProgramFor(
          mode, spec, batch, [this](const compute::Graph& graph) { return PrepareVariables(graph); }, turn));
  if (const auto chosen = algorithm_choices_.TakeNew(); chosen.count > 0) {
    LOG(INFO) << absl::StrFormat("chose %d algorithms by timing them, in %.2f s", chosen.count, chosen.seconds);
    if (config_.write_model_dir) {
      RETURN_IF_ERROR(files::WriteFileAtomically(AlgorithmsFile(), algorithm_choices_.ToText()));
    }
  }
  return program;
}

absl::Status Estimator::CheckBatchFits(const data::ElementSpec& spec, int64_t batch_size) {
  // Below this the answer is always yes, and the question costs start-up time.
  constexpr int64_t kSmall = 4096;
  const int64_t available = AvailableMemory();
  // Nor is there an answer where a share of a batch is not rows of it.
  if (batch_size <= kSmall || available < 0 || model_.share) return absl::OkStatus();
  // The arena of a program grows with the batch; two small programs tell by how much. Variables do not. A device with
  // memory of its own says itself when that is too small.
  int64_t bytes[2] = {0, 0};
  const int64_t sizes[2] = {16, 32};
  for (int i = 0; i < 2 && strategy_->device(0).uses_host_memory(); ++i) {
    ASSIGN_OR_RETURN(const BuiltModel built,
                     BuildModel(model_, Mode::kTrain, config_.dtype, config_.loss_scale, Batched(spec, sizes[i]),
                                /*has_examples=*/true, /*num_replicas=*/1));
    compute::VariableStore scratch(strategy_->device(0));
    RETURN_IF_ERROR(scratch.Create(*built.graph, 0));
    ASSIGN_OR_RETURN(const auto program,
                     compute::Program::Compile(*built.graph, built.roots, strategy_->device(0), scratch));
    bytes[i] = program->arena_bytes();
  }
  double input_bytes = 0;
  for (const auto* leaves : {&spec.features, &spec.labels}) {
    for (const data::Leaf& leaf : *leaves) input_bytes += static_cast<double>(leaf.type.num_bytes());
  }
  // The input pipeline holds a few batches: one in use, the others read ahead.
  const double computed = static_cast<double>(bytes[1] - bytes[0]) / (sizes[1] - sizes[0]);
  const double per_example = computed / config_.grad_accum_steps + 4 * input_bytes;
  const double fixed = static_cast<double>(bytes[0]) - sizes[0] * computed;
  const double needed = fixed + per_example * static_cast<double>(batch_size);
  if (needed < 0.9 * static_cast<double>(available)) return absl::OkStatus();
  const int64_t multiple = strategy_->num_replicas();
  const auto fits =
      std::max<int64_t>(multiple, static_cast<int64_t>((0.9 * static_cast<double>(available) - fixed) / per_example) /
                                      multiple * multiple);
  return absl::InvalidArgumentError(absl::StrCat("--batch_size=", batch_size, " needs about ", Gigabytes(needed),
                                                 " of memory and ", Gigabytes(static_cast<double>(available)),
                                                 " are free; at most --batch_size=", fits, " would fit"));
}

std::string Estimator::EvaluatedStepFile() const { return files::JoinPath(config_.model_dir, "eval/evaluated_step"); }

absl::Status Estimator::KeepEvaluatedStep() {
  RETURN_IF_ERROR(files::WriteFileAtomically(EvaluatedStepFile(), absl::StrCat(global_step_, "\n")));
  evaluated_step_ = global_step_;
  return absl::OkStatus();
}

std::string Estimator::FlagsFile() const { return files::JoinPath(config_.model_dir, "flags.txt"); }

void Estimator::LogChangedFlags() const {
  const absl::StatusOr<std::string> before = files::ReadFile(FlagsFile(), kMaxFlagsBytes);
  if (!before.ok() || config_.flags_text.empty()) return;
  const std::vector<absl::string_view> old_lines = absl::StrSplit(*before, '\n');
  std::vector<std::string> changes;
  for (const absl::string_view line : absl::StrSplit(config_.flags_text, '\n')) {
    if (std::find(old_lines.begin(), old_lines.end(), line) != old_lines.end()) continue;
    const absl::string_view name = line.substr(0, line.find('=') + 1);
    const auto old = std::find_if(old_lines.begin(), old_lines.end(),
                                  [&](absl::string_view l) { return !name.empty() && absl::StartsWith(l, name); });
    if (old != old_lines.end()) changes.push_back(absl::StrCat(line, " (was ", old->substr(name.size()), ")"));
  }
  if (!changes.empty()) {
    LOG(INFO) << "flags that differ from this run's last: " << absl::StrJoin(changes, ", ");
  }
}

// Says which flags differ from those of the run so far, and keeps the present ones.
absl::Status Estimator::KeepFlags() const {
  if (config_.flags_text.empty()) return absl::OkStatus();
  if (global_step_ > 0) LogChangedFlags();
  return files::WriteFileAtomically(FlagsFile(), config_.flags_text);
}

absl::StatusOr<EventWriter*> Estimator::TrainEvents() {
  if (train_events_ == nullptr) {
    ASSIGN_OR_RETURN(train_events_, EventWriter::Open(config_.model_dir));
    if (!config_.flags_text.empty()) {
      // Indented lines are Markdown for text that stays as it is.
      const std::string text = absl::StrCat("    ", absl::StrReplaceAll(config_.flags_text, {{"\n", "\n    "}}));
      RETURN_IF_ERROR(train_events_->AddText(global_step_, "flags", text));
    }
  }
  return train_events_.get();
}

absl::Status Estimator::SaveCheckpoint() {
  if (saved_step_ == global_step_) return absl::OkStatus();
  RETURN_IF_ERROR(replicas_.Settle());
  RETURN_IF_ERROR(replicas_.CheckEqual());
  CheckpointContent content;
  for (const compute::VariableSpec& spec : replicas_.variables()) {
    if (!IsSaved(spec.name)) continue;
    content.tensors[spec.name] = {spec.type.num_bytes(), [this, name = spec.name] { return replicas_.Read(name); }};
  }
  const auto add = [&](const char* name, int64_t value) {
    content.tensors[name] = {sizeof(value), [value] { return Tensor::Scalar(value); }};
  };
  add(kSeed, static_cast<int64_t>(config_.seed));
  add(kEpoch, position_.epoch);
  add(kIndex, position_.index);
  AddFacts(config_.facts, content.strings);
  content.advice = absl::StrCat("Try a lower ", model_.learning_rate_flag);
  RETURN_IF_ERROR(saver_->Save(global_step_, content));
  saved_step_ = global_step_;
  ASSIGN_OR_RETURN(EventWriter* const events, TrainEvents());
  return events->AddSessionLog(global_step_, EventWriter::SessionStatus::kCheckpoint,
                               files::JoinPath(config_.model_dir, "model.ckpt"));
}

absl::Status Estimator::StoppedInEvaluation() const {
  return absl::CancelledError(
      absl::StrCat("stopped in the evaluation at step ", global_step_, ", whose checkpoint is saved"));
}

void Estimator::TellSaved() const { LOG(INFO) << "saved checkpoint of step " << global_step_ << " on SIGUSR2"; }

absl::StatusOr<EvalResults> Estimator::Evaluate(const InputFn& input_fn, std::optional<int64_t> max_steps) {
  ASSIGN_OR_RETURN(const data::BatchSourcePtr source, input_fn({}));
  const auto start = std::chrono::steady_clock::now();
  double loss_sum = 0;
  int64_t batches = 0, examples = 0;
  std::map<std::string, std::pair<double, double>> host_sums;
  ReplicatedProgram* program = nullptr;
  const std::string title = absl::StrCat("evaluating step ", global_step_);
  logs::LogEvent("evaluation_start", title, {{"global_step", global_step_}});
  // How many examples a limited number of batches has is not known.
  logs::TaskProgress progress(
      {.title = title, .total = max_steps ? 0 : source->num_examples().value_or(0), .unit = "examples"});
  while (!max_steps || batches < *max_steps) {
    do {
      const Interruption interruption = config_.interruption();
      if (interruption == Interruption::kStop) return StoppedInEvaluation();
      if (interruption == Interruption::kSave) TellSaved();
    } while (!source->WaitUntilReady(kAskInterval));
    ASSIGN_OR_RETURN(const std::optional<data::Batch> batch, source->Next());
    if (!batch) break;
    const bool first = program == nullptr;
    ASSIGN_OR_RETURN(program, ProgramFor(Mode::kEval, source->spec(), *batch));
    if (first) RETURN_IF_ERROR(replicas_.ResetSums());
    const absl::Status computed = strategy_->Run([&](int r) -> absl::Status {
      const ReplicatedProgram::Replica& replica = program->replicas[r];
      if (replica.program == nullptr) return absl::OkStatus();
      std::vector<Tensor> feeds;
      AppendTensors(replica.share, feeds);
      return replica.program->Run(feeds, {.stop = config_.stop});
    });
    if (absl::IsCancelled(computed) && StopIsWanted()) return StoppedInEvaluation();
    RETURN_IF_ERROR(computed);
    ASSIGN_OR_RETURN(const double loss, program->MeanFetch(0));
    if (!std::isfinite(loss)) return ExplainNonFinite("the loss of the evaluation", *program);
    loss_sum += loss;
    ++batches;
    examples += batch->num_examples;
    progress.Set(examples);
    if (!model_.host_metrics) continue;
    ASSIGN_OR_RETURN(const std::vector<ShareResults> shares, program->FetchPredictions());
    for (const HostMetric& metric : model_.host_metrics(shares)) {
      auto& [total, count] = host_sums[metric.name];
      total += metric.total;
      count += metric.count;
    }
  }
  if (program == nullptr) return absl::DataLossError("there is nothing to evaluate on: the data set is empty");

  EvalResults results = {{"loss", static_cast<float>(loss_sum / batches)}};
  for (const auto& metric : program->model().metrics) {
    ASSIGN_OR_RETURN(const double value, replicas_.MetricValue(metric));
    results.emplace_back(metric.name, static_cast<float>(value));
  }
  for (const auto& [name, sums] : host_sums) results.emplace_back(name, static_cast<float>(sums.first / sums.second));
  std::sort(results.begin(), results.end());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  LOG(INFO) << absl::StrFormat("evaluated %d examples in %.3f s: %.1f examples/s", examples, seconds,
                               static_cast<double>(examples) / seconds);
  if (eval_events_ == nullptr) {
    ASSIGN_OR_RETURN(eval_events_, EventWriter::Open(files::JoinPath(config_.model_dir, "eval")));
  }
  RETURN_IF_ERROR(
      eval_events_->AddScalars(global_step_, std::vector<EventWriter::Scalar>(results.begin(), results.end())));
  RETURN_IF_ERROR(eval_events_->Flush());
  results.emplace_back("global_step", global_step_);
  std::sort(results.begin(), results.end());
  logs::Json::Object metrics;
  for (const auto& [name, value] : results) {
    if (name != "global_step") metrics.emplace_back(name, logs::FiniteOrNull(value));
  }
  logs::LogEvent("evaluation",
                 absl::StrCat("Saving dict for global step ", global_step_, ": ",
                              absl::StrJoin(results, ", ",
                                            [](std::string* out, const auto& r) {
                                              absl::StrAppend(out, r.first, " = ", r.second);
                                            })),
                 {{"global_step", global_step_},
                  {"metrics", std::move(metrics)},
                  {"examples", examples},
                  {"seconds", seconds},
                  {"examples_per_sec", static_cast<double>(examples) / seconds}});
  return results;
}

absl::StatusOr<std::vector<std::pair<std::string, Tensor>>> Estimator::Predict(const data::ElementSpec& spec,
                                                                               const data::Tensors& features) {
  data::Batch batch;
  batch.features = features;
  batch.num_examples = features[0].shape().dim(0);
  ASSIGN_OR_RETURN(ReplicatedProgram* const program, ProgramFor(Mode::kPredict, spec, batch));
  const ReplicatedProgram::Replica& replica = program->replicas[0];
  compute::Program& first = *replica.program;
  RETURN_IF_ERROR(first.Run(std::vector<Tensor>(replica.share.features.begin(), replica.share.features.end())));
  std::vector<std::pair<std::string, Tensor>> results;
  for (size_t i = 0; i < program->model().fetch_names.size(); ++i) {
    ASSIGN_OR_RETURN(const Tensor value, first.Fetch(static_cast<int>(i)));
    if (compute::FindNonFinite(value)) {
      return ExplainNonFinite(absl::StrCat("the prediction (", program->model().fetch_names[i], ")"), *program);
    }
    results.emplace_back(program->model().fetch_names[i], value.Clone());
  }
  return results;
}

}  // namespace official::train
