#include "utils/train/server_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/compute/ops/array/array.h"
#include "utils/distribute/placement.h"
#include "utils/distribute/shards.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Graph;
using compute::TensorType;
using compute::Value;
using compute::VariableSpec;

const VariableSpec& SpecOf(Value variable) { return variable.graph()->variable(*variable.node()); }

// A shard of a variable, or the whole of it.
struct Shard {
  int64_t number, num_shards;
  compute::Share rows;
};

// The shards that are placed on one server, by variable.
using Shards = std::map<std::string, std::vector<Shard>>;

// Places the variables of a model on the servers. `num_placed` is the number of shards of all of them.
absl::StatusOr<Shards> Place(const ServerUpdate& update, const std::vector<VariableSpec>& variables,
                             size_t& num_placed) {
  std::vector<std::pair<const VariableSpec*, Shard>> all;
  std::vector<int64_t> num_bytes = {sizeof(int64_t)};  // of global_step
  for (const VariableSpec& variable : variables) {
    ASSIGN_OR_RETURN(const int64_t num_shards, distribute::NumShards(update.partitioner, variable));
    const int64_t num_rows = variable.type.shape.rank() == 0 ? 1 : variable.type.shape.dim(0);
    for (int64_t i = 0; i < num_shards; ++i) {
      const compute::Share rows = distribute::RowsOfShard(num_rows, num_shards, i);
      all.push_back({&variable, {i, num_shards, rows}});
      num_bytes.push_back(num_shards == 1 ? variable.type.num_bytes()
                                          : variable.type.num_bytes() / num_rows * rows.size());
    }
  }
  num_placed = all.size();
  const std::vector<int> servers = distribute::PlaceVariables(update.placement, num_bytes, update.num_servers);
  Shards placed;
  for (size_t i = 0; i < all.size(); ++i) {
    if (servers[1 + i] == *update.server) placed[all[i].first->name].push_back(all[i].second);
  }
  return placed;
}

// A shard of the variable as a variable of its own, or the whole one. `placed` lists shards.
Value ShardOf(Value variable, const Shard& shard, BuiltModel::Placed& placed) {
  if (shard.num_shards == 1) return variable;
  VariableSpec spec = SpecOf(variable);
  const std::string whole = spec.name;
  spec.name = distribute::NameOfShard(whole, shard.number);
  spec.type.shape.set_dim(0, shard.rows.size());
  spec.initializer = compute::Initializer::Zeros();  // a worker has the values
  placed.shards[spec.name] = {whole, shard.rows.begin};
  return variable.graph()->Variable(std::move(spec));
}

// Adds table number `place` of the model's group `index` to the server's groups: to that of the same rows.
void AddTable(int index, int place, Value table, int64_t first_row, std::vector<BuiltModel::RowGroup>& groups) {
  const VariableSpec& spec = SpecOf(table);
  auto same = std::find_if(groups.begin(), groups.end(), [&](const BuiltModel::RowGroup& group) {
    return group.index == index && group.first_row == first_row && group.num_rows() == spec.type.shape.dim(0);
  });
  if (same == groups.end()) {
    same = groups.insert(groups.end(), {.index = index, .tables = {}, .places = {}, .first_row = first_row});
  }
  same->tables.push_back(spec);
  same->places.push_back(place);
}

absl::Status NothingToUpdate(const TrainingStep& step, size_t num_variables, size_t num_placed) {
  const ServerUpdate& update = *step.options.server_update;
  const std::string shards = num_placed > num_variables ? absl::StrCat(" as ", num_placed, " shards") : "";
  return absl::InvalidArgumentError(
      absl::StrCat("the cluster has ", update.num_servers, " ps, and of the ", num_variables, " variables of model ",
                   step.model.name, ", which are placed on them", shards,
                   update.placement == distribute::Placement::kGreedy ? " by their sizes, ps " : " in turn, ps ",
                   *update.server, " has none that training changes; use fewer ps"));
}

}  // namespace

void SeparateTables(TrainingStep& step) {
  if (!step.options.server_update || !step.model.gradient_norm_tag.empty()) return;
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
  if (!built.has_examples) return;
  for (size_t g = 0; g < step.row_reads.size(); ++g) {
    const RowReads& reads = step.row_reads[g];
    for (size_t i = 0; i < reads.tables.size(); ++i) {
      AddTable(static_cast<int>(g), static_cast<int>(i), reads.tables[i], /*first_row=*/0, built.row_groups);
    }
    built.row_ids.fetches.push_back(reads.ids);
    const Value places = graph.Input(absl::StrCat("row_places/", g), reads.ids.type());
    built.AddFeed(places, Feed::kRowPlaces);
    for (const Value& gradient : reads.gradients) {
      const Value rows = gradient.node()->input(compute::indexed_slices::kRows);
      built.roots.fetches.push_back(compute::IndexedSlices(places, rows, rows.shape()));
    }
  }
  if (built.roots.fetches.empty()) return;
  built.row_ids.feeds = step.examples;
}

