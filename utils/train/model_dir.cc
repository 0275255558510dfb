#include "utils/train/model_dir.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/log.h"
#include "utils/misc/run_files.h"
#include "utils/train/evaluations/evaluation_history.h"
#include "utils/train/run_lock.h"
#include "utils/train/summary/graph_summary.h"

namespace official::train {
namespace {

constexpr absl::string_view kAlgorithmsFile = "algorithms.txt";
constexpr absl::string_view kEvaluatedStepFile = "eval/evaluated_step";
constexpr char kSamplesTag[] = "samples";
constexpr int64_t kMaxAlgorithmsBytes = 1 << 20, kMaxFlagsBytes = 1 << 20, kMaxStepBytes = 100;

}  // namespace

std::string ModelDir::File(absl::string_view name) const { return files::JoinPath(path(), name); }

absl::StatusOr<std::unique_ptr<ModelDir>> ModelDir::Open(TrainOptions options, Use use, bool saves,
                                                         std::string meta_graph) {
  std::unique_ptr<ModelDir> dir(new ModelDir(std::move(options), use));
  if (use != Use::kWrite) return dir;
  // It also finishes or removes what a killed run has left, for an evaluation, too; but not in best/ of a training that
  // is writing there.
  if (saves || !RunLock::HolderOf(files::DirectoryOf(dir->path()))) {
    ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSaver> saver,
                     CheckpointSaver::Open(dir->path(), dir->options_.keep_checkpoint_max, std::move(meta_graph)));
    if (saves) dir->saver_ = std::make_unique<BackgroundSaver>(std::move(saver));
  }
  RETURN_IF_ERROR(CheckCanWrite(dir->path()));
  return dir;
}

absl::Status ModelDir::CheckCanWrite(const std::string& model_dir) {
  RETURN_IF_ERROR(files::CheckCanWriteIn(model_dir));
  for (const absl::string_view name :
       {misc::kStateFile, misc::kFlagsFile, kAlgorithmsFile, kEvaluatedStepFile, kEvaluationHistoryFile}) {
    RETURN_IF_ERROR(files::CheckRegularOrMissing(files::JoinPath(model_dir, name)));
  }
  return files::CheckDirectoryOrMissing(files::JoinPath(model_dir, "eval"));
}

absl::StatusOr<LatestCheckpoint> ModelDir::FindCheckpoint() const {
  ASSIGN_OR_RETURN(LatestCheckpoint latest, FindLatestCheckpoint(path()));
  if (latest.note.empty()) return latest;
  if (options_.only_latest) return absl::DataLossError(latest.note);
  LOG(WARNING) << latest.note;
  return latest;
}

