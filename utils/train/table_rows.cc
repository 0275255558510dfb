#include "utils/train/table_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"
#include "utils/distribute/ordered_sum.h"
#include "utils/distribute/tensor_bytes.h"

namespace official::train {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kFewestRows = 16;  // of a program

int64_t WidthOf(const compute::VariableSpec& table) { return table.type.shape.Product(1, table.type.shape.rank()); }

// Takes `count` numbers from the beginning of `bytes`.
template <typename T>
absl::StatusOr<std::vector<T>> Take(int64_t count, absl::string_view& bytes) {
  const size_t size = count * sizeof(T);
  if (bytes.size() < size) return absl::DataLossError("a message between a worker and a ps is too short");
  std::vector<T> taken(count);
  if (count > 0) std::memcpy(taken.data(), bytes.data(), size);  // of nothing there may be no address
  bytes.remove_prefix(size);
  return taken;
}

template <typename T>
void Append(const std::vector<T>& numbers, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

// Adds the rows of each group to those of `sum`, which has new ones behind its own.
void AddRows(const std::vector<TableRows>& groups, std::vector<TableRows>& sums) {
  if (sums.size() < groups.size()) sums.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const TableRows& more = groups[g];
    TableRows& sum = sums[g];
    absl::flat_hash_map<int32_t, size_t> places;
    for (size_t i = 0; i < sum.ids.size(); ++i) places[sum.ids[i]] = i;
    std::vector<size_t> place_of;  // by row of `more`
    for (const int32_t id : more.ids) {
      const auto [found, is_new] = places.try_emplace(id, sum.ids.size());
      if (is_new) sum.ids.push_back(id);
      place_of.push_back(found->second);
    }
    sum.rows.resize(std::max(sum.rows.size(), more.rows.size()));
    for (size_t t = 0; t < more.rows.size() && !more.ids.empty(); ++t) {
      const size_t width = more.rows[t].size() / more.ids.size();
      sum.rows[t].resize(sum.ids.size() * width);
      for (size_t i = 0; i < place_of.size(); ++i) {
        const float* const from = more.rows[t].data() + i * width;
        float* const to = sum.rows[t].data() + place_of[i] * width;
        for (size_t j = 0; j < width; ++j) to[j] += from[j];
      }
    }
  }
}

}  // namespace

void AppendIds(const std::vector<int32_t>& ids, std::string& bytes) {
  distribute::AppendNumber(static_cast<int64_t>(ids.size()), bytes);
  Append(ids, bytes);
}

absl::StatusOr<std::vector<int32_t>> TakeIds(const BuiltModel::RowGroup& group, absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const int64_t count, distribute::TakeNumber(bytes));
  if (count < 0 || count > group.num_rows()) {
    return absl::DataLossError(absl::StrCat("a message between a worker and a ps has ", count, " rows of variable ",
                                            group.tables[0].name, ", which has ", group.num_rows()));
  }
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, Take<int32_t>(count, bytes));
  for (const int32_t id : ids) {
    if (id >= 0 && id < group.num_rows()) continue;
    return absl::DataLossError(absl::StrCat("a message between a worker and a ps has row ", id, " of variable ",
                                            group.tables[0].name, ", which has ", group.num_rows()));
  }
  return ids;
}

std::vector<int32_t> IdsIn(const BuiltModel::RowGroup& group, const std::vector<int32_t>& ids) {
  std::vector<int32_t> found;
  for (const int32_t id : ids) {
    if (group.Has(id)) found.push_back(static_cast<int32_t>(id - group.first_row));
  }
  return found;
}

void AppendRows(const TableRows& rows, const BuiltModel::RowGroup& group, std::string& bytes) {
  const std::vector<int32_t> ids = IdsIn(group, rows.ids);
  AppendIds(ids, bytes);
  for (const int place : group.places) {
    const std::vector<float>& all = rows.rows[place];
    if (ids.size() == rows.ids.size()) {
      Append(all, bytes);
      continue;
    }
    const size_t width = all.size() / rows.ids.size();
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      if (group.Has(rows.ids[i])) {
        bytes.append(reinterpret_cast<const char*>(all.data() + i * width), width * sizeof(float));
      }
    }
  }
}

