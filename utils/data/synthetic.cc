#include "utils/data/synthetic.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "utils/compute/core/status.h"

namespace official::data {
namespace {

using compute::DType;
using compute::Shape;
using compute::Tensor;
using compute::TensorType;

DType DTypeOf(const SyntheticGroup& group) {
  return group.dtype.value_or(std::holds_alternative<int64_t>(group.value) ? DType::kInt32 : DType::kFloat32);
}

// A tensor of `type` whose elements are all `value`.
Tensor Filled(const TensorType& type, const std::variant<int64_t, double>& value) {
  // Integers go through int64 and reals through float64, so that neither is rounded on the way to `type`.
  const Tensor one = std::holds_alternative<int64_t>(value)
                         ? Tensor::Scalar(std::get<int64_t>(value)).CastTo(type.dtype)
                         : Tensor::Scalar(std::get<double>(value)).CastTo(type.dtype);
  Tensor result(type);
  const int64_t size = one.num_bytes();
  const char* from = static_cast<const char*>(one.raw_data());
  char* to = static_cast<char*>(result.raw_data());
  for (int64_t i = 0; i < type.shape.num_elements(); ++i) std::copy(from, from + size, to + i * size);
  return result;
}

class SyntheticBatches : public BatchSource {
 public:
  SyntheticBatches(const SyntheticOptions& options, BatchCounter counter)
      : num_examples_(options.num_examples), counter_(std::move(counter)) {
    Add(options.input, spec_.features, features_);
    Add(options.label, spec_.labels, labels_);
  }
  const ElementSpec& spec() const override { return spec_; }
  std::optional<int64_t> num_examples() const override { return num_examples_; }

  absl::StatusOr<std::optional<Batch>> Next() override {
    Batch batch = counter_.Advance();
    if (batch.num_examples == 0) return std::nullopt;
    for (const Tensor& tensor : features_) batch.features.push_back(FirstRows(tensor, batch.num_examples));
    for (const Tensor& tensor : labels_) batch.labels.push_back(FirstRows(tensor, batch.num_examples));
    return batch;
  }

 private:
  void Add(const SyntheticGroup& group, std::vector<Leaf>& leaves, Tensors& tensors) {
    for (const NamedShape& leaf : group.shapes) {
      leaves.push_back({leaf.name, {DTypeOf(group), leaf.shape}});
      tensors.push_back(Filled(BatchedType(leaves.back().type, counter_.max_batch()), group.value));
    }
  }
  static Tensor FirstRows(const Tensor& tensor, int64_t num_rows) {
    if (num_rows == tensor.shape().dim(0)) return tensor;
    TensorType type = tensor.type();
    type.shape.set_dim(0, num_rows);
    return Tensor(std::move(type), tensor.raw_data(), std::make_shared<Tensor>(tensor));
  }

  const int64_t num_examples_;
  BatchCounter counter_;
  ElementSpec spec_;
  Tensors features_, labels_;
};

}  // namespace

absl::StatusOr<BatchSourcePtr> GenerateSyntheticData(const SyntheticOptions& options,
                                                     const BatchOptions& batch_options) {
  ASSIGN_OR_RETURN(BatchCounter counter, BatchCounter::Create(options.num_examples, batch_options));
  return std::make_unique<SyntheticBatches>(options, std::move(counter));
}

}  // namespace official::data
