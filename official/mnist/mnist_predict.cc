#include "official/mnist/mnist_predict.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/mnist/mnist_model.h"
#include "utils/compute/core/status.h"
#include "utils/data/idx.h"
#include "utils/data/png.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"
#include "utils/run/predict_lines.h"

namespace official::mnist {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kPixels = kImageSize * kImageSize;
constexpr int64_t kBatch = 100;

absl::Status WrongSize(const std::string& file, const compute::Shape& shape) {
  return absl::DataLossError(
      absl::StrCat(file, ": expected images of 28x28 pixels, found ", shape.ToString(), "; scale them first"));
}

// Colour becomes luma by the weights of ITU-R BT.601.
absl::StatusOr<Tensor> GreyOfPng(const Tensor& image, const std::string& name) {
  const compute::Shape& shape = image.shape();
  if (shape.dim(0) != kImageSize || shape.dim(1) != kImageSize) return WrongSize(name, shape);
  const int64_t channels = shape.dim(2);
  Tensor pixels(DType::kFloat32, {1, kPixels});
  for (int64_t i = 0; i < kPixels; ++i) {
    const uint8_t* p = image.data<uint8_t>() + i * channels;
    const float grey = channels < 3 ? p[0] : 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
    pixels.data<float>()[i] = grey / 255;
  }
  return pixels;
}

// Refuses a file that is no IDX file either.
absl::Status CheckIsIdx(const std::string& file, const data::IdxHeader& header) {
  if (!header.dims.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      file,
      ": expected a PNG or IDX file of 28x28 pixels, white on black; for dark ink on paper, ImageMagick makes one: ",
      "convert ", file, " -colorspace Gray -negate -resize '28x28!' digit.png"));
}

// The images of an IDX file, [n, 784] in [0, 1].
absl::StatusOr<Tensor> ReadIdxDigits(const std::string& file) {
  ASSIGN_OR_RETURN(const Tensor images,
                   data::ReadIdx(file, [&](const data::IdxHeader& header) { return CheckIsIdx(file, header); }));
  const compute::Shape& shape = images.shape();
  if (images.dtype() != DType::kUInt8 || shape.rank() != 3 || shape.dim(1) != kImageSize ||
      shape.dim(2) != kImageSize) {
    return WrongSize(file, shape);
  }
  Tensor pixels(DType::kFloat32, {shape.dim(0), kPixels});
  std::transform(images.data<uint8_t>(), images.data<uint8_t>() + images.num_elements(), pixels.data<float>(),
                 [](uint8_t v) { return static_cast<float>(v) / 255; });
  return pixels;
}

absl::StatusOr<Tensor> ReadDigits(const std::string& file) {
  ASSIGN_OR_RETURN(const auto opened, files::RandomAccessFile::Open(file));
  char magic[4] = {};
  ASSIGN_OR_RETURN(const int64_t read, opened->ReadSome(0, 4, magic));
  const bool is_png = read == 4 && std::equal(magic, magic + 4, "\x89PNG");
  if (!is_png) return ReadIdxDigits(file);
  ASSIGN_OR_RETURN(const Tensor image, data::ReadPng(file));
  return GreyOfPng(image, file);
}

void PrintPrediction(const std::string& file, int64_t index, int64_t count, int64_t digit,
                     absl::Span<const float> probabilities, bool json, std::ostream& out) {
  if (json) {
    logs::Json::Array values;
    for (const float p : probabilities) values.emplace_back(static_cast<double>(p));
    out << logs::DumpJson(logs::Json::Object{
               {"file", file}, {"index", index}, {"class", digit}, {"probabilities", std::move(values)}})
        << "\n";
    return;
  }
  out << file;
  if (count > 1) out << "[" << index << "]";
  out << ": " << digit << "  probabilities";
  for (const float p : probabilities) out << absl::StrFormat(" %.4f", p);
  out << "\n";
}

// The images of a file, [n, 784].
struct NamedDigits {
  std::string file;
  Tensor digits;
};

absl::StatusOr<NamedDigits> ReadNamedDigits(const std::string& file) {
  ASSIGN_OR_RETURN(Tensor digits, ReadDigits(file));
  return NamedDigits{file, std::move(digits)};
}

// Prints the results for all images of the files, at most kBatch at a time.
absl::Status Predict(train::Estimator& estimator, const std::vector<NamedDigits>& files, bool json, std::ostream& out) {
  const data::ElementSpec spec{.features = {{"", {DType::kFloat32, {kPixels}}}}, .labels = {}};
  struct Image {
    const NamedDigits* of;
    int64_t index;
  };
  std::vector<Image> images;
  for (const NamedDigits& file : files) {
    for (int64_t i = 0; i < file.digits.shape().dim(0); ++i) images.push_back({&file, i});
  }
  for (size_t begin = 0; begin < images.size(); begin += kBatch) {
    const size_t n = std::min<size_t>(kBatch, images.size() - begin);
    const Tensor batch(DType::kFloat32, {n == kBatch ? kBatch : run::FilledBatch(static_cast<int64_t>(n)), kPixels});
    for (size_t i = 0; i < n; ++i) {
      const Image& image = images[begin + i];
      std::copy_n(image.of->digits.data<float>() + image.index * kPixels, kPixels, batch.data<float>() + i * kPixels);
    }
    ASSIGN_OR_RETURN(const auto results, estimator.Predict(spec, {batch}));
    const Tensor &classes = results[0].second, &probabilities = results[1].second;
    for (size_t i = 0; i < n; ++i) {
      const Image& image = images[begin + i];
      PrintPrediction(image.of->file, image.index, image.of->digits.shape().dim(0), classes.data<int64_t>()[i],
                      probabilities.flat<float>().subspan(i * kNumClasses, kNumClasses), json, out);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tensor> DecodePngDigit(const std::string& bytes, const std::string& name) {
  ASSIGN_OR_RETURN(const Tensor image, data::DecodePng(bytes, name));
  return GreyOfPng(image, name);
}

absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files, bool json,
                          std::ostream& out) {
  const auto predict = [&](const NamedDigits& digits) { return Predict(estimator, {digits}, json, out); };
  return run::PredictFiles<NamedDigits>(files, ReadNamedDigits, predict);
}

absl::Status PredictLines(train::Estimator& estimator, int in, bool json, std::ostream& out) {
  const auto predict = [&](const std::vector<NamedDigits>& files) { return Predict(estimator, files, json, out); };
  return run::PredictLines<NamedDigits>(in, kBatch, ReadNamedDigits, predict, out);
}

}  // namespace official::mnist
