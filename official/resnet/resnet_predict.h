// Classification of image files with a trained network.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "official/resnet/imagenet/class_names.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "official/resnet/resnet_model.h"
#include "utils/train/estimator.h"

namespace official::resnet {

struct PredictOptions {
  DatasetName dataset = DatasetName::kImagenet;  // the data set that the network was trained on
  // The number of classes that are printed. Unset: 5, or all if there are fewer.
  std::optional<int> top_k = std::nullopt;
  ClassNames class_names = {};  // one for each class of the network; empty: only class numbers are printed
  bool json = false;
};

// Prints for each of `files`, JPEG or PNG, the classes with the largest probabilities, the most likely one first; with
// `json` one object a line: {"file", "classes": [{"class", "name", "probability"}, ...]}. ImageNet's images are scaled
// and cropped as for evaluation, CIFAR-10's scaled to 32 x 32 pixels, whatever their proportions. NotFound if nothing
// was trained or the only file is missing, DataLoss if that is not an image: each names the file. Of several files such
// ones are logged, and the others follow; at the end the error is DataLoss. InvalidArgument if there are fewer than
// top_k classes.
absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files,
                          const PredictOptions& options, std::ostream& out);

// Does the same for the names in the lines that arrive at the descriptor `in`, as many at a time as there are, until
// its end. A file that is missing or is not an image is logged with the number of its line, and the others follow; at
// the end the error is DataLoss if there was such a file.
absl::Status PredictLines(train::Estimator& estimator, int in, const PredictOptions& options, std::ostream& out);

// Writes the pixels of a JPEG or PNG file with these bytes as the network takes them: [image_size, image_size, 3].
// Errors as those of PreprocessForEvaluation.
absl::Status PreprocessToPredict(absl::string_view encoded, DatasetName dataset, PreprocessingScratch& scratch,
                                 float* out);

}  // namespace official::resnet
