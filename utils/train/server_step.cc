#include "utils/train/server_step.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/ops/array/array.h"
#include "utils/compute/ops/loss_scale/loss_scale.h"
#include "utils/distribute/placement.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Graph;
using compute::Node;
using compute::TensorType;
using compute::Value;

// The tables for which `has` is true.
BuiltModel::RowGroup GroupOf(const RowReads& reads, size_t index, const std::function<bool(Value)>& has) {
  BuiltModel::RowGroup group{.index = static_cast<int>(index), .tables = {}, .places = {}};
  for (size_t i = 0; i < reads.tables.size(); ++i) {
    if (!has(reads.tables[i])) continue;
    const Node& node = *reads.tables[i].node();
    group.tables.push_back(node.graph().variable(node));
    group.places.push_back(static_cast<int>(i));
  }
  return group;
}

}  // namespace

void SeparateTables(TrainingStep& step) {
  if (!step.server_update || !step.server_update->by_rows || !step.model.gradient_norm_tag.empty()) return;
  step.row_reads = FindRowReads(step.graph(), step.variables, step.results.gradients, step.examples);
  std::vector<Value> variables, gradients;
  for (size_t i = 0; i < step.variables.size(); ++i) {
    const auto has = [&](const RowReads& reads) {
      return std::count(reads.tables.begin(), reads.tables.end(), step.variables[i]) > 0;
    };
    if (std::any_of(step.row_reads.begin(), step.row_reads.end(), has)) continue;
    variables.push_back(step.variables[i]);
    gradients.push_back(step.results.gradients[i]);
  }
  step.variables = std::move(variables);
  step.results.gradients = std::move(gradients);
}

void SumRows(TrainingStep& step) {
  Graph& graph = step.graph();
  BuiltModel& built = step.built;
  for (size_t g = 0; g < step.row_reads.size(); ++g) {
    const RowReads& reads = step.row_reads[g];
    built.row_groups.push_back(GroupOf(reads, g, [](Value) { return true; }));
    built.row_ids.fetches.push_back(reads.ids);
    const Value places = graph.Input(absl::StrCat("row_places/", g), reads.ids.type());
    built.roots.feeds.push_back(places);
    for (const Value& gradient : reads.gradients) {
      const Value rows = gradient.node()->input(compute::indexed_slices::kRows);
      built.roots.fetches.push_back(compute::IndexedSlices(places, rows, rows.shape()));
    }
  }
  if (built.roots.fetches.empty()) return;
  built.row_ids.feeds = step.examples;
  if (const Value finite = compute::AllFinite(built.roots.fetches)) built.roots.targets.push_back(finite.node());
}

absl::Status KeepPlaced(TrainingStep& step) {
  BuiltModel& built = step.built;
  const auto [num_servers, placement, by_rows, num_rows, server] = *step.server_update;
  std::vector<compute::VariableSpec> specs;
  std::vector<int64_t> num_bytes = {sizeof(int64_t)};  // of global_step
  for (const compute::VariableSpec& spec : step.graph().variables()) {
    if (absl::StartsWith(spec.name, kLocalPrefix)) continue;
    specs.push_back(spec);
    num_bytes.push_back(spec.type.num_bytes());
  }
  const std::vector<int> servers = distribute::PlaceVariables(placement, num_bytes, num_servers);
  std::set<std::string> placed;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (servers[1 + i] != *server) continue;
    placed.insert(specs[i].name);
    built.placed.variables.push_back(specs[i]);
  }
  Results kept;
  std::vector<Value> variables;
  std::vector<compute::MovingAverage> moving_averages;
  const auto is_placed = [&](Value variable) { return placed.count(variable.node()->name()) > 0; };
  for (size_t i = 0; i < step.variables.size(); ++i) {
    if (!is_placed(step.variables[i])) continue;
    variables.push_back(step.variables[i]);
    kept.gradients.push_back(step.results.gradients[i]);
  }
  for (size_t i = 0; i < step.moving_averages.size(); ++i) {
    if (!is_placed(step.moving_averages[i].variable)) continue;
    moving_averages.push_back(step.moving_averages[i]);
    kept.moving_averages.push_back(step.results.moving_averages[i]);
  }
  std::set<std::string> tables;
  for (size_t g = 0; g < step.row_reads.size(); ++g) {
    BuiltModel::RowGroup group = GroupOf(step.row_reads[g], g, is_placed);
    if (group.tables.empty()) continue;
    for (const compute::VariableSpec& table : group.tables) tables.insert(table.name);
    built.placed.row_groups.push_back(std::move(group));
  }
  std::copy_if(built.placed.variables.begin(), built.placed.variables.end(), std::back_inserter(built.placed.whole),
               [&](const compute::VariableSpec& spec) { return tables.count(spec.name) == 0; });
  if (kept.All().empty() && tables.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the cluster has ", num_servers, " ps, and of the ", specs.size(), " variables of model ", step.model.name,
        placement == distribute::Placement::kGreedy ? ", which are placed on them by their sizes, ps "
                                                    : ", which are placed on them in turn, ps ",
        *server, " has none that training changes; use fewer ps"));
  }
  step.results = std::move(kept);
  step.variables = std::move(variables);
  step.moving_averages = std::move(moving_averages);
  for (const Value& sum : step.results.All()) built.placed.sums.push_back(step.graph().variable(*sum.node()));
  // What is shown is of the worker.
  built.fetch_names.clear();
  built.fetch_tags.clear();
  return absl::OkStatus();
}

void FeedRows(TrainingStep& step) {
  Graph& graph = step.graph();
  BuiltModel& built = step.built;
  const int64_t num_rows = step.server_update->num_rows;
  for (const BuiltModel::RowGroup& group : built.placed.row_groups) {
    const Value ids = graph.Input(absl::StrCat("row_ids/", group.index), {DType::kInt32, {num_rows}});
    built.roots.feeds.push_back(ids);
    for (const compute::VariableSpec& table : group.tables) {
      TensorType type = table.type;
      type.shape.set_dim(0, num_rows);
      const Value rows = graph.Input(absl::StrCat("rows/", table.name), type);
      built.roots.feeds.push_back(rows);
      step.variables.push_back(graph.Variable(table));
      step.results.gradients.push_back(compute::IndexedSlices(ids, rows, table.type.shape));
    }
  }
}

void AppendTables(const TrainingStep& step, std::vector<compute::VariableGradient>& gradients) {
  for (const RowReads& reads : step.row_reads) {
    for (size_t i = 0; i < reads.tables.size(); ++i) gradients.push_back({reads.tables[i], reads.gradients[i]});
  }
}

}  // namespace official::train
