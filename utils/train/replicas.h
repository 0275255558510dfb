// A model on the devices of a strategy: its variables, which are copied to each device or, where all compute in the
// same memory, shared; and its programs for each size of batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/batch_parts.h"
#include "utils/compute/program/program.h"
#include "utils/data/batch.h"
#include "utils/data/held_rows.h"
#include "utils/distribute/strategy.h"
#include "utils/train/model.h"
#include "utils/train/step.h"

namespace official::train {

// The model and programs of one replica for shares of one kind, whatever the others have.
struct CompiledModel {
  std::shared_ptr<const BuiltModel> model = nullptr;
  std::shared_ptr<compute::Program> program = nullptr;  // null: no share in the batch, and nothing to do without one
  // The program that computes the row numbers, for a micro-batch whose model has row_groups.
  std::shared_ptr<compute::Program> row_ids = nullptr;
};

// The programs of a worker's replicas for batches of one kind. Where there is but one worker, those are all replicas.
struct ReplicatedProgram {
  struct Replica : CompiledModel {
    BatchShare share = {};                         // its share of the batch that the program was last asked for
    std::vector<compute::Tensor> row_places = {};  // with row_ids: the last feeds of `program`
  };
  std::vector<Replica> replicas;  // local ones
  int64_t weight = 0;             // of the batch or micro-batch: the sum of those of the shares of all replicas
  float micro_batch_weight = 1;   // for a micro-batch: its part of the whole batch's weight

  int64_t last_asked = 0;

  // The model of the first replica. That of the job's first replica always has examples.
  const BuiltModel& model() const { return *replicas[0].model; }
  // Returns a replica's part, in [0, 1], of the weight of the batch or micro-batch: the weight of its mean in the
  // batch's. Divided by the replica's own weight, the number of its examples, as in the gradient of its mean, it is 1 /
  // the batch's weight as a float, if there is such a number: each example then has the same weight in the gradients as
  // on one device.
  float Weight(const Replica& replica) const;
};

// Appends the features, then the labels of a share to `feeds`.
void AppendTensors(const BatchShare& share, std::vector<compute::Tensor>& feeds);

class Replicas {
 public:
  // Makes the variables of a new graph; called before it is compiled.
  using PrepareFn = std::function<absl::Status(const compute::Graph& graph)>;

  // Training steps have `micro_batches` micro-batches. `choices`, which must outlive this: see compute::CompileOptions;
  // with several workers all have the chief's.
  Replicas(const Model& model, compute::DType dtype, const compute::LossScale& loss_scale, int micro_batches,
           distribute::Strategy& strategy, compute::AlgorithmChoices* choices);

  distribute::Strategy& strategy() const { return strategy_; }
  int micro_batches() const { return micro_batches_; }
  // True if the update of a training step is a program of its own.
  bool updates_apart() const { return micro_batches_ > 1 || strategy_.servers() != nullptr; }
  // Returns what a training batch must be a multiple of, so that all shares of it or of its micro-batches have as many
  // examples; 1 if they need not.
  int64_t batch_multiple() const {
    const bool must = MustBeAlike(Mode::kTrain, updates_apart() ? StepPart::kMicroBatch : StepPart::kWhole);
    return must && !model_.share ? int64_t{strategy_.num_replicas_in_sync()} * micro_batches_ : 1;
  }
  // True if several replicas compute a step as one program, in which they sum.
  bool sums_in_programs() const { return sums_in_programs_; }
  // Returns the rows of a batch that the programs of a mode read.
  data::HeldRows held_rows(Mode mode) const {
    return {.replicas = strategy_.local_replicas(),
            .num_replicas = strategy_.num_replicas_in_sync(),
            .micro_batches = mode == Mode::kTrain ? micro_batches_ : 1};
  }

  // Returns the programs of a mode for batches like `batch`, with its shares; builds and compiles them if there are
  // none yet, replacing the least recently used ones if there are very many. `spec` names the tensors. If updates are
  // programs of their own, returns the programs of micro-batch `micro_batch`, from 0, or without it those of
  // the update.
  absl::StatusOr<ReplicatedProgram*> ProgramFor(Mode mode, const data::ElementSpec& spec, const data::Batch& batch,
                                                const PrepareFn& prepare, std::optional<int> micro_batch = {});

  // Lets the devices record what they are about to run, where that is due, and returns true if all of them have a
  // recording: either all replay theirs or none does. Where a device cannot make one, none of them makes one any more,
  // or the error is returned, as the strategy's options say.
  absl::StatusOr<bool> Record(ReplicatedProgram& program);

  // Makes the variables of `graph` that are new, with the same initial values everywhere.
  absl::Status CreateVariables(const compute::Graph& graph, uint64_t seed);
  // Applies the updates of variables that training has deferred; to be called before anything else reads them.
  absl::Status Settle();
  // Frees a variable that no program was compiled with yet.
  void RemoveVariable(absl::string_view name);
  bool HasVariable(absl::string_view name) const { return stores_[0]->Has(name); }
  std::vector<compute::VariableSpec> variables() const { return stores_[0]->specs(); }
  // Reads a variable of one local replica; the first stands for all.
  absl::StatusOr<compute::Tensor> Read(absl::string_view name, int replica = 0) const {
    return stores_[replica]->Read(name);
  }
  // Returns the values of the first local replica, to read or to write them. Its device must compute in the memory of
  // the host.
  void* HostData(absl::string_view name) { return stores_[0]->data(name); }
  // Writes a variable of all local replicas.
  absl::Status Write(absl::string_view name, const compute::Tensor& value);

