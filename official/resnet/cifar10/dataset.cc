#include "official/resnet/cifar10/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/data/file_kind.h"
#include "utils/files/files.h"

namespace official::resnet {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kSize = kCifar10ImageSize, kChannels = 3;
constexpr int64_t kPlane = kSize * kSize;
constexpr int64_t kPixels = kPlane * kChannels;
constexpr int64_t kRecordBytes = kCifar10RecordBytes;
constexpr int64_t kRecordsAtATime = 1000;
constexpr int64_t kMaxShift = 4;

std::vector<std::string> FileNames(Cifar10Part part) {
  if (part == Cifar10Part::kTest) return {"test_batch.bin"};
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(absl::StrCat("data_batch_", i, ".bin"));
  return names;
}

using OpenFile = std::unique_ptr<files::RandomAccessFile>;

absl::Status CheckSize(const files::RandomAccessFile& file) {
  if (file.size() > 0 && file.size() % kRecordBytes == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "%s: expected a multiple of %d bytes (records of a label and 3 x 32 x 32 pixels), found %d; the file is cut or "
      "not CIFAR-10's%s",
      file.path(), kRecordBytes, file.size(), data::KindNoteOfFile(file.path())));
}

absl::Status ReadRecords(const files::RandomAccessFile& file, Cifar10RecordFn fn) {
  std::vector<uint8_t> records(std::min(file.size(), kRecordsAtATime * kRecordBytes));
  for (int64_t offset = 0; offset < file.size();) {
    const int64_t size = std::min<int64_t>(file.size() - offset, records.size());
    RETURN_IF_ERROR(file.Read(offset, size, records.data()));
    for (int64_t i = 0; i < size; i += kRecordBytes) {
      RETURN_IF_ERROR(fn((offset + i) / kRecordBytes, records[i], &records[i + 1]));
    }
    offset += size;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<OpenFile>> OpenFiles(const std::string& data_dir, Cifar10Part part) {
  const std::string folder = files::JoinPath(data_dir, kCifar10Folder);
  std::vector<OpenFile> opened;
  for (const std::string& name : FileNames(part)) {
    const std::string path = files::JoinPath(folder, name);
    absl::StatusOr<OpenFile> file = files::RandomAccessFile::Open(path);
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(absl::StrFormat(
          "%s; `download_cifar10_main %s` downloads CIFAR-10, and --use_synthetic_data trains without it",
          file.status().message(), data_dir));
    }
    RETURN_IF_ERROR(file.status());
    RETURN_IF_ERROR(CheckSize(**file));
    opened.push_back(*std::move(file));
  }
  return opened;
}

// What a label and its image become, before the mean is taken.
struct Window {
  int64_t top = 0, left = 0;  // of the output in the image; outside of it lies black
  bool flip = false;
};

// Copies planes [3, 32, 32] into pixels [32, 32, 3] as `window` says.
void CopyWindow(const uint8_t* planes, const Window& window, float* pixels) {
  for (int64_t y = 0; y < kSize; ++y) {
    const int64_t from_y = y + window.top;
    float* row = pixels + y * kSize * kChannels;
    if (from_y < 0 || from_y >= kSize) {
      std::fill_n(row, kSize * kChannels, 0.0f);
      continue;
    }
    for (int64_t x = 0; x < kSize; ++x) {
      const int64_t from_x = (window.flip ? kSize - 1 - x : x) + window.left;
      const bool inside = from_x >= 0 && from_x < kSize;
      for (int64_t c = 0; c < kChannels; ++c) {
        row[x * kChannels + c] = inside ? planes[c * kPlane + from_y * kSize + from_x] : 0.0f;
      }
    }
  }
}

}  // namespace

std::vector<std::string> Cifar10FileNames() {
  std::vector<std::string> names = FileNames(Cifar10Part::kTrain);
  const std::vector<std::string> test = FileNames(Cifar10Part::kTest);
  names.insert(names.end(), test.begin(), test.end());
  return names;
}

