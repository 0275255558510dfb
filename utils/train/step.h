// The step: what a model computes for a batch in each of the three modes, as a graph. A training step is, in this order
// (step.cc): the model's forward pass; backward; accumulate, with several micro-batches; reduce, with several replicas;
// check that all is finite; update.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/compute/core/loss_scale.h"
#include "utils/compute/kernel/communicator.h"
#include "utils/compute/program/program.h"
#include "utils/data/dataset.h"
#include "utils/distribute/placement.h"
#include "utils/distribute/shards.h"
#include "utils/train/model.h"

namespace official::train {

// The name of the variable that counts steps, and the prefix of those that sum metrics over steps or gradients over the
// micro-batches of a step. Each device has its own sums, which are not saved.
inline constexpr char kGlobalStep[] = "global_step";
inline constexpr char kLocalPrefix[] = "_local/";
// The names of the variables of a dynamic loss scale.
inline constexpr char kLossScale[] = "_run/loss_scale";
inline constexpr char kGoodSteps[] = "_run/good_steps";

// Returns the variable that holds the moving average of another one.
compute::VariableSpec AverageOf(const compute::VariableSpec& variable);

// The part of a step that a training program computes. With gradient accumulation a step has several
// micro-batches: their programs sum their results, and one program for the update uses the sums.
enum class StepPart { kWhole, kMicroBatch, kUpdate };

// How many rows of each table an update takes: the same number of all, but none of some.
struct RowCounts {
  int64_t num_rows = 0;
  std::vector<bool> has_none = {};  // by group of tables of the server; empty: false for all

