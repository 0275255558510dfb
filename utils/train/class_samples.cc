#include "utils/train/class_samples.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace official::train {
namespace {

using compute::Tensor;

constexpr int64_t kMaxSide = 112;  // pixels

// The means of squares of n x n pixels; what is left over at the right and at the bottom is left out.
Tensor Shrunk(const Tensor& image, int64_t n) {
  const int64_t width = image.shape().dim(1), channels = image.shape().dim(2);
  Tensor small(compute::DType::kFloat32, {image.shape().dim(0) / n, width / n, channels});
  float* out = small.data<float>();
  for (int64_t y = 0; y < small.shape().dim(0); ++y) {
    for (int64_t x = 0; x < small.shape().dim(1); ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int64_t i = 0; i < n * n; ++i) {
          sum += image.data<float>()[((n * y + i / n) * width + n * x + i % n) * channels + c];
        }
        *out++ = sum / static_cast<float>(n * n);
      }
    }
  }
  return small;
}

}  // namespace

EvalSamplesFn ClassSamples(compute::Shape image, std::function<std::string(int64_t class_id)> name_of) {
  return [image = std::move(image), name_of = std::move(name_of)](
             const BatchShare& share, const data::Tensors& predictions, int64_t max_samples) {
    EvalSamples samples{.columns = {"class", "prediction", "probability"}, .rows = {}};
    const int32_t* const labels = share.labels[0].data<int32_t>();
    const int64_t* const classes = predictions[0].data<int64_t>();
    const auto [least, most] = std::minmax({image.dim(0), image.dim(1)});
    const int64_t n = std::clamp<int64_t>((most + kMaxSide - 1) / kMaxSide, 1, least);
    const int64_t num_classes = predictions[1].shape().dim(1), pixels = image.num_elements();
    for (int64_t i = 0; i < std::min(share.examples.size(), max_samples); ++i) {
      const float probability = predictions[1].data<float>()[i * num_classes + classes[i]];
      samples.rows.push_back({name_of(labels[i]), name_of(classes[i]), absl::StrFormat("%.3f", probability)});
      const Tensor view({compute::DType::kFloat32, image}, share.features[0].data<float>() + i * pixels);
      samples.images.push_back(Shrunk(view, n));
    }
    return samples;
  };
}

}  // namespace official::train
