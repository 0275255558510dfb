#include "utils/train/eval_samples.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "utils/compute/core/check.h"

namespace official::train {
namespace {

constexpr size_t kMaxTextBytes = 1000;
constexpr char kEllipsis[] = "\u2026";

void Cut(std::string& text) {
  if (text.size() <= kMaxTextBytes) return;
  size_t end = kMaxTextBytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;  // inside of a character
  text.resize(end);
  text += kEllipsis;
}

template <typename T>
void AppendTo(std::vector<T>& all, std::vector<T> more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

}  // namespace

void Append(EvalSamples more, EvalSamples& samples) {
  samples.columns = std::move(more.columns);
  AppendTo(samples.rows, std::move(more.rows));
  AppendTo(samples.images, std::move(more.images));
}

void CutLongTexts(EvalSamples& samples) {
  for (std::vector<std::string>& row : samples.rows) std::for_each(row.begin(), row.end(), Cut);
}

compute::Tensor ImagesOf(const EvalSamples& samples) {
  const compute::Shape& shape = samples.images.at(0).shape();
  const auto n = static_cast<int64_t>(samples.images.size());
  compute::Tensor all(compute::DType::kFloat32, {n, shape.dim(0), shape.dim(1), shape.dim(2)});
  float* out = all.data<float>();
  for (const compute::Tensor& image : samples.images) {
    OFFICIAL_CHECK(image.shape() == shape) << image.type().ToString();
    out = std::copy_n(image.data<float>(), image.num_elements(), out);
  }
  return all;
}

}  // namespace official::train
