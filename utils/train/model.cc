#include "utils/train/model.h"

#include <algorithm>

namespace official::train {
namespace {

using compute::Tensor;

// Rows [begin, end) of the first dimension: a view.
Tensor Rows(const Tensor& tensor, const compute::Share& share) {
  compute::TensorType type = tensor.type();
  const int64_t row_bytes = type.num_bytes() / std::max<int64_t>(1, type.shape.dim(0));
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims[0] = share.size();
  type.shape = compute::Shape(dims);
  return Tensor(type, static_cast<char*>(tensor.raw_data()) + share.begin * row_bytes);
}

data::Tensors RowsOfAll(const data::Batch& batch, const data::Tensors& tensors, const compute::Share& examples) {
  if (examples.size() == batch.num_examples) return tensors;
  data::Tensors rows;
  for (const Tensor& tensor : tensors) {
    if (examples.size() > 0) {
      rows.push_back(Rows(tensor, examples));
    } else {
      rows.emplace_back(Rows(tensor, {0, 1}).type());
    }
  }
  return rows;
}

}  // namespace

BatchShare ShareOfRows(Mode, const data::Batch& batch, const compute::Share& examples, int) {
  return {.examples = examples,
          .features = RowsOfAll(batch, batch.features, examples),
          .labels = RowsOfAll(batch, batch.labels, examples),
          .weight = examples.size()};
}

}  // namespace official::train
