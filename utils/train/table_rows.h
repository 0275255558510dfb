// TableRows: rows of tables in the messages between workers and parameter servers, and what both do with them. A worker
// asks for the rows that its batch reads by their numbers, and sends their gradients with the numbers (row_reads.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"
#include "utils/compute/program/variable_store.h"
#include "utils/train/replicas.h"
#include "utils/train/step.h"

namespace official::train {

// The rows of a group of tables: different numbers in [0, V), and for each table a row for each number.
struct TableRows {
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> rows;
};
using RowGroups = std::vector<BuiltModel::RowGroup>;

// ---- Messages ----

void AppendIds(const std::vector<int32_t>& ids, std::string& bytes);
// Takes row numbers from the beginning of `bytes`. DataLoss if they are not there or one is outside the group's tables.
absl::StatusOr<std::vector<int32_t>> TakeIds(const BuiltModel::RowGroup& group, absl::string_view& bytes);
// Returns those of the numbers, of rows of the model's group, that a server's part `group` of it has, as it counts
// them.
std::vector<int32_t> IdsIn(const BuiltModel::RowGroup& group, const std::vector<int32_t>& ids);
// Appends those numbers and their rows of the tables that the server has, from the model's group.
void AppendRows(const TableRows& rows, const BuiltModel::RowGroup& group, std::string& bytes);
// Returns how many rows there are of each group, if `bytes` are numbers or, with `has_rows`, numbers and rows. DataLoss
// if they are too short, or if the tables have fewer.
absl::StatusOr<std::vector<int64_t>> CountRows(const RowGroups& groups, bool has_rows, absl::string_view bytes);
// Takes numbers and rows of all groups, and nothing else. DataLoss as TakeIds, or if `bytes` has another length.
absl::StatusOr<std::vector<TableRows>> TakeAllRows(const RowGroups& groups, absl::string_view bytes);

// ---- Servers ----

// Returns, for each group, the mean over the gradients of several workers. A worker that does not have a row has a
// gradient of 0 for it.
std::vector<TableRows> MeanOfRows(std::vector<std::vector<TableRows>> gradients);
// Returns the smallest numbers of rows, of those for which programs are made, that have room for all: a power of two,
// and none for groups without rows.
RowCounts RoundUpRows(const std::vector<TableRows>& groups);
// The same for so many rows of each group.
RowCounts RoundUpRows(const std::vector<int64_t>& num_rows);
// Returns, for each group, the numbers and then the rows of each table, if `rows` has any, as feeds of so many rows.
// Further rows repeat a number, with -0, which leaves the bits of a sum as they are.
std::vector<compute::Tensor> RowFeeds(const RowGroups& groups, const std::vector<TableRows>& rows,
                                      const RowCounts& counts);
// Appends the rows that the tables have in `variables`.
void AppendRowsOf(const BuiltModel::RowGroup& group, const std::vector<int32_t>& ids,
                  const compute::VariableStore& variables, std::string& bytes);

// ---- Workers ----

// Writes the rows at the beginning of `bytes` into `table` in memory, at these numbers, and returns their size in
// bytes. DataLoss if they are not there.
absl::StatusOr<size_t> WriteRows(const compute::VariableSpec& spec, const std::vector<int32_t>& ids,
                                 absl::string_view bytes, void* table);

// Returns, for each group, the sum over the rows of several replicas of a worker, in the order in which devices sum
// dense gradients (TreeSum). A replica that does not have a row has a gradient of 0 for it. Of rows without gradients
// the result has the numbers.
std::vector<TableRows> SumOfReplicas(std::vector<std::vector<TableRows>> replicas);

// The rows that the micro-batches of a step read on one replica, and the sums of their gradients.
class StepRows {
 public:
  // Begins a step.
  void Clear();
  // Finds the rows that a micro-batch reads for the replica's share of the batch, and sets its feeds `row_places`; of
  // some that were found before it may only set the feeds again. InvalidArgument if a number is outside its tables.
  absl::Status Find(ReplicatedProgram::Replica& replica);
  // Adds the gradients of the last run of the micro-batch whose rows were found last. OutOfRange if one is not finite.
  absl::Status TakeGradients(const ReplicatedProgram::Replica& replica);
  // By group of the model; none if no rows were found.
  const std::vector<TableRows>& groups() const { return groups_; }

 private:
  std::vector<TableRows> groups_;  // the rows of all, and the sums
  // For each group where the rows are in `groups_`: by number, and for each row of the last micro-batch.
  std::vector<absl::flat_hash_map<int32_t, size_t>> place_of_;
  std::vector<std::vector<size_t>> last_;
};

}  // namespace official::train