absl::Status ModelDir::BeginTraining(int64_t step, const compute::Graph& graph) {
  if (!writes() || train_events_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(train_events_, EventWriter::Open(path()));
  RETURN_IF_ERROR(train_events_->AddSessionLog(step + 1, EventWriter::SessionStatus::kStart));
  const std::string& flags = options_.flags_text;
  if (!flags.empty()) {
    // Indented lines are Markdown for text that stays as it is.
    const std::string text = absl::StrCat("    ", absl::StrReplaceAll(flags, {{"\n", "\n    "}}));
    RETURN_IF_ERROR(train_events_->AddText(step, "flags", text));
  }
  RETURN_IF_ERROR(train_events_->AddGraphDef(GraphDefOf(graph)));
  if (flags.empty()) return absl::OkStatus();
  if (step > 0) LogChangedFlags();
  return files::WriteFileAtomically(File(misc::kFlagsFile), flags);
}

absl::StatusOr<EventWriter*> ModelDir::EvalEvents() {
  if (eval_events_ == nullptr) {
    ASSIGN_OR_RETURN(eval_events_, EventWriter::Open(File("eval")));
  }
  return eval_events_.get();
}

absl::Status ModelDir::AddEvalSamples(int64_t step, EvalSamples samples) {
  if (samples.rows.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(EventWriter* const events, EvalEvents());
  if (!samples.images.empty() && !std::exchange(has_sample_images_, true)) {
    const compute::Tensor images = ImagesOf(samples);
    RETURN_IF_ERROR(events->AddImages(step, kSamplesTag, images, images.shape().dim(0)));
  }
  CutLongTexts(samples);
  samples.rows.insert(samples.rows.begin(), samples.columns);
  return events->AddTextTable(step, kSamplesTag, samples.rows);
}

void ModelDir::LogChangedFlags(absl::Span<const std::string> names) const {
  if (use_ == Use::kNone) return;
  const absl::StatusOr<std::string> before = files::ReadFile(File(misc::kFlagsFile), kMaxFlagsBytes);
  if (!before.ok() || options_.flags_text.empty()) return;
  const std::vector<absl::string_view> old_lines = absl::StrSplit(*before, '\n');
  std::vector<std::string> changes;
  for (const absl::string_view line : absl::StrSplit(options_.flags_text, '\n')) {
    if (std::find(old_lines.begin(), old_lines.end(), line) != old_lines.end()) continue;
    const absl::string_view name = line.substr(0, line.find('=') + 1);
    const auto is_named = [&](const std::string& one) { return name == absl::StrCat("--", one, "="); };
    if (!names.empty() && std::none_of(names.begin(), names.end(), is_named)) continue;
    const auto old = std::find_if(old_lines.begin(), old_lines.end(),
                                  [&](absl::string_view l) { return !name.empty() && absl::StartsWith(l, name); });
    if (old != old_lines.end()) changes.push_back(absl::StrCat(line, " (was ", old->substr(name.size()), ")"));
  }
  if (!changes.empty()) {
    LOG(INFO) << "flags that differ from this run's last: " << absl::StrJoin(changes, ", ");
  }
}

void ModelDir::ReadAlgorithms(compute::AlgorithmChoices& choices) const {
  const std::string file = File(kAlgorithmsFile);
  if (!files::Exists(file)) return;
  const absl::StatusOr<std::string> text = files::ReadFile(file, kMaxAlgorithmsBytes);
  const absl::Status status = text.ok() ? choices.Parse(*text) : text.status();
  if (status.ok()) return;
  LOG(WARNING) << file << ": " << status.message()
               << "; algorithms are timed again, so this run may differ in the last "
               << "bits from what an unbroken one would have computed";
}

absl::Status ModelDir::KeepAlgorithms(const compute::AlgorithmChoices& choices) const {
  if (!writes()) return absl::OkStatus();
  return files::WriteFileAtomically(File(kAlgorithmsFile), choices.ToText());
}

std::optional<ModelDir::EvaluatedStep> ModelDir::ReadEvaluatedStep() const {
  const absl::StatusOr<std::string> text = files::ReadFile(File(kEvaluatedStepFile), kMaxStepBytes);
  if (!text.ok()) return std::nullopt;
  const std::vector<absl::string_view> fields = absl::StrSplit(*text, ' ');
  EvaluatedStep evaluated;
  if (!absl::SimpleAtoi(fields[0], &evaluated.step)) return std::nullopt;
  double metric;
  if (fields.size() > 1 && absl::SimpleAtod(fields[1], &metric)) evaluated.metric = metric;
  return evaluated;
}

absl::Status ModelDir::KeepEvaluatedStep(const EvaluatedStep& evaluated) const {
  if (!writes_evaluations()) return absl::OkStatus();
  const std::string metric = evaluated.metric ? absl::StrFormat(" %.17g", *evaluated.metric) : "";
  return files::WriteFileAtomically(File(kEvaluatedStepFile), absl::StrCat(evaluated.step, metric, "\n"));
}

absl::Status ModelDir::ForgetEvaluatedStep() const { return files::RemoveFile(File(kEvaluatedStepFile)); }

}  // namespace official::train