  // Returns the mean over all examples of fetch i of the program's last run, a float32 scalar that is on each replica
  // the mean over its examples; for an update, the mean over the examples of all micro-batches. As all that asks other
  // workers, it is called by all of them at the same point.
  absl::StatusOr<double> MeanFetch(const ReplicatedProgram& program, int i) const;
  // Returns, for an evaluation with host metrics or samples, what a replica that has a program has fetched.
  absl::StatusOr<data::Tensors> FetchPredictions(const ReplicatedProgram::Replica& replica) const;
  // Returns, for an evaluation with host metrics, what each replica with a share of the batch has fetched, in the order
  // of the job's replicas.
  absl::StatusOr<std::vector<ShareResults>> GatherPredictions(const ReplicatedProgram& program) const;
  // Returns the total divided by the count, both summed over all replicas; NaN if the count is 0.
  absl::StatusOr<double> MetricValue(const BuiltModel::Metric& metric) const;
  // Sets all sums to 0.
  absl::Status ResetSums();

  // Returns Internal, naming the first variable and two replicas, if a variable that must be the same on all replicas
  // is not.
  absl::Status CheckEqual();

 private:
  // The key of a program: numbers for its mode, its part of a step and the types of its shares, which an update does
  // not depend on.
  using Key = std::vector<int64_t>;
  // A batch or a micro-batch, divided among all replicas.
  struct Division {
    Mode mode = Mode::kTrain;
    StepPart part = StepPart::kWhole;
    std::vector<BatchShare> local, others;  // the shares of the local replicas, and of those that other workers hold
    Key key;                                // that of programs_
    int64_t weight = 0;                     // the sum of the weights of all shares
    bool has_placeholders = false;          // a share without examples has one of another, of no weight
  };

  static Key KeyOf(Mode mode, StepPart part, const BatchShare& share);
  absl::StatusOr<std::shared_ptr<const BuiltModel>> BuiltFor(Mode mode, StepPart part, const data::ElementSpec& spec,
                                                             const BatchShare& share, const PrepareFn& prepare);
  // True if the replicas run these programs together, which must then be the same for all.
  bool MustBeAlike(Mode mode, StepPart part) const;
  // Sets `division` to that of a batch or, for such a part, of its micro-batch of that number.
  void DivideBatch(Mode mode, StepPart part, const data::Batch& batch, int micro_batch, Division& division) const;
  // Returns the programs for the local shares. Compiles those that there are not yet.
  absl::StatusOr<ReplicatedProgram> ProgramsForShares(const Division& division, const data::ElementSpec& spec,
                                                      const PrepareFn& prepare);
  // Compiles, for each replica, the checksums of all variables that must be the same everywhere, unless they are there.
  absl::Status CompileChecksums();
  // Returns those of each of the job's replicas, one after the other.
  absl::StatusOr<std::vector<int64_t>> ChecksumsOfAll();
  // Compiles the programs of the replicas that have a model, but no program yet, all at the same time, after the runs
  // that devices with a communicator were given.
  absl::Status Compile(Mode mode, std::vector<CompiledModel>& programs);
  // The same with the chief's choices of algorithms, also for shares that it does not hold: all workers must choose the
  // same, and a run that goes on with others, too.
  absl::Status CompileAsChief(const Division& division, const data::ElementSpec& spec, const PrepareFn& prepare,
                              std::vector<CompiledModel>& programs);
  // Chooses algorithms for shares like those that other workers hold.
  absl::Status ChooseForOthers(const Division& division, const data::ElementSpec& spec, const PrepareFn& prepare);

  const Model& model_;
  const ShareFn share_;
  const compute::DType dtype_;
  const compute::LossScale loss_scale_;
  const int micro_batches_;
  distribute::Strategy& strategy_;
  compute::AlgorithmChoices* const choices_;
  const size_t max_programs_;    // in compiled_ of each replica, and in programs_
  const bool sums_in_programs_;  // DeviceKind::merge
  // Here and below, "by replica" counts the local ones.
  std::vector<std::unique_ptr<compute::VariableStore>> stores_;  // by replica
  std::vector<std::unique_ptr<compute::Arena>> arenas_;          // by replica
  std::map<Key, std::weak_ptr<const BuiltModel>> models_;        // for one replica, by mode and share
  std::vector<std::map<Key, CompiledModel>> compiled_;           // by replica; by mode and its share
  std::map<Key, ReplicatedProgram> programs_;                    // of those, by mode and all shares
  // Of each replica: the checksums of the variables checked_.
  std::vector<std::unique_ptr<compute::Program>> checksums_;
  std::vector<compute::VariableSpec> checked_;
  std::unique_ptr<compute::Program> settle_;  // of one replica; several never defer updates
  int64_t asked_ = 0;                         // number of calls of ProgramFor
  Division division_;                         // for ProgramFor, kept so that a step allocates nothing
};

}  // namespace official::train
