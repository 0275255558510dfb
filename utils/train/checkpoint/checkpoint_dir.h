// The checkpoints of a model directory, as TensorFlow's Saver and Estimator keep them:
//   checkpoint                                the state file: text, names the latest checkpoint and all that are kept
//   model.ckpt-<step>.index, .data-00000-of-00001    one checkpoint, a bundle
//   model.ckpt-<step>.meta                    on request: the graph that TensorFlow restores it into
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/train/checkpoint/bundle.h"

namespace official::train {

// The prefix of the names of all that a run keeps in its checkpoints beyond TensorFlow's. TensorFlow's Saver ignores
// it.
inline constexpr char kRunPrefix[] = "_run/";

// What follows the name of a variable in that of its moving average, as with tf.train.ExponentialMovingAverage.
inline constexpr char kAverageSuffix[] = "/ExponentialMovingAverage";

struct LatestCheckpoint {
  std::string prefix;                    // empty if the directory has no checkpoint
  std::unique_ptr<BundleReader> reader;  // open, every checksum verified; null if there is none
  std::string note;                      // for the user, if this is not the one that the state file names
};

// Returns the checkpoint that the state file names. If the state file is missing, empty or truncated, or that
// checkpoint is damaged, returns the intact one with the highest step or, if none of those named model.ckpt-<step> is
// intact, the latest one that the state file lists under another name; `note` says why. DataLoss if there are
// checkpoints but none is intact: a run must not start over by accident. A directory that does not exist has no
// checkpoint. A caller that will save there opens the CheckpointSaver first, which finishes what a killed one has left.
absl::StatusOr<LatestCheckpoint> FindLatestCheckpoint(const std::string& model_dir);

// Returns FailedPrecondition if a file is given in place of the directory, such as an archive of one.
absl::Status CheckModelDir(const std::string& model_dir);

// Returns the name of the latest checkpoint, "model.ckpt-600", as the state file has it, which it may be without;
// nothing if no state file can be read. Costs little, for those who wait for the next one.
std::optional<std::string> LatestCheckpointName(const std::string& model_dir);

// Returns the error for a directory in which FindLatestCheckpoint finds none: NotFound, with the prefixes of some of
// those that are there under other names than model.ckpt-<step>, such as the variables of an export, but in no state
// file.
absl::Status NoLatestCheckpoint(const std::string& directory);

// Returns the checkpoint or the directory that a path typed by a user means: the state file ("run/checkpoint") means
// its directory, a file of a checkpoint ("run/model.ckpt-600.index", .data-00000-of-00001, .meta) the checkpoint.
std::string CheckpointNamed(const std::string& path);

// Opens the checkpoint that a path typed by a user means: the latest intact one of a directory, as
// FindLatestCheckpoint; or one checkpoint by its prefix or one of its files, whose checksums are verified as its
// tensors are read. NotFound if there is none, with the names that are there; DataLoss, naming its kind, if the path is
// a file of another format.
absl::StatusOr<LatestCheckpoint> OpenCheckpoint(const std::string& named);

// Returns the prefixes of all checkpoints in a directory that have an index: first those that the state file does not
// list, by step, then those that it lists, in the order of saving, so that the last is the latest. An error of the file
// system if the directory cannot be read.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& model_dir);

// A tensor that is made only when it is written, and freed right after.
struct SavedTensor {
  int64_t bytes = 0;
  std::function<absl::StatusOr<compute::Tensor>()> read;
};

// A tensor of strings, as many as `shape` has elements.
struct SavedStrings {
  compute::Shape shape;
  std::vector<std::string> values;  // row-major
};

// Returns each string as a tensor of rank 0.
std::map<std::string, SavedStrings> Scalars(const std::map<std::string, std::string>& strings);

// Saves checkpoints so that a crash or a power cut at any moment leaves the new one or the previous one intact. Only
// one saver at a time may work in a directory; its owner ensures that.
class CheckpointSaver {
 public:
  // Makes the directory if necessary, checks that files can be made in it, and cleans up after a saver that was killed.
  // The `keep_max` latest checkpoints are kept, those of earlier runs in the directory included; 0 keeps all.
  // `meta_graph` are the bytes of model.ckpt-<step>.meta for every checkpoint that is saved; empty: there is none.
  // Errors of the file system as in utils/files.
  static absl::StatusOr<std::unique_ptr<CheckpointSaver>> Open(const std::string& model_dir, int keep_max,
                                                               std::string meta_graph = "");

  // Writes model.ckpt-<step>, then the state file, then removes checkpoints beyond `keep_max`, in the order of saving,
  // and other shards and the graph of a checkpoint of the same step that this replaces.
  // A failed save leaves nothing, and keeps the earlier checkpoints. Names must be unique across tensors and strings.
  absl::Status Save(int64_t step, const std::map<std::string, compute::Tensor>& tensors,
                    const std::map<std::string, std::string>& strings = {});
  // Does the same with tensors that are read one by one, in the order of their names; an error in reading ends the
  // save.
  absl::Status SaveInTurn(int64_t step, const std::map<std::string, SavedTensor>& tensors,
                          const std::map<std::string, SavedStrings>& strings);

 private:
  CheckpointSaver(std::string model_dir, int keep_max, std::string meta_graph)
      : model_dir_(std::move(model_dir)), keep_max_(keep_max), meta_graph_(std::move(meta_graph)) {}
  absl::Status FinishInterruptedSaves();
  absl::Status FinishInterruptedRemovals();
  // Removes other shards, and a graph, of the checkpoint that `name` has replaced.
  absl::Status RemoveReplaced(const std::string& name) const;
  absl::Status RemoveOldDataWithoutIndex();

  std::string model_dir_;
  int keep_max_;
  std::string meta_graph_;
  std::vector<std::string> kept_;             // the paths in the state file, in the order of saving
  std::set<std::string> data_without_index_;  // model.ckpt-<step>, as found when the saver was opened
};

}  // namespace official::train
