// Classification of image files with a trained network.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "official/resnet/resnet_model.h"
#include "utils/train/estimator.h"

namespace official::resnet {

struct PredictOptions {
  DatasetName dataset = DatasetName::kImagenet;  // that the network was trained on
  int top_k = 5;                                 // classes that are printed, at most as many as there are
  // The name of each class on a line of its own, from class 0 on. Empty: those of CIFAR-10 are known, of ImageNet's
  // classes the numbers are printed.
  std::string label_file;
  bool json = false;
};

// Prints for each of `files`, JPEG or PNG, the classes with the largest probabilities, the most likely one first; with
// `json` as one object a line: {"file", "classes": [{"class", "name", "probability"}, ...]}. ImageNet's images are
// scaled and cropped as for evaluation, CIFAR-10's scaled to 32 x 32 pixels, whatever their proportions. NotFound if
// nothing was trained or a file is missing, DataLoss if one is no image, InvalidArgument if the label file has not as
// many lines as there are classes: each names the file.
absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files,
                          const PredictOptions& options, std::ostream& out);

}  // namespace official::resnet
