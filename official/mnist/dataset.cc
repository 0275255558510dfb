#include "official/mnist/dataset.h"

#include <algorithm>
#include <array>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/mnist/drawn_digits.h"
#include "utils/compute/core/status.h"
#include "utils/data/download.h"
#include "utils/data/idx.h"
#include "utils/files/files.h"
#include "utils/logs/task_progress.h"

namespace official::mnist {
namespace {

using compute::DType;
using compute::Shape;
using compute::Tensor;

constexpr uint32_t kImagesMagic = 2051, kLabelsMagic = 2049;
constexpr int64_t kSize = 28;
constexpr int kNumClasses = 10;

struct MnistFile {
  const char* name;
  int64_t num_bytes;     // inflated
  int64_t gz_num_bytes;  // and as it is on the web
  const char* gz_sha256;
};
constexpr std::array<MnistFile, 4> kFiles = {{
    {"train-images-idx3-ubyte", 47040016, 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
    {"train-labels-idx1-ubyte", 60008, 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
    {"t10k-images-idx3-ubyte", 7840016, 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
    {"t10k-labels-idx1-ubyte", 10008, 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
}};

// The file as it lies in the directory, plain before gzipped; empty if it does not.
std::string FindFile(const std::string& directory, const char* name) {
  const std::string plain = files::JoinPath(directory, name);
  for (const std::string& path : {plain, plain + ".gz"}) {
    if (files::Exists(path)) return path;
  }
  return "";
}

// Of the files that `options` need, those that data_dir has not.
std::vector<MnistFile> MissingFiles(const MnistOptions& options) {
  std::vector<MnistFile> missing;
  for (const MnistFile& file : kFiles) {
    if (!options.reads_train && absl::StartsWith(file.name, "train")) continue;
    if (FindFile(options.data_dir, file.name).empty()) missing.push_back(file);
  }
  return missing;
}

// "a", "a and b" or "a and 3 more files".
std::string NamesOf(const std::vector<MnistFile>& files) {
  if (files.size() == 1) return files[0].name;
  if (files.size() == 2) return absl::StrCat(files[0].name, " and ", files[1].name);
  return absl::StrFormat("%s and %d more files", files[0].name, files.size() - 1);
}

absl::StatusOr<Tensor> ReadLabels(const std::string& path) {
  ASSIGN_OR_RETURN(const Tensor bytes, ReadMnistLabels(path));
  const absl::Span<const uint8_t> labels = bytes.flat<uint8_t>();
  for (size_t i = 0; i < labels.size(); ++i) RETURN_IF_ERROR(CheckMnistLabel(path, i, labels[i]));
  return bytes.CastTo(DType::kInt32);
}

// `prefix`: "train" or "t10k".
absl::StatusOr<MnistSplit> ReadSplit(const std::string& directory, const std::string& prefix) {
  const std::string images_path = FindFile(directory, (prefix + "-images-idx3-ubyte").c_str());
  const std::string labels_path = FindFile(directory, (prefix + "-labels-idx1-ubyte").c_str());
  MnistSplit split;
  ASSIGN_OR_RETURN(split.images, ReadMnistImages(images_path));
  ASSIGN_OR_RETURN(split.labels, ReadLabels(labels_path));
  const int64_t num_images = split.images.shape().dim(0), num_labels = split.labels.shape().dim(0);
  if (num_images != num_labels) {
    return absl::DataLossError(
        absl::StrFormat("%s has %d images, but %s has %d labels", images_path, num_images, labels_path, num_labels));
  }
  if (num_images == 0) return absl::DataLossError(absl::StrCat(images_path, " has no images"));
  return split;
}

absl::StatusOr<MnistData> ReadMnist(const std::string& directory, bool reads_train) {
  auto test = std::async(std::launch::async, [&] { return ReadSplit(directory, "t10k"); });
  MnistData data;
  if (reads_train) {
    ASSIGN_OR_RETURN(data.train, ReadSplit(directory, "train"));
  }
  ASSIGN_OR_RETURN(data.test, test.get());
  return data;
}

MnistData DrawMnist(bool draws_train) {
  constexpr uint64_t kSeed = 1;  // the data set is always the same one, whatever the seed of the training
  constexpr int64_t kTrain = 60000, kTest = 10000;
  const int num_threads = std::max(1u, std::thread::hardware_concurrency());
  const logs::TaskProgress progress({.title = "drawing digits"});
  MnistData data;
  if (draws_train) {
    DrawnDigits train = DrawDigits(kSeed, 0, kTrain, num_threads);
    data.train = MnistSplit{std::move(train.images), std::move(train.labels)};
  }
  DrawnDigits test = DrawDigits(kSeed, kTrain, kTest, num_threads);
  data.test = {std::move(test.images), std::move(test.labels)};
  data.drawn = true;
  return data;
}

// Downloads what is missing in data_dir; an error says what that is.
absl::Status ObtainFiles(const MnistOptions& options) {
  const std::vector<MnistFile> missing = MissingFiles(options);
  const absl::Status status = DownloadMnist(options);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrFormat("%s %s of MNIST: %s",
                                      files::Exists(options.data_dir)
                                          ? absl::StrCat(options.data_dir, " is missing")
                                          : absl::StrCat("there is no directory ", options.data_dir, " with the files"),
                                      NamesOf(missing), status.message()));
}

}  // namespace

absl::StatusOr<Tensor> ReadMnistImages(const std::string& path) {
  return data::ReadIdx(path, [&](const data::IdxHeader& header) -> absl::Status {
    if (header.magic != kImagesMagic) {
      return absl::DataLossError(absl::StrFormat("Invalid magic number %d in MNIST file %s", header.magic, path));
    }
    if (header.dims[1] != kSize || header.dims[2] != kSize) {
      return absl::DataLossError(absl::StrFormat("Invalid MNIST file %s: Expected 28x28 images, found %dx%d", path,
                                                 header.dims[1], header.dims[2]));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Tensor> ReadMnistLabels(const std::string& path) {
  return data::ReadIdx(path, [&](const data::IdxHeader& header) -> absl::Status {
    if (header.magic == kLabelsMagic) return absl::OkStatus();
    return absl::DataLossError(absl::StrFormat("Invalid magic number %d in MNIST file %s", header.magic, path));
  });
}

absl::Status CheckMnistLabel(const std::string& path, int64_t index, uint8_t label) {
  if (label < kNumClasses) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("Invalid MNIST file %s: expected labels from 0 to 9, found %d at index %d", path, label, index));
}

absl::StatusOr<MnistData> LoadMnist(const MnistOptions& options) {
  const absl::Status status = ObtainFiles(options);
  if (status.ok()) return ReadMnist(options.data_dir, options.reads_train);
  if (options.data_dir_given) {
    return absl::Status(status.code(),
                        absl::StrFormat("%s; `download_mnist_main %s` downloads them on a machine with a network, and "
                                        "--use_synthetic_data trains without them",
                                        status.message(), options.data_dir));
  }
  MnistData data = DrawMnist(options.reads_train);
  data.note = absl::StrCat(options.reads_train ? "training" : "evaluating",
                           " on digits drawn by this program: ", status.message());
  return data;
}

absl::Status DownloadMnist(const MnistOptions& options) {
  std::vector<data::RemoteFile> remote_files;
  for (const MnistFile& file : MissingFiles(options)) {
    data::RemoteFile remote = {.path = files::JoinPath(options.data_dir, file.name),
                               .urls = {},
                               .num_bytes = file.gz_num_bytes,
                               .sha256 = file.gz_sha256,
                               .inflated_bytes = file.num_bytes};
    for (const std::string& mirror : options.mirrors)
      remote.urls.push_back(absl::StrCat(mirror, "/", file.name, ".gz"));
    remote_files.push_back(std::move(remote));
  }
  return data::DownloadFiles(remote_files, {.from_dir = options.from_dir});
}

data::DatasetPtr MnistDataset(const MnistSplit& split) {
  constexpr int64_t kPixels = kSize * kSize;
  const int64_t num_examples = split.labels.num_elements();
  const data::ElementSpec spec = {.features = {{"", {DType::kFloat32, {kPixels}}}},
                                  .labels = {{"", {DType::kInt32, {}}}}};
  const auto to_floats = [](const data::Example& in, data::Random&, const data::Example& out) {
    const uint8_t* pixels = in.features[0].data<uint8_t>();
    float* floats = out.features[0].data<float>();
    for (int64_t i = 0; i < kPixels; ++i) floats[i] = static_cast<float>(pixels[i]) / 255;
    *out.labels[0].data<int32_t>() = *in.labels[0].data<int32_t>();
    return absl::OkStatus();
  };
  return data::Map(data::TensorSlices({{"", split.images.Reshaped({num_examples, kPixels})}}, {{"", split.labels}}),
                   spec,
                   /*seed=*/0, to_floats);
}

}  // namespace official::mnist
