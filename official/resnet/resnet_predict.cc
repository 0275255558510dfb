#include "official/resnet/resnet_predict.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/resnet/cifar10/dataset.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"
#include "utils/run/predict_lines.h"

namespace official::resnet {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kMaxImageBytes = 64 << 20;
constexpr int kUsualTopK = 5;
constexpr int64_t kMaxLines = 32;  // of standard input, predicted at a time

absl::Status PreprocessCifar10(absl::string_view encoded, PreprocessingScratch& scratch, float* out) {
  constexpr int64_t kSize = kCifar10ImageSize;
  ASSIGN_OR_RETURN(const data::RgbImage image, DecodeImage(encoded, &scratch.pixels));
  scratch.resizer.Resize(image, {.size = {kSize, kSize}, .window = {0, 0, kSize, kSize}}, out);
  // The pixels of the data set, small pictures of larger ones too, are bytes.
  std::transform(out, out + kSize * kSize * 3, out, [](float value) { return std::nearbyint(value); });
  StandardizeCifar10(out);
  return absl::OkStatus();
}

absl::Status ReadImage(const std::string& file, DatasetName dataset, PreprocessingScratch& scratch, float* out) {
  ASSIGN_OR_RETURN(const std::string encoded, files::ReadFile(file, kMaxImageBytes));
  const absl::Status status = PreprocessToPredict(encoded, dataset, scratch, out);
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
}

// The classes with the k largest probabilities, of equal ones the lower first.
std::vector<int64_t> TopClasses(absl::Span<const float> probabilities, int k) {
  std::vector<int64_t> classes(probabilities.size());
  std::iota(classes.begin(), classes.end(), 0);
  std::stable_sort(classes.begin(), classes.end(),
                   [&](int64_t a, int64_t b) { return probabilities[a] > probabilities[b]; });
  classes.resize(k);
  return classes;
}

void PrintText(const std::string& file, absl::Span<const int64_t> classes, absl::Span<const float> probabilities,
               const ClassNames& names, std::ostream& out) {
  out << file << ":\n";
  for (const int64_t c : classes) {
    out << absl::StrFormat("  %.4f  %d%s\n", probabilities[c], c, names.empty() ? "" : absl::StrCat("  ", names[c]));
  }
}

void PrintJson(const std::string& file, absl::Span<const int64_t> classes, absl::Span<const float> probabilities,
               const ClassNames& names, std::ostream& out) {
  logs::Json::Array values;
  for (const int64_t c : classes) {
    logs::Json::Object value = {{"class", c}};
    if (!names.empty()) value.emplace_back("name", names[c]);
    value.emplace_back("probability", static_cast<double>(probabilities[c]));
    values.emplace_back(std::move(value));
  }
  out << logs::DumpJson(logs::Json::Object{{"file", file}, {"classes", std::move(values)}}) << "\n";
}

data::ElementSpec SpecOf(DatasetName dataset) {
  const int64_t size = InfoOf(dataset).image_size;
  return {.features = {{"", {DType::kFloat32, {size, size, 3}}}}, .labels = {}};
}

// Prints the results for the first `files.size()` images of a batch.
absl::Status PredictBatch(train::Estimator& estimator, const std::vector<std::string>& files, const Tensor& images,
                          const PredictOptions& options, std::ostream& out) {
  ASSIGN_OR_RETURN(const auto results, estimator.Predict(SpecOf(options.dataset), {images}));
  const Tensor& all = results[1].second;
  const int num_classes = static_cast<int>(all.shape().dim(1));
  const int top_k = options.top_k.value_or(std::min(kUsualTopK, num_classes));
  if (top_k > num_classes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--top_k=%d is more than the %d classes of the network", top_k, num_classes));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const absl::Span<const float> probabilities = all.flat<float>().subspan(i * num_classes, num_classes);
    const std::vector<int64_t> classes = TopClasses(probabilities, top_k);
    (options.json ? PrintJson : PrintText)(files[i], classes, probabilities, options.class_names, out);
  }
  return absl::OkStatus();
}

// A file and its pixels.
struct NamedImage {
  std::string file;
  Tensor pixels;
};

run::ReadLine<NamedImage> ReaderOf(DatasetName dataset) {
  const auto scratch = std::make_shared<PreprocessingScratch>();
  return [=](const std::string& file) -> absl::StatusOr<NamedImage> {
    const int64_t size = InfoOf(dataset).image_size;
    NamedImage image{file, Tensor(DType::kFloat32, {size, size, 3})};
    RETURN_IF_ERROR(ReadImage(file, dataset, *scratch, image.pixels.data<float>()));
    return image;
  };
}

// Prints the results for the images.
absl::Status PredictImages(train::Estimator& estimator, const std::vector<NamedImage>& images,
                           const PredictOptions& options, std::ostream& out) {
  const auto n = static_cast<int64_t>(images.size());
  const int64_t size = InfoOf(options.dataset).image_size;
  const Tensor batch(DType::kFloat32, {run::FilledBatch(n), size, size, 3});
  std::vector<std::string> files;
  for (int64_t i = 0; i < n; ++i) {
    const Tensor& pixels = images[i].pixels;
    std::copy_n(pixels.data<float>(), pixels.num_elements(), batch.data<float>() + i * pixels.num_elements());
    files.push_back(images[i].file);
  }
  return PredictBatch(estimator, files, batch, options, out);
}

}  // namespace

absl::Status PreprocessToPredict(absl::string_view encoded, DatasetName dataset, PreprocessingScratch& scratch,
                                 float* out) {
  return dataset == DatasetName::kImagenet ? PreprocessForEvaluation(encoded, scratch, out)
                                           : PreprocessCifar10(encoded, scratch, out);
}

absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files,
                          const PredictOptions& options, std::ostream& out) {
  const auto predict = [&](const NamedImage& image) { return PredictImages(estimator, {image}, options, out); };
  return run::PredictFiles<NamedImage>(files, ReaderOf(options.dataset), predict);
}

absl::Status PredictLines(train::Estimator& estimator, int in, const PredictOptions& options, std::ostream& out) {
  const auto predict = [&](const std::vector<NamedImage>& images) {
    return PredictImages(estimator, images, options, out);
  };
  return run::PredictLines<NamedImage>(in, kMaxLines, ReaderOf(options.dataset), predict, out);
}

}  // namespace official::resnet
