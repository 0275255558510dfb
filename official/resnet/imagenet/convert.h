// Makes the TFRecord files of an image data set from folders of images.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace official::resnet {

struct ConvertOptions {
  std::string images_dir;  // has a folder for each class, with the class's images
  std::string output_dir;  // made if it is missing
  std::string split = "train";
  // If above 0, both splits are made of the images: this part of each class, chosen by the images' names, goes to the
  // files of the split `validation`, the others to `train`.
  double validation_fraction = 0;
  int num_shards = 1;  // with validation_fraction, of `train`; `validation` has an eighth as many
  int num_threads = 1;
};

struct ConvertResult {
  int64_t num_images = 0;
  int64_t num_classes = 0;
  // The number of images in the split `validation`, with validation_fraction.
  int64_t num_validation_images = 0;
  int num_validation_shards = 0;
};

// Writes <split>-00000-of-..., each under its name only when it is complete, with the features of ImageNet's files, and
// labels.txt (class_names.h). The folders, in the order of their names, are classes 1, 2, ...; 0 is the background. The
// order of the images is random but always the same, so that readers with a small shuffle buffer see all classes.
// Images are JPEG (.jpg, .jpeg, in any case) or PNG; they are decoded as a check, and written as they are. Names that
// begin with a dot, and __MACOSX, are ignored; the log warns of other files that are not converted, those in deeper
// folders among them, and of classes without an image. Errors name the file: DataLoss if images cannot be decoded, all
// of which one call finds: the error has their number and the first of them, the log the others; NotFound if there are
// no folders or no images; FailedPrecondition if output_dir holds files of the split; InvalidArgument if it holds files
// of the other split with other classes, or if the name of a folder cannot be that of a class in labels.txt; errors of
// the file system as in utils/files. After an error no files of records are left; what a call that was killed has left
// under temporary names, the next one removes.
absl::StatusOr<ConvertResult> ConvertToTFRecords(const ConvertOptions& options);

}  // namespace official::resnet
