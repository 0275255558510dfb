#include "utils/distribute/tensor_bytes.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "utils/compute/core/status.h"

namespace official::distribute {
namespace {

using compute::Tensor;

// No number of bytes overflows; and there is no memory for so many.
constexpr int64_t kMaxElements = int64_t{1} << 56;

absl::Status Damaged() { return absl::DataLossError("the values of another worker cannot be read"); }

}  // namespace

void AppendNumber(int64_t number, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void AppendText(absl::string_view text, std::string& bytes) {
  AppendNumber(static_cast<int64_t>(text.size()), bytes);
  bytes.append(text.data(), text.size());
}

void AppendType(const compute::TensorType& type, std::string& bytes) {
  AppendNumber(static_cast<int64_t>(type.dtype), bytes);
  AppendNumber(type.shape.rank(), bytes);
  for (const int64_t dim : type.shape.dims()) AppendNumber(dim, bytes);
}

void AppendTensor(const Tensor& tensor, std::string& bytes) {
  AppendType(tensor.type(), bytes);
  AppendElements(tensor, bytes);
}

void AppendElements(const Tensor& tensor, std::string& bytes) {
  bytes.append(static_cast<const char*>(tensor.raw_data()), tensor.num_bytes());
}

absl::StatusOr<int64_t> TakeNumber(absl::string_view& bytes) {
  int64_t number;
  if (bytes.size() < sizeof(number)) return Damaged();
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

absl::StatusOr<std::string> TakeText(absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const int64_t size, TakeNumber(bytes));
  if (size < 0 || size > static_cast<int64_t>(bytes.size())) return Damaged();
  std::string text(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return text;
}

absl::StatusOr<compute::TensorType> TakeType(absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const int64_t dtype, TakeNumber(bytes));
  ASSIGN_OR_RETURN(const int64_t rank, TakeNumber(bytes));
  if (dtype < 0 || dtype > static_cast<int64_t>(compute::DType::kBool) || rank < 0) return Damaged();
  std::vector<int64_t> dims;
  int64_t most = kMaxElements;  // that the dimensions still to come may have
  for (int64_t i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(const int64_t dim, TakeNumber(bytes));
    if (dim < 0 || dim > most) return Damaged();
    most /= std::max<int64_t>(1, dim);
    dims.push_back(dim);
  }
  return compute::TensorType{static_cast<compute::DType>(dtype), compute::Shape(dims)};
}

absl::StatusOr<Tensor> TakeTensor(absl::string_view& bytes) {
  ASSIGN_OR_RETURN(const compute::TensorType type, TakeType(bytes));
  ASSIGN_OR_RETURN(const Tensor elements, TakeElements(type, bytes));
  return elements.Clone();
}

absl::StatusOr<Tensor> TakeElements(const compute::TensorType& type, absl::string_view& bytes) {
  if (type.num_bytes() > static_cast<int64_t>(bytes.size())) return Damaged();
  const Tensor view(type, const_cast<char*>(bytes.data()));
  bytes.remove_prefix(type.num_bytes());
  return view;
}

}  // namespace official::distribute
