// Callbacks: what Model::Fit calls after each epoch, as keras.callbacks has them (Keras 3.15, src/callbacks).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace official::keras {

// The metrics of an epoch by name: "loss", "accuracy", and with validation data "val_loss", "val_accuracy".
using Logs = std::vector<std::pair<std::string, double>>;

// Training: what a callback can change of the training that goes on.
struct Training {
  float learning_rate;         // of the steps to come
  bool stop_training = false;  // true: no epoch after this one
};

// One of these serves one call of Fit.
class Callback {
 public:
  virtual ~Callback() = default;
  // `epoch` counts from 0. With several workers all of them call it, with the same logs.
  virtual absl::Status OnEpochEnd(int64_t epoch, const Logs& logs, Training& training) = 0;
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

// Lowers the learning rate when a metric gets better no more. InvalidArgument if there is no such metric.
std::unique_ptr<Callback> ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

}  // namespace official::keras
