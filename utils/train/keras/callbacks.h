// Callbacks: what Model::Fit calls after each epoch, as keras.callbacks has them (Keras 3.15, src/callbacks).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"

namespace official::keras {

// The metrics of an epoch by name: "loss", "accuracy", and with validation data "val_loss", "val_accuracy".
using Logs = std::vector<std::pair<std::string, double>>;

// The values of a network's variables, without those of the optimizer, by their names.
using Weights = std::map<std::string, compute::Tensor>;

// Training: what a callback can change of the training that goes on.
struct Training {
  float learning_rate;         // of the steps to come
  bool stop_training = false;  // true: no epoch after this one
  bool is_chief = true;        // false: another worker writes the files
  // Model::GetWeights, SetWeights and SaveWeights.
  std::function<absl::StatusOr<Weights>()> get_weights = nullptr;
  std::function<absl::Status(const Weights& weights)> set_weights = nullptr;
  std::function<absl::Status(const std::string& path)> save_weights = nullptr;
};

// One of these serves one call of Fit. With several workers all of them call it, with the same logs. Epochs count from
// 0.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual absl::Status OnTrainBegin(Training& training) { return absl::OkStatus(); }
  virtual absl::Status OnEpochBegin(int64_t epoch, Training& training) { return absl::OkStatus(); }
  // What a callback changes in the logs is seen by those after it, and is in the History.
  virtual absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) { return absl::OkStatus(); }
  // Not called after an error.
  virtual absl::Status OnTrainEnd(Training& training) { return absl::OkStatus(); }
};

// Mode: the values of a metric that are better, the smaller or the larger ones.
enum class Mode { kMin, kMax };

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;  // a change by no more than this is none
  int64_t patience = 0;  // epochs in a row without a better value, after which the training stops
  Mode mode = Mode::kMin;
  std::optional<double> baseline = std::nullopt;  // a value that is no better than this counts as none
  int64_t start_from_epoch = 0;                   // epochs before this one do not count
  bool restore_best_weights = false;              // at the end, also of a training that was not stopped
};

// Stops the training when a metric gets better no more. InvalidArgument if there is no such metric.
std::unique_ptr<Callback> EarlyStopping(const EarlyStoppingOptions& options = {});

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;      // by which the learning rate is multiplied, below 1
  int64_t patience = 10;    // epochs in a row without a better value, after which it is
  double min_delta = 1e-4;  // a change by no more than this is none
  Mode mode = Mode::kMin;
  int64_t cooldown = 0;  // epochs after that which do not count
  double min_lr = 0;
};

// Lowers the learning rate when a metric gets better no more. InvalidArgument if there is no such metric. Logs have the
// "learning_rate" of the epoch.
std::unique_ptr<Callback> ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

// Sets the learning rate of each epoch to schedule(epoch, learning rate of the one before). Logs have the
// "learning_rate" of the epoch.
std::unique_ptr<Callback> LearningRateScheduler(std::function<double(int64_t epoch, double learning_rate)> schedule);

struct ModelCheckpointOptions {
  // Where the weights are saved, as a checkpoint of TensorFlow's format with this prefix. {epoch}, which counts from 1,
  // and the names of metrics are replaced by their values: "best/{epoch:02d}-{val_loss:.2f}". Its directory is made.
  std::string filepath;
  std::string monitor = "val_loss";
  bool save_best_only = false;  // false: after every epoch
  Mode mode = Mode::kMin;
  std::optional<double> initial_value_threshold = std::nullopt;  // a value that is no better is not saved
};

// Saves the weights after epochs. The chief writes them. InvalidArgument if there is no such metric, or a name in the
// path is none.
std::unique_ptr<Callback> ModelCheckpoint(const ModelCheckpointOptions& options);

struct CSVLoggerOptions {
  std::string filename;
  char separator = ',';
  bool append = false;  // false: what is in the file goes
};

// Writes the logs of each epoch as a line of a CSV file, byte for byte as Keras does. The chief writes it. Errors:
// those of files::FileWriter.
std::unique_ptr<Callback> CSVLogger(const CSVLoggerOptions& options);

// Calls these functions.
struct LambdaCallbackOptions {
  std::function<absl::Status(Training&training)> on_train_begin = nullptr, on_train_end = nullptr;
  std::function<absl::Status(int64_t epoch, Training& training)> on_epoch_begin = nullptr;
  std::function<absl::Status(int64_t epoch, Logs& logs, Training& training)> on_epoch_end = nullptr;
};
std::unique_ptr<Callback> LambdaCallback(LambdaCallbackOptions options);

}  // namespace official::keras
