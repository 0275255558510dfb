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

namespace official::mnist {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kPixels = kImageSize * kImageSize;

absl::Status WrongSize(const std::string& file, const compute::Shape& shape) {
  return absl::DataLossError(
      absl::StrCat(file, ": expected images of 28x28 pixels, found ", shape.ToString(), "; scale them first"));
}

// The grey values of a PNG, [1, 784] in [0, 1]. Colour becomes luma by the weights of ITU-R BT.601.
absl::StatusOr<Tensor> ReadPngDigit(const std::string& file) {
  ASSIGN_OR_RETURN(const Tensor image, data::ReadPng(file));
  const compute::Shape& shape = image.shape();
  if (shape.dim(0) != kImageSize || shape.dim(1) != kImageSize) return WrongSize(file, shape);
  const int64_t channels = shape.dim(2);
  Tensor pixels(DType::kFloat32, {1, kPixels});
  for (int64_t i = 0; i < kPixels; ++i) {
    const uint8_t* p = image.data<uint8_t>() + i * channels;
    const float grey = channels < 3 ? p[0] : 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
    pixels.data<float>()[i] = grey / 255;
  }
  return pixels;
}

// The images of an IDX file, [n, 784] in [0, 1].
absl::StatusOr<Tensor> ReadIdxDigits(const std::string& file) {
  ASSIGN_OR_RETURN(const Tensor images, data::ReadIdx(file));
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
  return is_png ? ReadPngDigit(file) : ReadIdxDigits(file);
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

}  // namespace

absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files, bool json,
                          std::ostream& out) {
  constexpr int64_t kBatch = 100;
  const data::ElementSpec spec{.features = {{"", {DType::kFloat32, {kPixels}}}}, .labels = {}};
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const Tensor digits, ReadDigits(file));
    const int64_t count = digits.shape().dim(0);
    for (int64_t begin = 0; begin < count; begin += kBatch) {
      const int64_t n = std::min(kBatch, count - begin);
      const Tensor batch({DType::kFloat32, {n, kPixels}}, digits.data<float>() + begin * kPixels);
      ASSIGN_OR_RETURN(const auto results, estimator.Predict(spec, {batch}));
      const Tensor &classes = results[0].second, &probabilities = results[1].second;
      for (int64_t i = 0; i < n; ++i) {
        PrintPrediction(file, begin + i, count, classes.data<int64_t>()[i],
                        probabilities.flat<float>().subspan(i * kNumClasses, kNumClasses), json, out);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace official::mnist
