#include "utils/train/replicas.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/data/records/crc32c.h"

namespace official::train {

using compute::Tensor;

namespace {

// Rows [begin, end) of the first dimension: a view.
Tensor Rows(const Tensor& tensor, const compute::Share& share) {
  compute::TensorType type = tensor.type();
  const int64_t row_bytes = type.num_bytes() / std::max<int64_t>(1, type.shape.dim(0));
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims[0] = share.size();
  type.shape = compute::Shape(dims);
  return Tensor(type, static_cast<char*>(tensor.raw_data()) + share.begin * row_bytes);
}

bool IsLocal(const compute::VariableSpec& spec) { return absl::StartsWith(spec.name, kLocalPrefix); }

}  // namespace

float ReplicatedProgram::Weight(const Replica& replica) const {
  const auto own = static_cast<float>(replica.share.size()), all = static_cast<float>(replicas.back().share.end);
  const float each = 1 / all, nearest = own / all;
  for (const float weight : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, 2.0f)}) {
    if (weight / own == each) return weight;
  }
  return nearest;
}

absl::StatusOr<double> ReplicatedProgram::MeanFetch(int i) const {
  double mean = 0;
  for (const Replica& replica : replicas) {
    if (replica.share.size() == 0) continue;
    ASSIGN_OR_RETURN(const Tensor value, replica.program->Fetch(i));
    mean += double{Weight(replica)} * value.scalar<float>();
  }
  return mean;
}

void AppendRows(const data::Batch& batch, const compute::Share& share, std::vector<Tensor>& feeds) {
  const bool all = share.size() == batch.num_examples;
  if (share.size() == 0) {
    for (const auto* tensors : {&batch.features, &batch.labels}) {
      for (const Tensor& tensor : *tensors) feeds.emplace_back(Rows(tensor, {0, 1}).type());
    }
    return;
  }
  for (const auto* tensors : {&batch.features, &batch.labels}) {
    for (const Tensor& tensor : *tensors) feeds.push_back(all ? tensor : Rows(tensor, share));
  }
}

Replicas::Replicas(const Model& model, compute::DType dtype, const compute::LossScale& loss_scale,
                   distribute::Strategy& strategy, compute::AlgorithmChoices* choices)
    : model_(model), dtype_(dtype), loss_scale_(loss_scale), strategy_(strategy), choices_(choices) {
  const int n = strategy.num_replicas();
  for (int r = 0; r < n; ++r) {
    compute::Device& device = strategy.device(r);
    stores_.push_back(strategy.shares_memory()
                          ? std::make_unique<compute::VariableStore>(device, r > 0 ? stores_[0].get() : nullptr,
                                                                     compute::UpdatePart{r, n})
                          : std::make_unique<compute::VariableStore>(device));
  }
}

absl::StatusOr<const BuiltModel*> Replicas::BuiltFor(Mode mode, const data::ElementSpec& spec, int64_t batch_size,
                                                     const PrepareFn& prepare) {
  BuiltModel& built = models_[{mode, batch_size}];
  if (built.graph == nullptr) {
    ASSIGN_OR_RETURN(BuiltModel made,
                     BuildModel(model_, mode, dtype_, loss_scale_, spec, batch_size, strategy_.num_replicas()));
    RETURN_IF_ERROR(prepare(*made.graph));
    built = std::move(made);
  }
  return &built;
}

absl::StatusOr<ReplicatedProgram*> Replicas::ProgramFor(Mode mode, const data::ElementSpec& spec, int64_t batch_size,
                                                        const PrepareFn& prepare) {
  const auto found = programs_.find({mode, batch_size});
  if (found != programs_.end()) return &found->second;
  ReplicatedProgram program;
  const int num_replicas = mode == Mode::kPredict ? 1 : strategy_.num_replicas();
  for (int r = 0; r < num_replicas; ++r) {
    const compute::Share share = compute::ShareOf(batch_size, r, num_replicas);
    ASSIGN_OR_RETURN(const BuiltModel* const model, BuiltFor(mode, spec, share.size(), prepare));
    program.replicas.push_back({model, nullptr, share});
  }
  RETURN_IF_ERROR(strategy_.Run([&](int r) -> absl::Status {
    if (r >= num_replicas) return absl::OkStatus();
    ReplicatedProgram::Replica& replica = program.replicas[r];
    if (mode == Mode::kEval && !replica.model->has_examples) return absl::OkStatus();
    ASSIGN_OR_RETURN(replica.program,
                     compute::Program::Compile(*replica.model->graph, replica.model->roots, strategy_.device(r),
                                               *stores_[r], {.choices = choices_}));
    return absl::OkStatus();
  }));
  return &(programs_[{mode, batch_size}] = std::move(program));
}

absl::Status Replicas::CreateVariables(const compute::Graph& graph, uint64_t seed) {
  RETURN_IF_ERROR(stores_[0]->Create(graph, seed));
  return strategy_.Run([&](int r) { return r > 0 ? stores_[r]->Create(graph, seed) : absl::OkStatus(); });
}

absl::Status Replicas::Write(absl::string_view name, const Tensor& value) {
  for (const auto& store : stores_) RETURN_IF_ERROR(store->Write(name, value));
  return absl::OkStatus();
}

absl::StatusOr<double> Replicas::MetricValue(const BuiltModel::Metric& metric) const {
  double total = 0, count = 0;
  for (const auto& store : stores_) {
    ASSIGN_OR_RETURN(const Tensor t, store->Read(metric.total));
    ASSIGN_OR_RETURN(const Tensor c, store->Read(metric.count));
    total += t.scalar<float>();
    count += c.scalar<float>();
  }
  return total / count;
}

absl::Status Replicas::ResetMetrics() {
  for (const compute::VariableSpec& spec : variables()) {
    if (IsLocal(spec)) RETURN_IF_ERROR(Write(spec.name, Tensor(spec.type)));
  }
  return absl::OkStatus();
}

absl::Status Replicas::CheckEqual() {
  if (stores_.size() == 1) return absl::OkStatus();
  std::vector<compute::VariableSpec> specs = variables();
  specs.erase(std::remove_if(specs.begin(), specs.end(),
                             [&](const compute::VariableSpec& spec) {
                               return IsLocal(spec) || stores_[1]->data(spec.name) == stores_[0]->data(spec.name);
                             }),
              specs.end());
  std::vector<std::vector<uint32_t>> crcs(stores_.size(), std::vector<uint32_t>(specs.size()));
  RETURN_IF_ERROR(strategy_.Run([&](int r) -> absl::Status {
    for (size_t i = 0; i < specs.size(); ++i) {
      ASSIGN_OR_RETURN(const Tensor value, stores_[r]->Read(specs[i].name));
      crcs[r][i] = data::Crc32c({static_cast<const char*>(value.raw_data()), static_cast<size_t>(value.num_bytes())});
    }
    return absl::OkStatus();
  }));
  for (size_t r = 1; r < crcs.size(); ++r) {
    for (size_t i = 0; i < specs.size(); ++i) {
      if (crcs[r][i] == crcs[0][i]) continue;
      return absl::InternalError(
          absl::StrCat("variable ", specs[i].name, " is no longer the same on replica 0 and replica ", r,
                       "; the last checkpoint is from before. Memory or a device may be faulty"));
    }
  }
  return absl::OkStatus();
}

}  // namespace official::train
