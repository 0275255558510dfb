#include "utils/train/replicas.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/device.h"
#include "utils/compute/ops/checksum/checksum.h"
#include "utils/logs/task_progress.h"
#include "utils/train/share_bytes.h"

namespace official::train {

using compute::Tensor;

namespace {

// More than a data set has in turn: buckets of lengths, last batches of epochs.
constexpr size_t kMaxPrograms = 256;

// Returns the most programs of each replica, and of all of them together. It is enough for all steps that a device may
// still be computing, whose programs StepRunner refers to: each has its update and at most one for each micro-batch.
size_t MaxPrograms(int micro_batches) {
  return std::max(kMaxPrograms, static_cast<size_t>(compute::kMaxRunsBehind + 1) * (micro_batches + 1));
}

// What of a share decides the graph that is built for it.
void AppendKey(const BatchShare& share, std::vector<int64_t>& key) {
  key.push_back(share.examples.size() > 0 ? 1 : 0);
  for (const auto* tensors : {&share.features, &share.labels}) {
    for (const Tensor& tensor : *tensors) {
      const compute::Shape& shape = tensor.type().shape;
      key.push_back(static_cast<int64_t>(tensor.dtype()));
      key.push_back(shape.rank());
      key.insert(key.end(), shape.dims().begin(), shape.dims().end());
    }
  }
}

// "float32[2,28,28,1], int32[2]".
std::string TypesOf(const BatchShare& share) {
  std::vector<std::string> types;
  for (const auto* tensors : {&share.features, &share.labels}) {
    for (const Tensor& tensor : *tensors) types.push_back(tensor.type().ToString());
  }
  return absl::StrJoin(types, ", ");
}

// InvalidArgument if programs for these shares would not be the same.
absl::Status CheckAlike(const std::vector<BatchShare>& shares) {
  std::vector<int64_t> first, key;
  AppendKey(shares[0], first);
  for (size_t r = 1; r < shares.size(); ++r) {
    key.clear();
    AppendKey(shares[r], key);
    if (key == first) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the devices would compute different programs: of a batch replica 0 has ", TypesOf(shares[0]),
                     " and replica ", r, " has ", TypesOf(shares[r]),
                     "; with several devices of a PJRT plugin every batch must be a multiple of their number, and with "
                     "gradient accumulation of that of their micro-batches"));
  }
  return absl::OkStatus();
}

// True if devices of this kind compute a step as one program, in which they sum.
bool SumsInPrograms(absl::string_view device_kind) {
  const compute::DeviceKind* const kind = compute::FindDeviceKind(device_kind);
  return kind != nullptr && kind->merge != nullptr;
}

bool IsLocal(const compute::VariableSpec& spec) { return absl::StartsWith(spec.name, kLocalPrefix); }

}  // namespace

float ReplicatedProgram::Weight(const Replica& replica) const {
  if (replica.share.weight == 0) return 0;
  const auto own = static_cast<float>(replica.share.weight), all = static_cast<float>(weight);
  const float each = 1 / all, nearest = own / all;
  for (const float part : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, 2.0f)}) {
    if (part / own == each) return part;
  }
  return nearest;
}

void AppendTensors(const BatchShare& share, std::vector<Tensor>& feeds) {
  feeds.insert(feeds.end(), share.features.begin(), share.features.end());
  feeds.insert(feeds.end(), share.labels.begin(), share.labels.end());
}

Replicas::Replicas(const Model& model, compute::DType dtype, const compute::LossScale& loss_scale, int micro_batches,
                   distribute::Strategy& strategy, compute::AlgorithmChoices* choices)
    : model_(model),
      share_(model.share ? model.share : ShareOfRows),
      dtype_(dtype),
      loss_scale_(loss_scale),
      micro_batches_(micro_batches),
      strategy_(strategy),
      choices_(choices),
      max_programs_(MaxPrograms(micro_batches)),
      sums_in_programs_(strategy.num_replicas_in_sync() > 1 && SumsInPrograms(strategy.device(0).kind())),
      compiled_(strategy.num_local_replicas()) {
  const int n = strategy.num_local_replicas();
  for (int r = 0; r < n; ++r) {
    compute::Device& device = strategy.device(r);
    stores_.push_back(strategy.shares_memory()
                          ? std::make_unique<compute::VariableStore>(device, r > 0 ? stores_[0].get() : nullptr,
                                                                     compute::UpdatePart{r, n})
                          : std::make_unique<compute::VariableStore>(device));
    arenas_.push_back(std::make_unique<compute::Arena>(device));
  }
}

