#include "official/serve/servable/estimator_servable.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "utils/compute/core/check.h"
#include "utils/compute/core/status.h"
#include "utils/logs/json.h"
#include "utils/run/predict_lines.h"

namespace official::serve {

using compute::Shape;
using compute::Tensor;

namespace {

// Returns row `i` of a batch, without the dimension of the batch.
Tensor Row(const Tensor& batch, int64_t i) {
  const absl::Span<const int64_t> dims = batch.shape().dims();
  Tensor row(batch.dtype(), Shape(std::vector<int64_t>(dims.begin() + 1, dims.end())));
  std::memcpy(row.raw_data(), static_cast<const char*>(batch.raw_data()) + i * row.num_bytes(), row.num_bytes());
  return row;
}

}  // namespace

absl::StatusOr<Values> EstimatorServable::Prepare(Values example) const {
  if (const auto* const bytes = std::get_if<std::string>(&example[0])) {
    ASSIGN_OR_RETURN(Tensor tensor, decode_file_(*bytes));
    example[0] = std::move(tensor);
  }
  for (const float pixel : std::get<Tensor>(example[0]).flat<float>()) {
    if (pixel >= range_.min && pixel <= range_.max) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the image has a pixel of ", logs::FormatFloat(pixel), "; ", range_.text));
  }
  return example;
}

absl::StatusOr<std::vector<Values>> EstimatorServable::Run(absl::Span<const Values> examples) {
  const auto n = static_cast<int64_t>(examples.size());
  const compute::TensorType& type = spec_.features[0].type;
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims.insert(dims.begin(), run::FilledBatch(n));
  const Tensor batch(type.dtype, Shape(dims));
  for (int64_t i = 0; i < n; ++i) {
    const auto& value = std::get<Tensor>(examples[i][0]);
    OFFICIAL_CHECK(value.num_bytes() == type.num_bytes()) << value.type().ToString();
    std::memcpy(static_cast<char*>(batch.raw_data()) + i * type.num_bytes(), value.raw_data(), type.num_bytes());
  }
  ASSIGN_OR_RETURN(const auto predictions, estimator_->Predict(spec_, {batch}));
  std::vector<Values> outputs(examples.size());
  for (const TensorInfo& output : signature_.outputs) {
    const auto found = std::find_if(predictions.begin(), predictions.end(),
                                    [&](const auto& prediction) { return prediction.first == output.name; });
    OFFICIAL_CHECK(found != predictions.end()) << output.name;
    for (int64_t i = 0; i < n; ++i) outputs[i].push_back(Row(found->second, i));
  }
  return outputs;
}

}  // namespace official::serve