absl::StatusOr<Cifar10Split> LoadCifar10(const std::string& data_dir, Cifar10Part part) {
  ASSIGN_OR_RETURN(const std::vector<OpenFile> opened, OpenFiles(data_dir, part));
  int64_t num_examples = 0;
  for (const OpenFile& file : opened) num_examples += file->size() / kRecordBytes;
  const Cifar10Split split{Tensor(DType::kUInt8, {num_examples, kChannels, kSize, kSize}),
                           Tensor(DType::kInt32, {num_examples})};
  uint8_t* image = split.images.data<uint8_t>();
  int32_t* label = split.labels.data<int32_t>();
  for (const OpenFile& file : opened) {
    const auto add = [&](int64_t number, uint8_t found, const uint8_t* pixels) -> absl::Status {
      RETURN_IF_ERROR(CheckCifar10Label(file->path(), number, found));
      *label++ = found;
      std::memcpy(image, pixels, kPixels);
      image += kPixels;
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(ReadRecords(*file, add));
  }
  return split;
}

absl::Status ReadCifar10File(const std::string& path, Cifar10RecordFn fn) {
  ASSIGN_OR_RETURN(const OpenFile file, files::RandomAccessFile::Open(path));
  RETURN_IF_ERROR(CheckSize(*file));
  return ReadRecords(*file, fn);
}

absl::Status CheckCifar10File(const std::string& path) {
  ASSIGN_OR_RETURN(const OpenFile file, files::RandomAccessFile::Open(path));
  return CheckSize(*file);
}

absl::Status CheckCifar10Label(const std::string& path, int64_t number, uint8_t label) {
  if (label < kCifar10Classes) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: record %d: expected a label from 0 to %d, found %d", path, number,
                                             kCifar10Classes - 1, label));
}

std::vector<std::string> Cifar10ClassNames() {
  return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
}

data::ElementSpec Cifar10Spec() {
  return {.features = {{"", {DType::kFloat32, {kSize, kSize, kChannels}}}}, .labels = {{"", {DType::kInt32, {}}}}};
}

void StandardizeCifar10(float* pixels) {
  // Pixels are whole numbers up to 255, so the sums are exact and in any order the same.
  int64_t sum = 0, sum_squares = 0;
  for (int64_t i = 0; i < kPixels; ++i) {
    const int32_t value = static_cast<int32_t>(pixels[i]);
    sum += value;
    sum_squares += value * value;
  }
  const double mean = static_cast<double>(sum) / kPixels;
  const double variance = std::max(0.0, static_cast<double>(sum_squares) / kPixels - mean * mean);
  const double deviation = std::max(std::sqrt(variance), 1 / std::sqrt(static_cast<double>(kPixels)));
  const float shift = static_cast<float>(mean), scale = static_cast<float>(1 / deviation);
  for (int64_t i = 0; i < kPixels; ++i) pixels[i] = (pixels[i] - shift) * scale;
}

data::DatasetPtr Cifar10Dataset(const Cifar10Split& split, bool augment, uint64_t seed) {
  const auto preprocess = [augment](const data::Example& in, data::Random& random, const data::Example& out) {
    Window window;
    if (augment) {
      window.top = random.UniformInt(2 * kMaxShift + 1) - kMaxShift;
      window.left = random.UniformInt(2 * kMaxShift + 1) - kMaxShift;
      window.flip = random.Bits() % 2 == 1;
    }
    float* pixels = out.features[0].data<float>();
    CopyWindow(in.features[0].data<uint8_t>(), window, pixels);
    StandardizeCifar10(pixels);
    *out.labels[0].data<int32_t>() = *in.labels[0].data<int32_t>();
    return absl::OkStatus();
  };
  return data::Map(data::TensorSlices({{"", split.images}}, {{"", split.labels}}), Cifar10Spec(), seed, preprocess);
}

}  // namespace official::resnet
