// IDX: the file format of MNIST. Big-endian: two zero bytes, the element type (8: unsigned bytes, the only one read
// here), the number of dimensions, each dimension as 32 bits, then the elements, row-major. Source:
// http://yann.lecun.com/exdb/mnist ("the IDX file format").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "utils/compute/core/tensor.h"

namespace official::data {

struct IdxHeader {
  uint32_t magic = 0;         // the first four bytes; 0x800 + rank in files of unsigned bytes
  std::vector<int64_t> dims;  // empty if the magic number is another
};

// A further check of the header; its error becomes that of ReadIdx.
using IdxHeaderCheck = absl::FunctionRef<absl::Status(const IdxHeader& header)>;

// Returns the uint8 tensor in an IDX file, plain or gzipped (told by its first bytes, not by its name). The header is
// checked, by `check` and against the size of the data, before anything is allocated that depends on it. NotFound,
// PermissionDenied or Aborted if the file cannot be read; DataLoss, with the file, the bytes expected and the bytes
// found, if it is empty, is not IDX, is cut, has bytes left over, or claims more than it can hold.
absl::StatusOr<compute::Tensor> ReadIdx(const std::string& path, IdxHeaderCheck check);
absl::StatusOr<compute::Tensor> ReadIdx(const std::string& path);

}  // namespace official::data