  int64_t Of(size_t group) const { return group < has_none.size() && has_none[group] ? 0 : num_rows; }
  friend auto operator<=>(const RowCounts&, const RowCounts&) = default;
};

// The part of the update that a task of a job with parameter servers computes.
// The first variable that is placed is global_step, the others follow as they are created, each as its shards.
struct ServerUpdate {
  int num_servers = 1;
  distribute::Placement placement = distribute::Placement::kRoundRobin;
  distribute::Partitioner partitioner = nullptr;  // null: each variable is whole
  // For a server: the number of row numbers, and of gradients, that an update takes for each table.
  RowCounts rows = {};
  // The server, which updates what is placed on it from the sums of a worker. Nothing: a worker, which only checks its
  // sums and computes what is shown of them.
  std::optional<int> server;
};

// The role of an input of a built model: the value that it is fed. A prediction has features, an evaluation features
// and then labels; the other roles are for training. Those up to kMicroBatchWeight need has_examples or stands_in.
// Weights are in [0, 1].
enum class Feed {
  kFeature,           // the next feature of the share
  kLabel,             // the next label of the share
  kRandomState,       // int64 [3]: the seed, the global step before this one and the first example of the share
  kReplicaWeight,     // float32 scalar: with several replicas, ReplicatedProgram::Weight; 0 if the model stands_in
  kMicroBatchWeight,  // float32 scalar: ReplicatedProgram::micro_batch_weight
  kAdd,               // bool scalar, for a micro-batch: true if it is not the first of the step
  kRowPlaces,         // int32 [n], for a micro-batch: the places of the row numbers of the next of row_groups
  kLearningRate,      // float32 scalar, not for a micro-batch
  kRowIds,            // int32 [rows], for a server: the row numbers for the next of placed.row_groups
  kRowGradients,      // float32 [rows, ...], for a server: the gradients for the next table of that group
};

// A mode of a model for the examples of one replica, built but not compiled.
struct BuiltModel {
  std::unique_ptr<compute::Graph> graph;
  compute::GraphRoots roots;
  std::vector<Feed> feed_roles;  // of roots.feeds
  void AddFeed(compute::Value input, Feed role) {
    roots.feeds.push_back(input);
    feed_roles.push_back(role);
  }
  StepPart part = StepPart::kWhole;
  // The names of the fetches. Training: "loss" and the logged values (a micro-batch has none, and the update those of
  // the whole step); evaluation: "loss" and, with host metrics or samples, the predictions; prediction: the
  // predictions.
  std::vector<std::string> fetch_names;
  std::vector<std::string> fetch_tags;  // tags in event files
  // The index of one more fetch with a dynamic loss scale, a bool scalar: true if the step updated the variables.
  std::optional<int> updated_fetch;
  struct Metric {
    std::string name, summary_tag;
    std::string total, count;  // float32 scalar variables: sums of this replica
  };
  std::vector<Metric> metrics;
  // False for a replica without a share in the batch: it adds zeros to the gradients and updates its variables with the
  // sums of the others.
  bool has_examples = true;
  // True for a replica without a share when the model synchronizes: the program is fed as one for a single example.
  // Training only.
  bool stands_in = false;
  // Tables that a worker reads and sends by rows, at the same row numbers. `index` counts these groups in the model,
  // and `places` the tables of the group in the model, of which a server may have a part: some of them or, of all that
  // are here, the shards from row `first_row` on. Its row numbers count from there.
  struct RowGroup {
    int index;
    std::vector<compute::VariableSpec> tables;
    std::vector<int> places;
    int64_t first_row = 0;
    int64_t num_rows() const { return tables[0].type.shape.dim(0); }
    // True for a row number of the model's tables that is among the rows.
    bool Has(int64_t id) const { return id >= first_row && id < first_row + num_rows(); }
  };
  // For a micro-batch: all groups, and what computes their row numbers, int32 [n] each, from features and labels. The
  // feeds kRowPlaces are, for each group, the place of each number in a list of different ones; and the fetches, for
  // each table, float32 [n, ...], the sum of the gradients for each place of that list.
  std::vector<RowGroup> row_groups;
  compute::GraphRoots row_ids;
  // The variables that are placed on a parameter server, for its update: those of the model, without `tables` also
  // those that workers read as a whole; those that the update adds to them, such as the slots of an optimizer; and the
  // sums that it takes. The feeds that follow the learning rate are, for each group, row numbers int32 [rows], and for
  // each of its tables so many gradients.
  struct Placed {
    std::vector<compute::VariableSpec> variables, whole, slots, sums;
    std::vector<RowGroup> row_groups;
    // Of those that are shards, by their name on the server: which rows of which variable of the worker they are.
    struct Shard {
      std::string variable;
      int64_t first_row;
    };
    std::map<std::string, Shard> shards;
  } placed;
  // Applies the updates of variables that training has deferred (deferred_adam.h); nullptr if it defers none.
  compute::Node* settle = nullptr;
  // For a server that defers updates: applies those of the rows in the feeds that `placed` has; else nullptr.
  compute::Node* catch_up = nullptr;
};

// What the program is for, beyond the mode.
struct BuildOptions {
  compute::LossScale loss_scale = {};
  bool has_examples = true;
  int num_replicas = 1;
  StepPart part = StepPart::kWhole;
  std::optional<compute::PackSizes> pack_sizes = std::nullopt;
  // For a micro-batch or an update in a job with parameter servers.
  std::optional<ServerUpdate> server_update = std::nullopt;
};

// Builds the program of a mode. With several replicas the gradients are those of the mean loss over the global batch:
// each replica's are multiplied by its weight, its share of the examples, and summed over all replicas, in packs of
// `pack_sizes` or else in `num_replicas` packs. For 1, 2 and 4 replicas the sums over the batch consist of the same
// parts (core/batch_parts.h). The results of a micro-batch are also multiplied by its weight, its part of the batch,
// and summed over the micro-batches before the replicas. An update has no examples; its graph contains that of a
// micro-batch, so that it knows the sums. `types` are the names and types of the tensors of a BatchShare. Without
// examples, for several replicas only, they are those of one example; a program for an evaluation then has nothing to
// compute.
// InvalidArgument if a server would have nothing to update, or the model clips by the norm of the gradients or has
// moving averages of the variables in a job with parameter servers.
absl::StatusOr<BuiltModel> BuildModel(const Model& model, Mode mode, compute::DType dtype,
                                      const data::ElementSpec& types, const BuildOptions& options = {});

// Returns the model for prediction on a batch of one example in float32. `spec` is that of the example.
absl::StatusOr<BuiltModel> BuildForExport(const Model& model, const data::ElementSpec& spec);

// Returns `spec` with a dimension for `batch_size` examples in front of each type.
data::ElementSpec Batched(data::ElementSpec spec, int64_t batch_size);
// Returns the names and types of a share's tensors: names from `spec`, where it has as many, else numbers.
data::ElementSpec TypesOfShare(const data::ElementSpec& spec, const BatchShare& share);

}  // namespace official::train