Replicas::Key Replicas::KeyOf(Mode mode, StepPart part, const BatchShare& share) {
  Key key = {static_cast<int64_t>(mode), static_cast<int64_t>(part)};
  if (part != StepPart::kUpdate) AppendKey(share, key);
  return key;
}

absl::StatusOr<std::shared_ptr<const BuiltModel>> Replicas::BuiltFor(Mode mode, StepPart part,
                                                                     const data::ElementSpec& spec,
                                                                     const BatchShare& share,
                                                                     const PrepareFn& prepare) {
  std::weak_ptr<const BuiltModel>& built = models_[KeyOf(mode, part, share)];
  if (auto there = built.lock()) return there;
  BuildOptions options{.loss_scale = loss_scale_,
                       .has_examples = share.examples.size() > 0,
                       .num_replicas = strategy_.num_replicas_in_sync(),
                       .part = part,
                       .pack_sizes = strategy_.pack_sizes()};
  if (mode == Mode::kTrain && strategy_.servers() != nullptr) {
    options.server_update = ServerUpdate{.num_servers = strategy_.servers()->num_servers(), .server = std::nullopt};
  }
  ASSIGN_OR_RETURN(BuiltModel model, BuildModel(model_, mode, dtype_, TypesOfShare(spec, share), options));
  RETURN_IF_ERROR(prepare(*model.graph));
  auto made = std::make_shared<const BuiltModel>(std::move(model));
  built = made;
  return made;
}

absl::StatusOr<ReplicatedProgram> Replicas::ProgramsForShares(const Division& division, const data::ElementSpec& spec,
                                                              const PrepareFn& prepare) {
  const Mode mode = division.mode;
  const StepPart part = division.part;
  const std::vector<BatchShare>& shares = division.local;
  if (MustBeAlike(mode, part)) RETURN_IF_ERROR(CheckAlike(shares));
  // An entry for each replica; without a model where its program is there.
  std::vector<Key> keys;
  std::vector<CompiledModel> missing(shares.size());
  bool compiles = false;
  for (size_t r = 0; r < shares.size(); ++r) {
    keys.push_back(KeyOf(mode, part, shares[r]));
    if (compiled_[r].count(keys[r]) > 0) continue;
    ASSIGN_OR_RETURN(missing[r].model, BuiltFor(mode, part, spec, shares[r], prepare));
    compiles = true;
  }
  if (strategy_.has_other_workers() && choices_ != nullptr && mode != Mode::kPredict) {
    RETURN_IF_ERROR(CompileAsChief(division, spec, prepare, missing));
  } else if (compiles) {
    RETURN_IF_ERROR(Compile(mode, missing));
  }
  ReplicatedProgram program;
  for (size_t r = 0; r < shares.size(); ++r) {
    std::map<Key, CompiledModel>& compiled = compiled_[r];
    if (missing[r].model != nullptr) {
      if (compiled.size() >= max_programs_) {
        std::erase_if(compiled, [](const auto& entry) { return entry.second.program.use_count() <= 1; });
      }
      compiled[keys[r]] = std::move(missing[r]);
    }
    program.replicas.push_back({compiled.at(keys[r])});
  }
  return program;
}

