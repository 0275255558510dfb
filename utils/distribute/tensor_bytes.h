// Tensors as bytes, for what workers of one program send each other (exchange.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/tensor.h"

namespace official::distribute {

void AppendNumber(int64_t number, std::string& bytes);
void AppendText(absl::string_view text, std::string& bytes);
void AppendType(const compute::TensorType& type, std::string& bytes);
// Appends the type, then the elements.
void AppendTensor(const compute::Tensor& tensor, std::string& bytes);
// Appends the elements alone, of a type that both sides know.
void AppendElements(const compute::Tensor& tensor, std::string& bytes);

// Take what the functions above have appended from the beginning of `bytes`. DataLoss if it is not there.
absl::StatusOr<int64_t> TakeNumber(absl::string_view& bytes);
absl::StatusOr<std::string> TakeText(absl::string_view& bytes);
// The tensors of the type fit into memory: they have less than 2^56 elements.
absl::StatusOr<compute::TensorType> TakeType(absl::string_view& bytes);
absl::StatusOr<compute::Tensor> TakeTensor(absl::string_view& bytes);
// Returns a view of `bytes`, which nobody may write to and in which elements may have any address: to copy from.
absl::StatusOr<compute::Tensor> TakeElements(const compute::TensorType& type, absl::string_view& bytes);

}  // namespace official::distribute