absl::StatusOr<std::vector<TableRows>> TakeAllRows(const RowGroups& groups, absl::string_view bytes) {
  std::vector<TableRows> all;
  for (const BuiltModel::RowGroup& group : groups) {
    TableRows& taken = all.emplace_back();
    ASSIGN_OR_RETURN(taken.ids, TakeIds(group, bytes));
    for (const compute::VariableSpec& table : group.tables) {
      const auto count = static_cast<int64_t>(taken.ids.size());
      ASSIGN_OR_RETURN(std::vector<float> rows, Take<float>(count * WidthOf(table), bytes));
      taken.rows.push_back(std::move(rows));
    }
  }
  if (!bytes.empty()) return absl::DataLossError("a message between a worker and a ps is too long");
  return all;
}

absl::StatusOr<std::vector<int64_t>> CountRows(const RowGroups& groups, bool has_rows, absl::string_view bytes) {
  std::vector<int64_t> counts;
  for (const BuiltModel::RowGroup& group : groups) {
    ASSIGN_OR_RETURN(const int64_t count, distribute::TakeNumber(bytes));
    int64_t width = sizeof(int32_t);
    for (const compute::VariableSpec& table : group.tables) {
      if (has_rows) width += WidthOf(table) * static_cast<int64_t>(sizeof(float));
    }
    if (count < 0 || count > std::min(group.num_rows(), static_cast<int64_t>(bytes.size()) / width)) {
      return absl::DataLossError(absl::StrCat("a message between a worker and a ps cannot have ", count, " rows"));
    }
    counts.push_back(count);
    bytes.remove_prefix(count * width);
  }
  return counts;
}

std::vector<TableRows> MeanOfRows(std::vector<std::vector<TableRows>> gradients) {
  for (size_t k = 1; k < gradients.size(); ++k) AddRows(gradients[k], gradients[0]);
  const auto count = static_cast<float>(gradients.size());
  for (TableRows& sum : gradients[0]) {
    for (std::vector<float>& rows : sum.rows) {
      for (float& number : rows) number /= count;
    }
  }
  return std::move(gradients[0]);
}

RowCounts RoundUpRows(const std::vector<TableRows>& groups) {
  std::vector<int64_t> num_rows;
  for (const TableRows& rows : groups) num_rows.push_back(static_cast<int64_t>(rows.ids.size()));
  return RoundUpRows(num_rows);
}

RowCounts RoundUpRows(const std::vector<int64_t>& num_rows) {
  RowCounts counts = {.num_rows = kFewestRows, .has_none = {}};
  for (const int64_t n : num_rows) {
    while (counts.num_rows < n) counts.num_rows *= 2;
    counts.has_none.push_back(n == 0);
  }
  const auto has_rows = [](bool none) { return !none; };
  if (std::all_of(counts.has_none.begin(), counts.has_none.end(), has_rows)) counts.has_none.clear();
  return counts;
}

std::vector<Tensor> RowFeeds(const RowGroups& groups, const std::vector<TableRows>& rows, const RowCounts& counts) {
  std::vector<Tensor> feeds;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<int32_t>& ids = rows[g].ids;
    const int64_t num_rows = counts.Of(g);
    const absl::Span<int32_t> all = feeds.emplace_back(DType::kInt32, compute::Shape{num_rows}).flat<int32_t>();
    std::copy(ids.begin(), ids.end(), all.begin());
    if (!ids.empty()) std::fill(all.begin() + static_cast<std::ptrdiff_t>(ids.size()), all.end(), ids[0]);
    for (size_t t = 0; t < rows[g].rows.size(); ++t) {
      compute::TensorType type = groups[g].tables[t].type;
      type.shape.set_dim(0, num_rows);
      const absl::Span<float> to = feeds.emplace_back(type).flat<float>();
      std::fill(std::copy(rows[g].rows[t].begin(), rows[g].rows[t].end(), to.begin()), to.end(), -0.0f);
    }
  }
  return feeds;
}

void AppendRowsOf(const BuiltModel::RowGroup& group, const std::vector<int32_t>& ids,
                  const compute::VariableStore& variables, std::string& bytes) {
  for (const compute::VariableSpec& table : group.tables) {
    const auto* const from = static_cast<const char*>(variables.data(table.name));
    const int64_t row_bytes = WidthOf(table) * static_cast<int64_t>(sizeof(float));
    const size_t at = bytes.size();
    bytes.resize(at + ids.size() * row_bytes);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(bytes.data() + at + i * row_bytes, from + ids[i] * row_bytes, row_bytes);
    }
  }
}

