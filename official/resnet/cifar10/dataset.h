// CIFAR-10: 32 x 32 colour images of ten classes, from the binary version of the data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/dataset.h"

namespace official::resnet {

inline constexpr int64_t kCifar10ImageSize = 32;
inline constexpr int kCifar10Classes = 10;

// The folder of the files below --data_dir.
inline constexpr char kCifar10Folder[] = "cifar-10-batches-bin";
std::vector<std::string> Cifar10FileNames();  // the training files first

struct Cifar10Split {
  compute::Tensor images;  // uint8 [n, 3, 32, 32]: red, green, blue
  compute::Tensor labels;  // int32 [n], 0 to 9
};
enum class Cifar10Part { kTrain, kTest };

// Reads data_batch_1.bin to data_batch_5.bin, or test_batch.bin, from cifar-10-batches-bin in `data_dir`. A record is
// one byte for the label and 3072 bytes of pixels. NotFound, with what to do, if the directory or a file is missing;
// DataLoss if a file is empty or not a whole number of records, or a label is above 9.
absl::StatusOr<Cifar10Split> LoadCifar10(const std::string& data_dir, Cifar10Part part);

inline constexpr int64_t kCifar10RecordBytes = 1 + 3 * kCifar10ImageSize * kCifar10ImageSize;

// Reads one of the files. Calls `fn` for each record with its number, its label, which may be anything
// (CheckCifar10Label), and its pixels [3, 32, 32]; an error of `fn` ends the reading. Other errors as in LoadCifar10.
// Holds 3 MB of the file in memory.
using Cifar10RecordFn = absl::FunctionRef<absl::Status(int64_t number, uint8_t label, const uint8_t* pixels)>;
absl::Status ReadCifar10File(const std::string& path, Cifar10RecordFn fn);

// Returns DataLoss if the file is empty or not a whole number of records, and NotFound if it is missing. Reads
// no records.
absl::Status CheckCifar10File(const std::string& path);

// Returns DataLoss, naming file and record, unless the label is 0 to 9.
absl::Status CheckCifar10Label(const std::string& path, int64_t number, uint8_t label);

// Examples as the model takes them: one feature, float32 [32, 32, 3] with red, green, blue last; one label, int32.
data::ElementSpec Cifar10Spec();

// Returns the names of the classes by label.
std::vector<std::string> Cifar10ClassNames();

// Does tf.image.per_image_standardization in place on pixels [32, 32, 3], whole numbers from 0 to 255.
void StandardizeCifar10(float* pixels);

// Standardizes each image: (x - mean) / max(standard deviation, 1 / sqrt(3072)) over all its values. With `augment` it
// is first moved by up to 4 pixels each way, with black at the edges, and mirrored every other time; that depends only
// on (seed, epoch, index).
data::DatasetPtr Cifar10Dataset(const Cifar10Split& split, bool augment, uint64_t seed);

}  // namespace official::resnet
