#include "utils/train/share_bytes.h"

#include <cstring>

#include "utils/compute/core/status.h"

namespace official::train {
namespace {

using compute::Tensor;

void AppendNumber(int64_t number, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void AppendTensors(const data::Tensors& tensors, std::string& bytes) {
  AppendNumber(static_cast<int64_t>(tensors.size()), bytes);
  for (const Tensor& tensor : tensors) {
    AppendNumber(static_cast<int64_t>(tensor.type().dtype), bytes);
    AppendNumber(tensor.shape().rank(), bytes);
    for (const int64_t dim : tensor.shape().dims()) AppendNumber(dim, bytes);
    bytes.append(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
  }
}

absl::Status Damaged() { return absl::DataLossError("the predictions of another worker cannot be read"); }

// Takes what AppendNumber and AppendTensors have written from the beginning of `bytes`.
absl::StatusOr<int64_t> TakeNumber(absl::string_view& bytes) {
  int64_t number;
  if (bytes.size() < sizeof(number)) return Damaged();
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

absl::StatusOr<Tensor> TakeTensor(absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const int64_t dtype, TakeNumber(bytes));
  ASSIGN_OR_RETURN(const int64_t rank, TakeNumber(bytes));
  if (dtype < 0 || dtype > static_cast<int64_t>(compute::DType::kBool)) return Damaged();
  std::vector<int64_t> dims;
  int64_t elements = 1;
  for (int64_t i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(const int64_t dim, TakeNumber(bytes));
    if (dim < 0 || dim > static_cast<int64_t>(bytes.size())) return Damaged();
    elements *= dim;
    if (elements > static_cast<int64_t>(bytes.size())) return Damaged();
    dims.push_back(dim);
  }
  const compute::TensorType type{static_cast<compute::DType>(dtype), compute::Shape(dims)};
  if (type.num_bytes() > static_cast<int64_t>(bytes.size())) return Damaged();
  Tensor tensor(type);
  if (tensor.num_bytes() > 0) std::memcpy(tensor.raw_data(), bytes.data(), tensor.num_bytes());
  bytes.remove_prefix(tensor.num_bytes());
  return tensor;
}

absl::StatusOr<data::Tensors> TakeTensors(absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const int64_t count, TakeNumber(bytes));
  data::Tensors tensors;
  for (int64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(bytes));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

std::string BytesOf(const std::vector<ShareResults>& results) {
  std::string bytes;
  for (const ShareResults& of_share : results) {
    AppendTensors(of_share.labels, bytes);
    AppendTensors(of_share.predictions, bytes);
  }
  return bytes;
}

absl::StatusOr<std::vector<ShareResults>> ShareResultsFrom(absl::string_view bytes) {
  std::vector<ShareResults> results;
  while (!bytes.empty()) {
    ShareResults& of_share = results.emplace_back();
    ASSIGN_OR_RETURN(of_share.labels, TakeTensors(bytes));
    ASSIGN_OR_RETURN(of_share.predictions, TakeTensors(bytes));
  }
  return results;
}

}  // namespace official::train
