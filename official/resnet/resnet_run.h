// What resnet_main runs: the residual networks on CIFAR-10, ImageNet or synthetic images.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/resnet/resnet_model.h"
#include "utils/run/run.h"

namespace official::resnet {

struct ResnetConfig : run::Config {
  // The run sets its schedule's batch size and number of examples, and, where it is 0, the number of classes: that of
  // the names, or else the data set's.
  ModelConfig model;
  bool fast_jpeg = false;
  std::optional<std::string> fine_tune;  // see run::Task
  std::vector<std::string> predict;      // image files to classify in place of training
  std::optional<int> top_k;              // how many classes are printed of each; see PredictOptions
  // A file with the names of the classes of an image data set. Empty: labels.txt in --data_dir or in --model_dir, where
  // training leaves it.
  std::string label_file = "";
  int64_t skip_bad_records = 0;  // damaged records of ImageNet's kind that a run may leave out
};

// Trains and evaluates, evaluates, or predicts if files are given. Results go to `results`, all else to the log.
absl::Status RunResnet(const ResnetConfig& config, std::ostream& results);

}  // namespace official::resnet
