// MNIST: 28 x 28 grey images of handwritten digits and their labels, from IDX files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"
#include "utils/data/dataset.h"

namespace official::mnist {

struct MnistSplit {
  compute::Tensor images;  // uint8 [n, 28, 28], 0 is the background
  compute::Tensor labels;  // int32 [n], 0 to 9
};

struct MnistData {
  std::optional<MnistSplit> train;  // none where it is not read
  MnistSplit test;
  bool drawn = false;  // true if this program drew the digits (drawn_digits.h), since MNIST was not to be had
  std::string note;    // if drawn, the reason, one line for the user
};

struct MnistOptions {
  std::string data_dir;
  bool data_dir_given = false;  // true if the user chose data_dir: then no other data will do
  bool reads_train = true;      // false: only the two files of the test set are needed
  // Directories on the web that hold the gzipped files.
  std::vector<std::string> mirrors = {"https://storage.googleapis.com/cvdf-datasets/mnist",
                                      "https://ossci-datasets.s3.amazonaws.com/mnist"};
  // If not empty, a directory with copies of these files, which are taken instead.
  std::string from_dir = "";
};

// Reads the splits from data_dir, where each of their files lies plain or with .gz. Missing ones are downloaded
// first. If that fails, returns an error that names the missing files and the reason (Unavailable) where data_dir was
// given, else drawn digits. DataLoss if a file is not valid (ReadIdx), has another magic number or image size, if
// images and labels differ in number, or a label is above 9.
absl::StatusOr<MnistData> LoadMnist(const MnistOptions& options);

// Downloads the files that are missing in data_dir, or takes their copies, and leaves them there decompressed. Says on
// stderr what it does. Errors of data::DownloadFiles.
absl::Status DownloadMnist(const MnistOptions& options);

// Read one of the files, plain or gzipped: uint8 [n, 28, 28], and uint8 [n] whose values may be anything. DataLoss as
// in LoadMnist.
absl::StatusOr<compute::Tensor> ReadMnistImages(const std::string& path);
absl::StatusOr<compute::Tensor> ReadMnistLabels(const std::string& path);

// Returns DataLoss, naming file and index, unless the label is 0 to 9.
absl::Status CheckMnistLabel(const std::string& path, int64_t index, uint8_t label);

// Returns examples as the model takes them: one feature, float32 [784], pixel / 255; one label, int32.
data::DatasetPtr MnistDataset(const MnistSplit& split);

}  // namespace official::mnist
