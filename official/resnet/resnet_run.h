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
  ModelConfig model;  // its schedule's batch size and number of examples are set by the run
  bool fast_jpeg = false;
  bool eval_only = false;
  std::optional<std::string> fine_tune;  // see run::Task
  std::vector<std::string> predict;      // image files to classify in place of training
  int top_k = 5;                         // how many classes are printed of each
  std::string label_file = "";           // the names of the classes; see PredictOptions
};

// Trains and evaluates, evaluates, or predicts if files are given. Results go to `results`, all else to the log.
absl::Status RunResnet(const ResnetConfig& config, std::ostream& results);

}  // namespace official::resnet