absl::Status KeepPlaced(TrainingStep& step) {
  BuiltModel::Placed& placed = step.built.placed;
  std::vector<VariableSpec> specs;
  for (const VariableSpec& spec : step.graph().variables()) {
    if (!absl::StartsWith(spec.name, kLocalPrefix)) specs.push_back(spec);
  }
  size_t num_placed = 0;
  ASSIGN_OR_RETURN(const Shards shards, Place(*step.options.server_update, specs, num_placed));
  const auto shards_of = [&](Value variable) {
    const auto found = shards.find(SpecOf(variable).name);
    return found == shards.end() ? std::vector<Shard>() : found->second;
  };
  for (const VariableSpec& spec : specs) {
    const Value variable = step.graph().Variable(spec);
    for (const Shard& shard : shards_of(variable)) {
      placed.variables.push_back(SpecOf(ShardOf(variable, shard, placed)));
    }
  }
  Results kept;
  std::vector<Value> variables;
  std::vector<compute::MovingAverage> moving_averages;
  for (size_t i = 0; i < step.variables.size(); ++i) {
    for (const Shard& shard : shards_of(step.variables[i])) {
      variables.push_back(ShardOf(step.variables[i], shard, placed));
      kept.gradients.push_back(ShardOf(step.results.gradients[i], shard, placed));
    }
  }
  for (size_t i = 0; i < step.moving_averages.size(); ++i) {
    const auto& [variable, value] = step.moving_averages[i];
    for (const Shard& shard : shards_of(variable)) {
      moving_averages.push_back({ShardOf(variable, shard, placed), value});
      kept.moving_averages.push_back(ShardOf(step.results.moving_averages[i], shard, placed));
    }
  }
  std::set<std::string> tables;
  for (size_t g = 0; g < step.row_reads.size(); ++g) {
    const RowReads& reads = step.row_reads[g];
    for (size_t i = 0; i < reads.tables.size(); ++i) {
      for (const Shard& shard : shards_of(reads.tables[i])) {
        const Value table = ShardOf(reads.tables[i], shard, placed);
        tables.insert(SpecOf(table).name);
        AddTable(static_cast<int>(g), static_cast<int>(i), table, shard.rows.begin, placed.row_groups);
      }
    }
  }
  std::copy_if(placed.variables.begin(), placed.variables.end(), std::back_inserter(placed.whole),
               [&](const VariableSpec& spec) { return tables.count(spec.name) == 0; });
  if (kept.All().empty() && tables.empty()) return NothingToUpdate(step, specs.size(), num_placed);
  step.results = std::move(kept);
  step.variables = std::move(variables);
  step.moving_averages = std::move(moving_averages);
  for (const Value& sum : step.results.All()) placed.sums.push_back(SpecOf(sum));
  // What is shown is of the worker.
  step.built.fetch_names.clear();
  step.built.fetch_tags.clear();
  return step.graph().status();
}

absl::Status ListSlots(size_t first, TrainingStep& step) {
  BuiltModel::Placed& placed = step.built.placed;
  distribute::ShardNames names;
  for (size_t i = 0; i < placed.variables.size(); ++i) {
    const std::string& name = placed.variables[i].name;
    const auto shard = placed.shards.find(name);
    names.Add(name, {shard == placed.shards.end() ? name : shard->second.variable, static_cast<int>(i)});
  }
  const std::vector<VariableSpec>& all = step.graph().variables();
  for (size_t i = first; i < all.size(); ++i) {
    if (absl::StartsWith(all[i].name, kLocalPrefix)) continue;
    placed.slots.push_back(all[i]);
    const distribute::ShardName slot = names.Find(all[i]);
    if (slot.variable == all[i].name) continue;  // it is whole
    const VariableSpec& of = placed.variables[slot.number];
    if (all[i].type.shape != of.type.shape) {
      return absl::InvalidArgumentError(absl::StrCat("the optimizer's variable ", all[i].name, " is ",
                                                     all[i].type.ToString(), ", but has to be divided as ", of.name,
                                                     ", which is ", of.type.ToString(), "; use no partitioner"));
    }
    placed.shards[all[i].name] = {slot.variable, placed.shards[of.name].first_row};
  }
  return absl::OkStatus();
}

void FeedRows(TrainingStep& step) {
  Graph& graph = step.graph();
  BuiltModel& built = step.built;
  for (size_t g = 0; g < built.placed.row_groups.size(); ++g) {
    const BuiltModel::RowGroup& group = built.placed.row_groups[g];
    const int64_t num_rows = step.options.server_update->rows.Of(g);
    const Value ids = graph.Input(absl::StrCat("row_ids/", g), {DType::kInt32, {num_rows}});
    built.AddFeed(ids, Feed::kRowIds);
    for (const compute::VariableSpec& table : group.tables) {
      TensorType type = table.type;
      type.shape.set_dim(0, num_rows);
      const Value rows = graph.Input(absl::StrCat("rows/", table.name), type);
      built.AddFeed(rows, Feed::kRowGradients);
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