absl::Status Replicas::Compile(Mode mode, std::vector<CompiledModel>& programs) {
  const logs::TaskProgress progress({.title = mode == Mode::kTrain  ? "preparing the training"
                                              : mode == Mode::kEval ? "preparing the evaluation"
                                                                    : "preparing the prediction"});
  RETURN_IF_ERROR(strategy_.Run([&](int r) -> absl::Status {
    // What follows may wait for the device, where nobody sees that the sums of its last runs no longer come.
    if (strategy_.device(r).communicator() != nullptr) RETURN_IF_ERROR(strategy_.device(r).Synchronize());
    if (r >= static_cast<int>(programs.size()) || programs[r].model == nullptr) return absl::OkStatus();
    const BuiltModel& model = *programs[r].model;
    if (mode == Mode::kEval && !model.has_examples) return absl::OkStatus();
    ASSIGN_OR_RETURN(programs[r].program,
                     compute::Program::Compile(*model.graph, model.roots, strategy_.device(r), *stores_[r],
                                               {.choices = choices_, .arena = arenas_[r].get()}));
    if (model.row_groups.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(programs[r].row_ids,
                     compute::Program::Compile(*model.graph, model.row_ids, strategy_.device(r), *stores_[r]));
    return absl::OkStatus();
  }));
  if (const BuiltModel* const model = programs[0].model.get();
      model != nullptr && model->settle != nullptr && settle_ == nullptr) {
    ASSIGN_OR_RETURN(settle_,
                     compute::Program::Compile(*model->graph, {.feeds = {}, .fetches = {}, .targets = {model->settle}},
                                               strategy_.device(0), *stores_[0]));
  }
  return absl::OkStatus();
}

absl::Status Replicas::CompileAsChief(const Division& division, const data::ElementSpec& spec, const PrepareFn& prepare,
                                      std::vector<CompiledModel>& programs) {
  if (strategy_.is_chief()) {
    absl::Status status = Compile(division.mode, programs);
    if (status.ok()) status = ChooseForOthers(division, spec, prepare);
    const auto choices = [&]() -> absl::StatusOr<std::string> {
      RETURN_IF_ERROR(status);
      return choices_->ToText();
    };
    return strategy_.FromChief(choices()).status();
  }
  ASSIGN_OR_RETURN(const std::string choices, strategy_.FromChief(""));
  RETURN_IF_ERROR(choices_->Parse(choices));
  return Compile(division.mode, programs);
}

absl::Status Replicas::ChooseForOthers(const Division& division, const data::ElementSpec& spec,
                                       const PrepareFn& prepare) {
  const Mode mode = division.mode;
  const StepPart part = division.part;
  if (part == StepPart::kUpdate) return absl::OkStatus();  // the same for all shares
  std::set<Key> known;
  for (const auto* shares : {&division.local, &division.others}) {
    for (const BatchShare& share : *shares) {
      const Key key = KeyOf(mode, part, share);
      const bool is_new = known.insert(key).second && compiled_[0].count(key) == 0;
      if (shares == &division.local || !is_new) continue;
      // Compiling chooses; the program itself is of no use here.
      std::vector<CompiledModel> programs(1);
      ASSIGN_OR_RETURN(programs[0].model, BuiltFor(mode, part, spec, share, prepare));
      RETURN_IF_ERROR(Compile(mode, programs));
    }
  }
  return absl::OkStatus();
}

absl::Status Replicas::Settle() {
  return settle_ == nullptr ? absl::OkStatus() : strategy_.RunAlone(0, [&] { return settle_->Run({}); });
}

bool Replicas::MustBeAlike(Mode mode, StepPart part) const {
  const bool sums = part == StepPart::kWhole || (part == StepPart::kMicroBatch && model_.synchronizes);
  return sums_in_programs_ && mode == Mode::kTrain && sums;
}

void Replicas::DivideBatch(Mode mode, StepPart part, const data::Batch& batch, int micro_batch,
                           Division& division) const {
  const bool predicts = mode == Mode::kPredict;  // with one replica alone, where it is asked
  const int num_replicas = predicts ? 1 : strategy_.num_replicas_in_sync();
  const compute::Share local = predicts ? compute::Share{0, 1} : strategy_.local_replicas();
  const int parts = part == StepPart::kMicroBatch ? micro_batches_ * num_replicas : num_replicas;
  division.mode = mode;
  division.part = part;
  division.local.clear();
  division.others.clear();
  division.key.assign({static_cast<int64_t>(mode), static_cast<int64_t>(part)});
  division.weight = 0;
  division.has_placeholders = false;
  const bool alike = MustBeAlike(mode, part);
  for (int r = 0; r < num_replicas; ++r) {
    // An update has no examples, but is made like a program that has one; what it fetches is the same everywhere.
    const compute::Share examples = part == StepPart::kUpdate
                                        ? compute::Share{0, 1}
                                        : compute::ShareOf(batch.num_examples, micro_batch * num_replicas + r, parts);
    // A replica that has no examples of a batch of few computes one of another without weight.
    const bool is_placeholder = alike && examples.size() == 0;
    BatchShare share =
        share_(mode, batch, is_placeholder ? compute::Share{0, 1} : examples, /*parts_alike=*/alike ? parts : 0);
    if (is_placeholder) share.weight = 0;
    division.has_placeholders = division.has_placeholders || is_placeholder;
    if (part == StepPart::kUpdate) share.weight = 1;
    division.weight += share.weight;
    // That of the shares of all: workers have the same keys, and ask for their programs at the same steps.
    if (part != StepPart::kUpdate) AppendKey(share, division.key);
    (r >= local.begin && r < local.end ? division.local : division.others).push_back(std::move(share));
  }
}

absl::StatusOr<ReplicatedProgram*> Replicas::ProgramFor(Mode mode, const data::ElementSpec& spec,
                                                        const data::Batch& batch, const PrepareFn& prepare,
                                                        std::optional<int> micro_batch) {
  const bool is_whole = mode != Mode::kTrain || !updates_apart();
  const StepPart part = is_whole ? StepPart::kWhole : micro_batch ? StepPart::kMicroBatch : StepPart::kUpdate;
  Division& division = division_;
  DivideBatch(mode, part, batch, micro_batch.value_or(0), division);
  auto found = programs_.find(division.key);
  if (found == programs_.end()) {
    ASSIGN_OR_RETURN(ReplicatedProgram program, ProgramsForShares(division, spec, prepare));
    if (programs_.size() >= max_programs_) {
      programs_.erase(std::min_element(programs_.begin(), programs_.end(), [](const auto& a, const auto& b) {
        return a.second.last_asked < b.second.last_asked;
      }));
      std::erase_if(models_, [](const auto& entry) { return entry.second.expired(); });
    }
    found = programs_.emplace(division.key, std::move(program)).first;
  }
  ReplicatedProgram& program = found->second;
  if (division.has_placeholders && !program.model().metrics.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.num_examples,
                                                   " examples leaves a device without "
                                                   "any, and ",
                                                   model_.name,
                                                   " counts metrics of each device; train on fewer devices"));
  }
  program.last_asked = ++asked_;
  program.weight = division.weight;
  if (part == StepPart::kMicroBatch) {
    const BatchShare whole = share_(mode, batch, {0, batch.num_examples}, /*parts_alike=*/0);
    program.micro_batch_weight = static_cast<float>(division.weight) / static_cast<float>(whole.weight);
  }
  for (size_t r = 0; r < division.local.size(); ++r) program.replicas[r].share = std::move(division.local[r]);
  return &program;
}

