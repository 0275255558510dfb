// The data of a run: a data set or synthetic data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "utils/data/batch.h"
#include "utils/data/dataset.h"
#include "utils/data/held_rows.h"
#include "utils/run/config.h"
#include "utils/train/batch_memory.h"
#include "utils/train/run_facts.h"

namespace official::run {

// The part of the training data that a run reads, and its order.
struct ReadOptions {
  uint64_t seed = 0;
  data::Position start = {};
  int64_t end_epoch = 1;
  data::HeldRows rows = {};
};

// The input of a run. Its functions may be called as long as it lives.
struct Input {
  std::string dataset;  // its name, kept in the checkpoint
  // The fingerprint of the training data (utils/data/fingerprint.h), kept too; empty: they never change.
  std::string fingerprint = "";
  bool evaluates_fingerprint = false;  // true: the data of `eval` are a part of those that it is of
  // The fingerprint of what evaluations read and `fingerprint` does not have, which workers compare; empty: nothing.
  std::string eval_fingerprint = "";
  // The size of the network by the data, such as "1001 classes", which workers compare; empty: they say nothing of it.
  std::string network_size = "";
  // Further facts that are kept in the checkpoint and compared when a run resumes or evaluates.
  std::vector<train::RunFact> facts = {};
  data::ElementSpec spec;
  int64_t num_train_examples = 0;
  bool across_epochs = false;  // true if a batch may continue into the next epoch of the same train call
  bool carries_over = false;   // true if batches cross the ends of epochs, as in train::EpochSize
  // The number of steps of an epoch, where it does not follow from --batch_size.
  std::optional<int64_t> steps_per_epoch = std::nullopt;
  // Returns batches of the training set from `start` to the end of epoch `end_epoch` - 1. Null where the training set
  // is not read (ReadsTrainingData of session.h).
  std::function<absl::StatusOr<data::BatchSourcePtr>(const ReadOptions& options)> train = nullptr;
  int64_t num_kept_batches = 0;  // that stay in memory while `train` or `eval` is read
  // Unset where all batches have the same shape.
  std::optional<train::LargestBatches> largest_batch = std::nullopt;
  // Returns one pass over the test set.
  std::function<absl::StatusOr<data::BatchSourcePtr>(const data::HeldRows& rows)> eval;
  // True if the threads that compute make the batches of `train`. While GPUs compute, two are made ahead of the
  // training.
  bool made_by_computing_threads = false;
};

// Returns the batches of a data set, two of them read ahead of the training.
absl::StatusOr<data::BatchSourcePtr> ReadAhead(data::DatasetPtr dataset, const data::BatchOptions& options);

// The data of --use_synthetic_data: one example of zeros, repeated as often as the data set that it replaces has
// examples.
struct SyntheticSet {
  std::string stands_for;  // "CIFAR-10", of the name "CIFAR-10-synthetic"
  data::ElementSpec spec;  // leaves of a group have one dtype
  int64_t num_train_examples = 0, num_eval_examples = 0;
  bool across_epochs = false;
};
Input SyntheticInput(const SyntheticSet& set, int64_t batch_size);

// Returns the input of a run that trains on the first `num_batches` batches of the data in each epoch, and evaluates on
// the same: --overfit_batches. They are those of the first epoch of seed 0, augmented as there, whatever the seed of
// the run is.
Input OverfitBatches(Input input, int64_t num_batches, int64_t batch_size);
// Returns OverfitBatches if the flag is given, else `input`. While --batch_size=auto tries sizes, `batch_size` is not
// that of `config`.
Input DataOf(const Config& config, Input input, int64_t batch_size);

// Returns what the check of their memory needs to know of the batches of a training.
train::TrainingBatches BatchesOf(const Config& config, const Input& input);

}  // namespace official::run
