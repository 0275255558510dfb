#include "utils/compute/core/dtype.h"

#include "utils/compute/core/check.h"

namespace official::compute {

int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kUInt8:
    case DType::kBool:
      return 1;
  }
  OFFICIAL_CHECK(false) << "unknown dtype " << static_cast<int>(dtype);
  return 0;
}

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "half";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
  }
  return "unknown";
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16 || dtype == DType::kFloat64;
}

std::vector<DType> StorageTypes() { return {DType::kFloat32, DType::kBFloat16, DType::kFloat16}; }

bool IsStorageType(DType dtype) { return IsFloating(dtype) && dtype != DType::kFloat64; }

std::vector<DType> StorageTypesAnd(std::vector<DType> others) {
  std::vector<DType> types = StorageTypes();
  for (const DType dtype : others) types.push_back(dtype);
  return types;
}

}  // namespace official::compute