absl::StatusOr<bool> Replicas::Record(ReplicatedProgram& program) {
  std::vector<compute::Program*> programs(strategy_.num_local_replicas(), nullptr);
  bool is_due = false;
  for (size_t r = 0; r < program.replicas.size(); ++r) {
    programs[r] = program.replicas[r].program.get();
    is_due = is_due || (programs[r] != nullptr && programs[r]->RecordingIsDue());
  }
  std::vector<absl::Status> made(programs.size());
  if (is_due) {
    RETURN_IF_ERROR(strategy_.Run([&](int r) {
      if (programs[r] != nullptr && programs[r]->RecordingIsDue()) made[r] = programs[r]->Record();
      return absl::OkStatus();
    }));
  }
  if (const auto failed = std::find_if_not(made.begin(), made.end(), [](const absl::Status& s) { return s.ok(); });
      failed != made.end()) {
    const int r = static_cast<int>(failed - made.begin());
    RETURN_IF_ERROR(compute::Program::HandleNoRecording(*failed, strategy_.device(r)));
    for (int d = 0; d < strategy_.num_local_replicas(); ++d) {
      strategy_.device(d).set_recordings(compute::Recordings::kOff);
    }
  }
  return std::all_of(programs.begin(), programs.end(),
                     [](const compute::Program* p) { return p == nullptr || p->has_recording(); });
}

absl::Status Replicas::CreateVariables(const compute::Graph& graph, uint64_t seed) {
  RETURN_IF_ERROR(stores_[0]->Create(graph, seed));
  return strategy_.Run([&](int r) { return r > 0 ? stores_[r]->Create(graph, seed) : absl::OkStatus(); });
}

void Replicas::RemoveVariable(absl::string_view name) {
  for (const auto& store : stores_) store->Remove(name);
}

