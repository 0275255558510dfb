// ImageNet (ILSVRC 2012): photographs of a thousand classes, from TFRecord files of tf.Example.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "utils/data/dataset.h"
#include "utils/data/records/bad_records.h"

namespace official::data {
class TFRecordIndex;
}

namespace official::resnet {

inline constexpr int kImagenetClasses = 1001;  // 0 is the background, the classes are 1 to 1000

// The damaged records that a run leaves out; one object for all that the run reads.
using BadRecordsPtr = std::shared_ptr<data::BadRecords>;

enum class ImagenetPart { kTrain, kValidation };

// The records of a part, opened and counted.
using ImagenetRecords = std::shared_ptr<const data::TFRecordIndex>;

// Returns the paths of all files <split>-*-of-* in `data_dir`, in order; `split` is "train" or "validation". NotFound,
// with what to do, if there is none; DataLoss if some are missing, or are not of the same set.
absl::StatusOr<std::vector<std::string>> FindImagenetFiles(const std::string& data_dir, const std::string& split);

// Opens the files train-*-of-* or validation-*-of-* in `data_dir`: finds where each record begins, and reads no images.
// With a `cache_dir` the result is kept there for the next time, in records-train.index or records-validation.index.
// NotFound, with what to do, if no file matches; DataLoss if some of the files are missing, one is damaged (and `bad`
// does not tolerate it), or there are no records.
absl::StatusOr<ImagenetRecords> OpenImagenet(const std::string& data_dir, ImagenetPart part,
                                             const std::string& cache_dir = "", const BadRecordsPtr& bad = nullptr);

struct ImagenetOptions {
  // True: a random part of the image, mirrored every other time, is scaled to 224 x 224, whatever its proportions.
  // False: the image is scaled to 256 pixels on its short side and cropped to its middle.
  bool augment = false;
  uint64_t seed = 0;  // randomness depends only on (seed, epoch, index of the record)
  // Decodes at half, a quarter or an eighth of the size where that is still at least as large as needed: faster, but
  // the pixels are no longer those that TensorFlow gets.
  bool fast_jpeg = false;
  int num_classes = kImagenetClasses;  // labels are 0 to one less than this
  // A damaged record that may be left out is replaced by the next good one in the order of files and records, the same
  // in every run; GoodRecords leaves it out. Null: a damaged record is an error.
  BadRecordsPtr bad = nullptr;
};

// The spec of one example: one feature, float32 [224, 224, 3]: red, green, blue from 0 to 255 less their means over
// ImageNet (123.68, 116.78, 103.94); one label, int32.
data::ElementSpec ImagenetSpec();

// Returns the examples in the order of files and records; data::Shuffle makes another order in every epoch. Images are
// read and decoded by the threads that call Read; its errors name file, record, offset and what is wrong.
data::DatasetPtr ImagenetDataset(ImagenetRecords records, const ImagenetOptions& options);

// Returns the examples without those of damaged records, for an evaluation, which must not count another one twice. All
// examples are read once, by `num_threads` threads, to find out which are damaged; options.bad must be set. DataLoss if
// more are damaged than it tolerates, or all of them; other errors of Read.
absl::StatusOr<data::DatasetPtr> GoodRecords(ImagenetRecords records, const ImagenetOptions& options, int num_threads);

}  // namespace official::resnet
