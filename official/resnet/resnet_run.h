// The run of resnet_main: the residual networks on CIFAR-10, ImageNet or synthetic images.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "official/resnet/resnet_model.h"
#include "utils/run/config.h"

namespace official::resnet {

struct ResnetConfig : run::Config {
  // The run sets the batch size and the number of examples in its schedule, and, where it is 0, the number of classes:
  // that of the names, or else the data set's.
  ModelConfig model;
  bool fast_jpeg = false;
  std::optional<std::string> fine_tune;  // see run::SessionOptions
  std::vector<std::string> predict;      // image files to classify instead of training; "-": those on standard input
  std::optional<int> top_k;              // the number of classes that are printed for each; see PredictOptions
  // A file with the names of the classes of an image data set. Empty: labels.txt in --data_dir or in --model_dir, where
  // training leaves it.
  std::string label_file = "";
  int64_t skip_bad_records = 0;  // the number of damaged records that a run on ImageNet's kind of files may leave out
};

// Trains and evaluates, evaluates, or predicts if files are given. Results go to `results`, all else to the log.
absl::Status RunResnet(const ResnetConfig& config, std::ostream& results);

// Returns `model` with the number of classes that a training in model_dir had: that of `model`, or of labels.txt there,
// or else the data set's. InvalidArgument if the first two differ.
absl::StatusOr<ModelConfig> ModelOfTraining(const ModelConfig& model, const std::string& model_dir);

}  // namespace official::resnet