absl::StatusOr<size_t> WriteRows(const compute::VariableSpec& spec, const std::vector<int32_t>& ids,
                                 absl::string_view bytes, void* table) {
  const size_t row_bytes = WidthOf(spec) * sizeof(float), num_bytes = ids.size() * row_bytes;
  if (bytes.size() < num_bytes) return absl::DataLossError("a message between a worker and a ps is too short");
  for (size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(static_cast<char*>(table) + ids[i] * row_bytes, bytes.data() + i * row_bytes, row_bytes);
  }
  return num_bytes;
}

std::vector<TableRows> SumOfReplicas(std::vector<std::vector<TableRows>> replicas) {
  const auto add = [&](int a, int b) { AddRows(replicas[b], replicas[a]); };
  distribute::JoinReplicas({0, static_cast<int64_t>(replicas.size())}, add);
  return std::move(replicas[0]);
}

void StepRows::Clear() {
  groups_.clear();
  place_of_.clear();
  last_.clear();
}

absl::Status StepRows::Find(ReplicatedProgram::Replica& replica) {
  const RowGroups& groups = replica.model->row_groups;
  replica.row_places.clear();
  last_.assign(groups_.size(), {});
  if (groups.empty()) return absl::OkStatus();  // no tables, or no examples
  groups_.resize(groups.size());
  place_of_.resize(groups.size());
  last_.resize(groups.size());
  std::vector<Tensor> feeds;
  AppendTensors(replica.share, feeds);
  RETURN_IF_ERROR(replica.row_ids->Run(feeds));
  for (size_t g = 0; g < groups.size(); ++g) {
    ASSIGN_OR_RETURN(const Tensor ids, replica.row_ids->Fetch(static_cast<int>(g)));
    const absl::Span<int32_t> places = replica.row_places.emplace_back(ids.type()).flat<int32_t>();
    const int64_t num_rows = groups[g].num_rows();
    absl::flat_hash_map<int32_t, int32_t> own_place;
    for (size_t i = 0; i < places.size(); ++i) {
      const int32_t id = ids.data<int32_t>()[i];
      if (id < 0 || id >= num_rows) {
        return absl::InvalidArgumentError(absl::StrCat("the batch reads row ", id, " of variable ",
                                                       groups[g].tables[0].name, ", which has ", num_rows));
      }
      const auto [own, is_new] = own_place.try_emplace(id, static_cast<int32_t>(last_[g].size()));
      places[i] = own->second;
      if (!is_new) continue;
      const auto [place, is_new_in_step] = place_of_[g].try_emplace(id, groups_[g].ids.size());
      if (is_new_in_step) groups_[g].ids.push_back(id);
      last_[g].push_back(place->second);
    }
  }
  return absl::OkStatus();
}

absl::Status StepRows::TakeGradients(const ReplicatedProgram::Replica& replica) {
  const RowGroups& groups = replica.model->row_groups;
  int fetch = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    TableRows& group = groups_[g];
    const std::vector<compute::VariableSpec>& tables = groups[g].tables;
    group.rows.resize(tables.size());
    for (size_t t = 0; t < tables.size(); ++t) {
      ASSIGN_OR_RETURN(const Tensor sums, replica.program->Fetch(fetch++));
      if (compute::FindNonFinite(sums)) {
        return absl::OutOfRangeError(
            absl::StrCat("a row of the gradient of variable ", tables[t].name, " is not finite"));
      }
      const auto width = static_cast<size_t>(WidthOf(tables[t]));
      std::vector<float>& rows = group.rows[t];
      if (rows.empty() && last_[g].size() == group.ids.size()) {  // all rows of the step, in their order
        rows.assign(sums.data<float>(), sums.data<float>() + last_[g].size() * width);
        continue;
      }
      rows.resize(group.ids.size() * width);
      for (size_t i = 0; i < last_[g].size(); ++i) {
        const float* const from = sums.data<float>() + i * width;
        float* const to = rows.data() + last_[g][i] * width;
        for (size_t j = 0; j < width; ++j) to[j] += from[j];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace official::train