absl::Status Replicas::Write(absl::string_view name, const Tensor& value) {
  for (const auto& store : stores_) {
    const bool is_shared = store != stores_[0] && store->data(name) == stores_[0]->data(name);
    if (!is_shared) RETURN_IF_ERROR(store->Write(name, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Replicas::MeanFetch(const ReplicatedProgram& program, int i) const {
  std::vector<double> parts;
  for (const ReplicatedProgram::Replica& replica : program.replicas) {
    parts.push_back(0);
    if (replica.share.weight == 0) continue;
    ASSIGN_OR_RETURN(const Tensor value, replica.program->Fetch(i));
    parts.back() = double{program.Weight(replica)} * value.scalar<float>();
  }
  ASSIGN_OR_RETURN(parts, strategy_.Gather(std::move(parts)));
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

absl::StatusOr<data::Tensors> Replicas::FetchPredictions(const ReplicatedProgram::Replica& replica) const {
  data::Tensors predictions;
  for (size_t i = 1; i < replica.model->fetch_names.size(); ++i) {  // behind the loss
    ASSIGN_OR_RETURN(predictions.emplace_back(), replica.program->Fetch(static_cast<int>(i)));
  }
  return predictions;
}

absl::StatusOr<std::vector<ShareResults>> Replicas::GatherPredictions(const ReplicatedProgram& program) const {
  std::vector<ShareResults> own;
  for (const ReplicatedProgram::Replica& replica : program.replicas) {
    if (replica.program == nullptr) continue;
    ASSIGN_OR_RETURN(data::Tensors predictions, FetchPredictions(replica));
    own.push_back({replica.share.labels, std::move(predictions)});
  }
  if (!strategy_.has_other_workers()) return own;
  ASSIGN_OR_RETURN(const std::vector<std::string> given, strategy_.GatherBytes(BytesOf(own)));
  std::vector<ShareResults> all;
  for (const std::string& bytes : given) {
    ASSIGN_OR_RETURN(std::vector<ShareResults> results, ShareResultsFrom(bytes));
    for (ShareResults& of_share : results) all.push_back(std::move(of_share));
  }
  return all;
}

absl::StatusOr<double> Replicas::MetricValue(const BuiltModel::Metric& metric) const {
  std::vector<double> parts;
  for (const auto& store : stores_) {
    ASSIGN_OR_RETURN(const Tensor t, store->Read(metric.total));
    ASSIGN_OR_RETURN(const Tensor c, store->Read(metric.count));
    parts.insert(parts.end(), {t.scalar<float>(), c.scalar<float>()});
  }
  ASSIGN_OR_RETURN(parts, strategy_.Gather(std::move(parts)));
  double total = 0, count = 0;
  for (size_t i = 0; i < parts.size(); i += 2) {
    total += parts[i];
    count += parts[i + 1];
  }
  return total / count;
}

absl::Status Replicas::ResetSums() {
  for (const compute::VariableSpec& spec : variables()) {
    if (IsLocal(spec)) RETURN_IF_ERROR(Write(spec.name, Tensor(spec.type)));
  }
  return absl::OkStatus();
}

absl::Status Replicas::CompileChecksums() {
  std::vector<compute::VariableSpec> specs = variables();
  std::erase_if(specs, [&](const compute::VariableSpec& spec) { return IsLocal(spec); });
  if (strategy_.shares_memory() && !strategy_.has_other_workers()) {
    std::erase_if(specs, [&](const compute::VariableSpec& spec) {
      return stores_[1]->data(spec.name) == stores_[0]->data(spec.name);
    });
  }
  if (specs.size() == checked_.size()) return absl::OkStatus();  // prepared variables are never removed
  checked_ = std::move(specs);
  compute::Graph graph;
  std::vector<compute::Value> values;
  for (const compute::VariableSpec& spec : checked_) values.push_back(graph.Variable(spec));
  const compute::GraphRoots roots = {.feeds = {}, .fetches = {compute::Checksum(values)}, .targets = {}};
  checksums_.clear();
  checksums_.resize(stores_.size());
  return strategy_.Run([&](int r) -> absl::Status {
    ASSIGN_OR_RETURN(checksums_[r], compute::Program::Compile(graph, roots, strategy_.device(r), *stores_[r]));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<int64_t>> Replicas::ChecksumsOfAll() {
  std::vector<int64_t> own(stores_.size() * checked_.size());
  RETURN_IF_ERROR(strategy_.Run([&](int r) -> absl::Status {
    RETURN_IF_ERROR(checksums_[r]->Run({}, {.replay = false}));
    ASSIGN_OR_RETURN(const Tensor sums, checksums_[r]->Fetch(0));
    std::copy_n(sums.data<int64_t>(), checked_.size(), own.begin() + r * checked_.size());
    return absl::OkStatus();
  }));
  return strategy_.Gather(std::move(own));
}

absl::Status Replicas::CheckEqual() {
  if (strategy_.num_replicas_in_sync() == 1) return absl::OkStatus();
  RETURN_IF_ERROR(CompileChecksums());
  if (checked_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> sums, ChecksumsOfAll());
  const size_t n = checked_.size();
  for (size_t i = n; i < sums.size(); ++i) {
    if (sums[i] == sums[i % n]) continue;
    return absl::InternalError(absl::StrCat("variable ", checked_[i % n].name,
                                            " is no longer the same on replica 0 and replica ", i / n,
                                            "; the last checkpoint is from before. Memory or a device may be faulty"));
  }
  return absl::OkStatus();
}

}  // namespace official::train
