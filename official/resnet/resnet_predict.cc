#include "official/resnet/resnet_predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "official/resnet/cifar10/dataset.h"
#include "official/resnet/imagenet/preprocessing.h"
#include "utils/compute/core/status.h"
#include "utils/files/files.h"
#include "utils/logs/json.h"

namespace official::resnet {
namespace {

using compute::DType;
using compute::Tensor;

constexpr int64_t kMaxImageBytes = 64 << 20, kMaxLabelBytes = 1 << 20;

// By class; none if they are not known.
using ClassNames = std::vector<std::string>;

absl::StatusOr<ClassNames> NamesOf(const PredictOptions& options) {
  if (options.label_file.empty()) {
    if (options.dataset == DatasetName::kImagenet) return ClassNames();
    return ClassNames{"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  }
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(options.label_file, kMaxLabelBytes));
  ClassNames names = absl::StrSplit(text, '\n');
  if (names.back().empty()) names.pop_back();
  for (std::string& name : names) absl::StripAsciiWhitespace(&name);
  const DatasetInfo& info = InfoOf(options.dataset);
  if (static_cast<int>(names.size()) == info.num_classes) return names;
  return absl::InvalidArgumentError(
      absl::StrFormat("--label_file=%s: expected %d lines, a name for each class of %s%s, found %d", options.label_file,
                      info.num_classes, info.title,
                      options.dataset == DatasetName::kImagenet ? " (the first is the background)" : "", names.size()));
}

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
  const absl::Status status = dataset == DatasetName::kImagenet ? PreprocessForEvaluation(encoded, scratch, out)
                                                                : PreprocessCifar10(encoded, scratch, out);
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

}  // namespace

absl::Status PredictFiles(train::Estimator& estimator, const std::vector<std::string>& files,
                          const PredictOptions& options, std::ostream& out) {
  ASSIGN_OR_RETURN(const ClassNames names, NamesOf(options));
  const int64_t size = InfoOf(options.dataset).image_size;
  const data::ElementSpec spec{.features = {{"", {DType::kFloat32, {size, size, 3}}}}, .labels = {}};
  const Tensor image(DType::kFloat32, {1, size, size, 3});
  PreprocessingScratch scratch;
  for (const std::string& file : files) {
    RETURN_IF_ERROR(ReadImage(file, options.dataset, scratch, image.data<float>()));
    ASSIGN_OR_RETURN(const auto results, estimator.Predict(spec, {image}));
    const absl::Span<const float> probabilities = results[1].second.flat<float>();
    const std::vector<int64_t> classes = TopClasses(probabilities, options.top_k);
    (options.json ? PrintJson : PrintText)(file, classes, probabilities, names, out);
  }
  return absl::OkStatus();
}

}  // namespace official::resnet
